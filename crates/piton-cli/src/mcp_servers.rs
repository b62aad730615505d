//! `--mcp-server`: the MCP servers that a new session's agent gets beside those of its profile.

use piton_api::agent_view::McpServer;

use crate::error::{Error, Result};

/// MCP servers of a new session.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct McpServerArgs {
    /// An MCP server for the agent, as NAME=COMMAND or NAME=URL, or an object as the API takes it; may be
    /// repeated
    #[arg(long = "mcp-server", value_name = "NAME=COMMAND|NAME=URL|JSON")]
    servers: Vec<String>,
}

impl McpServerArgs {
    pub(crate) fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    pub(crate) fn servers(&self) -> Result<Vec<McpServer>> {
        self.servers.iter().map(|text| server(text)).collect()
    }
}

/// One server. The words of a command are separated by blanks and are not quoted: an argument with a
/// blank needs the JSON form, as a variable that holds a secret does.
fn server(text: &str) -> Result<McpServer> {
    let wrong = |why: &str| {
        Error::usage(&format!("--mcp-server {text}: {why}"))
            .with_hint("Write NAME=COMMAND, NAME=URL, or an object: {\"name\": …, \"command\": …}.")
    };
    if text.trim_start().starts_with('{') {
        return serde_json::from_str(text).map_err(|error| wrong(&error.to_string()));
    }
    let (name, rest) = text.split_once('=').ok_or_else(|| wrong("the name is missing"))?;
    if name.is_empty() {
        return Err(wrong("the name is missing"));
    }
    let name = name.to_owned();
    if rest.starts_with("http://") || rest.starts_with("https://") {
        return Ok(McpServer { name, url: Some(rest.to_owned()), ..McpServer::default() });
    }
    let mut words = rest.split_whitespace().map(str::to_owned);
    let command = words.next().ok_or_else(|| wrong("the command is missing"))?;
    Ok(McpServer { name, command: Some(command), args: words.collect(), ..McpServer::default() })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_server_is_a_command_an_address_or_an_object() {
        let read = |text: &str| serde_json::to_value(server(text).unwrap()).unwrap();
        assert_eq!(
            read("docs=npx -y docs-server --root=."),
            json!({"name": "docs", "command": "npx", "args": ["-y", "docs-server", "--root=."]})
        );
        assert_eq!(
            read("web=https://example.com/mcp?a=b"),
            json!({"name": "web", "url": "https://example.com/mcp?a=b"})
        );
        let object = json!({"name": "s", "command": "/opt/my server", "env_from": ["TOKEN"]});
        assert_eq!(read(&object.to_string()), object);
        for wrong in ["docs", "=npx", "docs=", "docs=  ", r#"{"name": "s", "colour": 1}"#] {
            assert!(server(wrong).is_err(), "{wrong}");
        }
    }
}
