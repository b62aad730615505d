//! The MCP servers of an agent: `[agents.NAME.mcp.SERVER]`.

use std::collections::BTreeMap;

use piton_core::mcp::{McpServer, Transport};
use toml::Spanned;
use toml::de::DeValue;

use super::file::texts;

/// Why a table cannot be read, and where.
pub(super) type Fault = (usize, String);

/// Reads the table of an agent's MCP servers. Errors name variables and never their values.
pub(super) fn read(
    agent: &str,
    value: &Spanned<DeValue<'_>>,
    at: usize,
) -> Result<Vec<McpServer>, Fault> {
    let must_be = || (at, format!("agents.{agent}.mcp must be a table of MCP servers"));
    let table = value.get_ref().as_table().ok_or_else(must_be)?;
    let mut servers = Vec::new();
    for (name, value) in table {
        let at = name.span().start;
        let server = server(agent, name.get_ref(), value, at)?;
        servers.push(server);
    }
    match piton_core::mcp::fault(&servers) {
        Some(fault) => Err((at, format!("agents.{agent}.mcp: {fault}"))),
        None => Ok(servers),
    }
}

fn server(
    agent: &str,
    name: &str,
    value: &Spanned<DeValue<'_>>,
    at: usize,
) -> Result<McpServer, Fault> {
    let key_of = |key: &str| format!("agents.{agent}.mcp.{name}.{key}");
    let must_be = || (at, format!("agents.{agent}.mcp.{name} must be a table"));
    let table = value.get_ref().as_table().ok_or_else(must_be)?;
    let mut server = McpServer { name: name.to_owned(), ..McpServer::default() };
    for (key, value) in table {
        let (key, at) = (key.get_ref().as_ref(), key.span().start);
        let wrong = |what: &str| (at, format!("{} must be {what}", key_of(key)));
        let text = || value.get_ref().as_str().map(str::to_owned).ok_or_else(|| wrong("a text"));
        let list = || texts(value).ok_or_else(|| wrong("a list of texts"));
        let pairs = || pairs(value).ok_or_else(|| wrong("a table of texts"));
        match key {
            "command" => server.command = Some(text()?),
            "args" => server.args = list()?,
            "env" => server.env = pairs()?,
            "env_from" => server.env_from = list()?,
            "url" => server.url = Some(text()?),
            "transport" => {
                server.transport = Some(match text()?.as_str() {
                    "http" => Transport::Http,
                    "sse" => Transport::Sse,
                    _ => return Err(wrong("http or sse")),
                });
            }
            "headers" => server.headers = pairs()?,
            "headers_from" => server.headers_from = pairs()?,
            key => return Err((at, format!("there is no setting {:?}", key_of(key)))),
        }
    }
    Ok(server)
}

fn pairs(value: &Spanned<DeValue<'_>>) -> Option<BTreeMap<String, String>> {
    let table = value.get_ref().as_table()?;
    let pair = |(name, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
        let name: &std::borrow::Cow<'_, str> = name.get_ref();
        Some((name.to_string(), value.get_ref().as_str()?.to_owned()))
    };
    table.iter().map(pair).collect()
}
