//! MCP servers that an agent is given with every conversation that it begins, loads or resumes.
//!
//! A session's own are in its log, where no secret may be: a secret is named by the variable of the
//! server's environment that holds it, and looked up when the agent is started.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::limits::{MCP_SERVERS_MAX, MCP_TEXT_BYTES_MAX, MCP_VARIABLES_MAX};

/// Headers that hold credentials, whatever they look like.
const CREDENTIALS: &[&str] = &["authorization", "proxy-authorization", "cookie"];

/// How an MCP server at an address is spoken to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    #[default]
    Http,
    Sse,
}

/// One MCP server: a program that the agent starts, or an address.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct McpServer {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Variables that it is given as the server's own environment has them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env_from: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transport: Option<Transport>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Headers whose values are variables of the server's own environment.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers_from: BTreeMap<String, String>,
}

/// Environments and headers hold keys: their values are in no text.
impl std::fmt::Debug for McpServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.command.as_deref().or(self.url.as_deref());
        write!(f, "McpServer({} {:?})", self.name, name)
    }
}

impl McpServer {
    /// What is wrong with it.
    pub fn fault(&self) -> Option<String> {
        let name = &self.name;
        if name.is_empty() || name.len() > MCP_TEXT_BYTES_MAX {
            return Some(format!("An MCP server's name has 1 to {MCP_TEXT_BYTES_MAX} bytes"));
        }
        let texts = self.args.iter().chain(self.env.values()).chain(self.headers.values());
        if texts.clone().any(|text| text.contains('\0') || text.len() > 16 * MCP_TEXT_BYTES_MAX) {
            return Some(format!("MCP server {name}: a value is too long, or has a NUL"));
        }
        let many = [self.args.len(), self.env.len(), self.env_from.len(), self.headers.len()];
        if many.into_iter().any(|count| count > MCP_VARIABLES_MAX) {
            return Some(format!("MCP server {name}: more than {MCP_VARIABLES_MAX} of one kind"));
        }
        let is_program = self.command.as_ref().is_some_and(|command| !command.is_empty());
        let is_address = self.url.as_ref().is_some_and(|url| !url.is_empty());
        match (is_program, is_address) {
            (true, false) if !self.headers.is_empty() || !self.headers_from.is_empty() => {
                Some(format!("MCP server {name}: only one with a url has headers"))
            }
            (false, true) if !self.args.is_empty() || !self.env.is_empty() => {
                Some(format!("MCP server {name}: only one with a command has args and env"))
            }
            (true, false) | (false, true) => None,
            _ => Some(format!("MCP server {name} has either a command or a url")),
        }
    }

    /// Whether a header of it authorizes, under a name that no pattern of secrets matches.
    pub fn has_credentials(&self) -> bool {
        let mut names = self.headers.keys();
        names.any(|name| CREDENTIALS.iter().any(|known| name.eq_ignore_ascii_case(known)))
    }

    /// As the Agent Client Protocol has it. `variable`: the server's own environment.
    pub fn resolve(&self, variable: impl Fn(&str) -> Option<String>) -> Result<Value, String> {
        let look_up = |name: &str| {
            let missing = || format!("MCP server {} needs the variable {name}", self.name);
            variable(name).ok_or_else(missing)
        };
        let pair = |name: &str, value: &str| json!({ "name": name, "value": value });
        if let Some(url) = &self.url {
            let mut headers: Vec<Value> =
                self.headers.iter().map(|(name, value)| pair(name, value)).collect();
            for (header, name) in &self.headers_from {
                headers.push(pair(header, &look_up(name)?));
            }
            let transport = self.transport.unwrap_or_default();
            return Ok(
                json!({ "type": transport, "name": self.name, "url": url, "headers": headers }),
            );
        }
        let mut env: Vec<Value> = self.env.iter().map(|(name, value)| pair(name, value)).collect();
        for name in &self.env_from {
            env.push(pair(name, &look_up(name)?));
        }
        let (name, command, args) = (&self.name, &self.command, &self.args);
        Ok(json!({ "name": name, "command": command, "args": args, "env": env }))
    }
}

/// What is wrong with a session's list of them.
pub fn fault(servers: &[McpServer]) -> Option<String> {
    if servers.len() > MCP_SERVERS_MAX {
        return Some(format!("A session has at most {MCP_SERVERS_MAX} MCP servers"));
    }
    let mut names: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
    names.sort_unstable();
    if let Some([twice, ..]) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Some(format!("There are two MCP servers {twice:?}"));
    }
    servers.iter().find_map(McpServer::fault)
}

/// The credentials in the headers of MCP servers, in the protocol's form: for a masker. Of a scheme and
/// a token, both the whole and the token.
pub fn credentials(servers: &[Value]) -> Vec<String> {
    let is_credential =
        |name: &str| CREDENTIALS.iter().any(|known| name.eq_ignore_ascii_case(known));
    let found = values(servers).into_iter().filter(|(name, _)| is_credential(name));
    found
        .flat_map(|(_, value)| {
            let token = value.split_once(' ').map(|(_, token)| token.trim().to_owned());
            [Some(value), token]
        })
        .flatten()
        .collect()
}

/// The values that MCP servers are given under names, in the protocol's form: for a masker.
pub fn values(servers: &[Value]) -> Vec<(String, String)> {
    let pairs = servers.iter().flat_map(|server| {
        let of = |key: &str| server.get(key).and_then(Value::as_array).into_iter().flatten();
        of("env").chain(of("headers"))
    });
    pairs
        .filter_map(|pair| {
            let text = |key: &str| Some(pair.get(key)?.as_str()?.to_owned());
            Some((text("name")?, text("value")?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program() -> McpServer {
        McpServer {
            name: "git".to_owned(),
            command: Some("mcp-git".to_owned()),
            args: vec!["--here".to_owned()],
            env: [("A".to_owned(), "1".to_owned())].into(),
            env_from: vec!["GIT_TOKEN".to_owned()],
            ..McpServer::default()
        }
    }

    #[test]
    fn secrets_are_looked_up_when_they_are_needed() {
        let variable = |name: &str| (name == "GIT_TOKEN").then(|| "hunter2".to_owned());
        let resolved = program().resolve(variable).unwrap();
        let env = json!([{"name": "A", "value": "1"}, {"name": "GIT_TOKEN", "value": "hunter2"}]);
        let expected = json!({"name": "git", "command": "mcp-git", "args": ["--here"], "env": env});
        assert_eq!(resolved, expected);
        let missing = program().resolve(|_| None).unwrap_err();
        assert_eq!(missing, "MCP server git needs the variable GIT_TOKEN");
        assert!(!format!("{:?}", program()).contains("hunter2"));
        let found = values(&[resolved]);
        assert!(found.contains(&("GIT_TOKEN".to_owned(), "hunter2".to_owned())));
        let address = McpServer {
            name: "web".to_owned(),
            url: Some("https://x".to_owned()),
            headers_from: [("Authorization".to_owned(), "GIT_TOKEN".to_owned())].into(),
            ..McpServer::default()
        };
        let header = json!([{"name": "Authorization", "value": "hunter2"}]);
        let expected =
            json!({"type": "http", "name": "web", "url": "https://x", "headers": header});
        assert_eq!(address.resolve(variable).unwrap(), expected);
        let bearer = json!({"headers": [{"name": "authorization", "value": "Bearer hunter2"}]});
        assert_eq!(credentials(&[bearer]), ["Bearer hunter2", "hunter2"]);
        let plain = [("Authorization".to_owned(), "Bearer x".to_owned())].into();
        assert!(McpServer { headers: plain, ..address }.has_credentials());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert_eq!(fault(&[program()]), None);
        assert!(fault(&[program(), program()]).unwrap().contains("two MCP servers"));
        let neither = McpServer { name: "x".to_owned(), ..McpServer::default() };
        let both = McpServer { url: Some("u".to_owned()), ..program() };
        let nameless = McpServer { name: String::new(), ..program() };
        let headers = [("H".to_owned(), "v".to_owned())].into();
        let with_headers = McpServer { headers, ..program() };
        let many = McpServer { args: vec!["x".to_owned(); 1_000], ..program() };
        for wrong in [neither, both, nameless, with_headers, many] {
            assert!(wrong.fault().is_some(), "{wrong:?}");
        }
    }
}
