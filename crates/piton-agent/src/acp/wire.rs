//! The protocol's own types, and nothing else: majors of their crate come monthly, so that what
//! changes there must change here alone. What an agent says is read leniently: a field that is not
//! understood is no reason to lose the message, which is why contents stay [`Value`]s.

use std::path::{Path, PathBuf};

use agent_client_protocol_schema::ProtocolVersion;
use agent_client_protocol_schema::v1;
use piton_core::agent_view::ConfigValue;
use piton_core::content::{PromptCapabilities, PromptContent};
use piton_core::spool::{
    AgentInfo, AgentSessionInfo, AgentSessions, AuthMethod, SessionCapabilities,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{TerminalExit, TerminalOutput, TerminalSpec};

/// The one version that is spoken.
pub(super) const VERSION: u64 = 1;

pub(super) mod method {
    use agent_client_protocol_schema::v1;

    const AGENT: v1::AgentMethodNames = v1::AGENT_METHOD_NAMES;
    const CLIENT: v1::ClientMethodNames = v1::CLIENT_METHOD_NAMES;

    pub(crate) const INITIALIZE: &str = AGENT.initialize;
    pub(crate) const AUTHENTICATE: &str = AGENT.authenticate;
    pub(crate) const NEW: &str = AGENT.session_new;
    pub(crate) const LOAD: &str = AGENT.session_load;
    pub(crate) const RESUME: &str = AGENT.session_resume;
    pub(crate) const LIST: &str = AGENT.session_list;
    pub(crate) const CLOSE: &str = AGENT.session_close;
    pub(crate) const DELETE: &str = AGENT.session_delete;
    pub(crate) const FORK: &str = AGENT.session_fork;
    pub(crate) const SET_MODE: &str = AGENT.session_set_mode;
    /// Of an extension that agents have; config options are to take its place.
    pub(crate) const SET_MODEL: &str = "session/set_model";
    pub(crate) const SET_CONFIG_OPTION: &str = AGENT.session_set_config_option;
    pub(crate) const PROMPT: &str = AGENT.session_prompt;
    pub(crate) const CANCEL: &str = AGENT.session_cancel;

    pub(crate) const UPDATE: &str = CLIENT.session_update;
    pub(crate) const PERMISSION: &str = CLIENT.session_request_permission;
    pub(crate) const READ: &str = CLIENT.fs_read_text_file;
    pub(crate) const WRITE: &str = CLIENT.fs_write_text_file;
    pub(crate) const TERMINAL_CREATE: &str = CLIENT.terminal_create;
    pub(crate) const TERMINAL_OUTPUT: &str = CLIENT.terminal_output;
    pub(crate) const TERMINAL_RELEASE: &str = CLIENT.terminal_release;
    pub(crate) const TERMINAL_WAIT: &str = CLIENT.terminal_wait_for_exit;
    pub(crate) const TERMINAL_KILL: &str = CLIENT.terminal_kill;

    pub(crate) const CANCEL_REQUEST: &str = v1::PROTOCOL_LEVEL_METHOD_NAMES.cancel_request;
}

pub(super) mod code {
    pub(crate) const INVALID_REQUEST: i64 = -32600;
    pub(crate) const METHOD_NOT_FOUND: i64 = -32601;
    pub(crate) const INVALID_PARAMS: i64 = -32602;
    pub(crate) const INTERNAL: i64 = -32603;
    pub(crate) const RESOURCE_NOT_FOUND: i64 = -32002;
    pub(crate) const REQUEST_CANCELLED: i64 = -32800;
}

/// These types always serialise; their maps have text for keys.
fn value(of: impl Serialize) -> Value {
    serde_json::to_value(of).unwrap_or_default()
}

fn parse<T: DeserializeOwned>(params: Value) -> Result<T, String> {
    serde_json::from_value(params).map_err(|error| error.to_string())
}

/// `files`: whether the agent is offered to read and write files through us.
pub(super) fn initialize(files: bool) -> Value {
    let fs = v1::FileSystemCapabilities::new().read_text_file(files).write_text_file(files);
    let capabilities = v1::ClientCapabilities::new().fs(fs).terminal(true);
    let info = v1::Implementation::new("piton", env!("CARGO_PKG_VERSION"));
    let request = v1::InitializeRequest::new(ProtocolVersion::V1)
        .client_capabilities(capabilities)
        .client_info(info);
    value(request)
}

/// What an agent says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    pub agent: Option<AgentInfo>,
    pub capabilities: SessionCapabilities,
    pub auth_methods: Vec<AuthMethod>,
}

pub(super) fn spoken_version(answer: &Value) -> Option<u64> {
    answer.get("protocolVersion").and_then(Value::as_u64)
}

pub(super) fn hello(answer: Value) -> Result<Hello, String> {
    let answer: v1::InitializeResponse = parse(answer)?;
    let sessions = &answer.agent_capabilities.session_capabilities;
    let capabilities = SessionCapabilities {
        load: answer.agent_capabilities.load_session,
        resume: sessions.resume.is_some(),
        list: sessions.list.is_some(),
        close: sessions.close.is_some(),
        delete: sessions.delete.is_some(),
        fork: sessions.fork.is_some(),
        prompt: PromptCapabilities {
            image: answer.agent_capabilities.prompt_capabilities.image,
            audio: answer.agent_capabilities.prompt_capabilities.audio,
            embedded_context: answer.agent_capabilities.prompt_capabilities.embedded_context,
        },
    };
    let agent = answer.agent_info.map(|info| AgentInfo {
        name: info.name,
        version: Some(info.version).filter(|version| !version.is_empty()),
    });
    let methods = answer.auth_methods.iter();
    let auth_methods = methods
        .map(|method| AuthMethod {
            id: method.id().to_string(),
            name: method.name().to_owned(),
            description: method.description().map(str::to_owned),
        })
        .collect();
    Ok(Hello { agent, capabilities, auth_methods })
}

pub(super) fn authenticate(method_id: &str) -> Value {
    value(v1::AuthenticateRequest::new(method_id.to_owned()))
}

pub(super) fn new_session(cwd: &Path, mcp_servers: &[Value]) -> Value {
    with_servers(value(v1::NewSessionRequest::new(cwd)), mcp_servers)
}

pub(super) fn load_session(id: &str, cwd: &Path, mcp_servers: &[Value]) -> Value {
    with_servers(value(v1::LoadSessionRequest::new(id.to_owned(), cwd)), mcp_servers)
}

pub(super) fn resume_session(id: &str, cwd: &Path, mcp_servers: &[Value]) -> Value {
    with_servers(value(v1::ResumeSessionRequest::new(id.to_owned(), cwd)), mcp_servers)
}

pub(super) fn fork_session(id: &str, cwd: &Path, mcp_servers: &[Value]) -> Value {
    with_servers(value(v1::ForkSessionRequest::new(id.to_owned(), cwd)), mcp_servers)
}

pub(super) fn list_sessions(cwd: Option<PathBuf>, cursor: Option<String>) -> Value {
    value(v1::ListSessionsRequest::new().cwd(cwd).cursor(cursor))
}

pub(super) fn close_session(id: &str) -> Value {
    value(v1::CloseSessionRequest::new(id.to_owned()))
}

pub(super) fn delete_session(id: &str) -> Value {
    value(v1::DeleteSessionRequest::new(id.to_owned()))
}

/// One without an id is none.
pub(super) fn sessions(answer: &Value) -> Option<AgentSessions> {
    let listed = answer.get("sessions")?.as_array()?;
    let sessions = listed.iter().filter_map(|listed| {
        Some(AgentSessionInfo {
            agent_session_id: text_at(listed, "sessionId")?,
            cwd: text_at(listed, "cwd").map(PathBuf::from),
            title: text_at(listed, "title"),
            updated_at: text_at(listed, "updatedAt"),
        })
    });
    Some(AgentSessions { sessions: sessions.collect(), next_cursor: text_at(answer, "nextCursor") })
}

/// As they were given: what a vendor adds to them is none of our business.
fn with_servers(mut request: Value, mcp_servers: &[Value]) -> Value {
    request["mcpServers"] = mcp_servers.to_vec().into();
    request
}

/// Our blocks are spelled as the protocol spells them.
pub(super) fn prompt(session_id: &str, content: &PromptContent) -> Value {
    json!({ "sessionId": session_id, "prompt": content.blocks() })
}

pub(super) fn cancel(session_id: &str) -> Value {
    value(v1::CancelNotification::new(session_id.to_owned()))
}

/// The config option of a category, if the agent names nothing else for it.
pub(super) fn option_of(answer: &Value, category: &str, other: &str) -> Option<String> {
    if answer.get(other).is_some_and(Value::is_object) {
        return None;
    }
    let mut options = answer.get("configOptions")?.as_array()?.iter();
    let found = options.find(|option| text_at(option, "category").as_deref() == Some(category))?;
    text_at(found, "id")
}

pub(super) fn config_option(id: &str, value: &ConfigValue) -> Value {
    match value {
        ConfigValue::Bool(on) => json!({ "configId": id, "type": "boolean", "value": on }),
        ConfigValue::Text(text) => json!({ "configId": id, "value": text }),
    }
}

/// The answer to a permission request; `None`: cancelled.
pub(super) fn permission(option_id: Option<&str>) -> Value {
    let outcome = match option_id {
        Some(id) => {
            let selected = v1::SelectedPermissionOutcome::new(id.to_owned());
            v1::RequestPermissionOutcome::Selected(selected)
        }
        None => v1::RequestPermissionOutcome::Cancelled,
    };
    value(v1::RequestPermissionResponse::new(outcome))
}

/// The ids of the options of a permission request.
pub(super) fn options(params: &Value) -> Vec<String> {
    let options = params.get("options").and_then(Value::as_array).into_iter().flatten();
    options.filter_map(|option| text_at(option, "optionId")).collect()
}

/// A permission request with our spelling of the ids of its options.
pub(super) fn respell_options(question: &mut Value) {
    let options = question.get_mut("options").and_then(Value::as_array_mut).into_iter().flatten();
    for option in options.filter_map(Value::as_object_mut) {
        if let Some(id) = option.remove("optionId") {
            option.insert("option_id".to_owned(), id);
        }
    }
}

/// A piece of a message, if its content is text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    pub(super) text: Option<String>,
    pub(super) message_id: Option<String>,
}

pub(super) fn chunk(update: &Value) -> Chunk {
    let content = update.get("content");
    let is_text = content.and_then(|c| c.get("type")).and_then(Value::as_str) == Some("text");
    let text = content.filter(|_| is_text).and_then(|content| text_at(content, "text"));
    Chunk { text, message_id: text_at(update, "messageId") }
}

/// What a `tool_call` or a `tool_call_update` says.
#[derive(Debug, Default)]
pub(super) struct Tool {
    pub(super) id: String,
    pub(super) name: Option<String>,
    pub(super) title: Option<String>,
    pub(super) kind: Option<String>,
    pub(super) status: Option<String>,
    pub(super) content: Option<Value>,
    pub(super) locations: Option<Value>,
    pub(super) raw_input: Option<Value>,
    pub(super) raw_output: Option<Value>,
}

pub(super) fn tool(update: &Value) -> Option<Tool> {
    let id = text_at(update, "toolCallId")?;
    let some = |key: &str| text_at(update, key).filter(|text| !text.is_empty());
    let part = |key: &str| update.get(key).filter(|part| !part.is_null()).cloned();
    Some(Tool {
        id,
        name: some("name").or_else(|| some("title")).or_else(|| some("kind")),
        title: some("title"),
        kind: some("kind"),
        status: some("status"),
        content: part("content"),
        locations: part("locations"),
        raw_input: part("rawInput"),
        raw_output: part("rawOutput"),
    })
}

/// The terminals that a call's content shows.
pub(super) fn terminals(content: &Value) -> impl Iterator<Item = String> {
    let parts = content.as_array().into_iter().flatten();
    parts
        .filter(|part| part.get("type").and_then(Value::as_str) == Some("terminal"))
        .filter_map(|part| text_at(part, "terminalId"))
}

pub(super) fn text_at(value: &Value, key: &str) -> Option<String> {
    value.get(key).and_then(Value::as_str).map(str::to_owned)
}

/// A request of the agent that a [`crate::ToolHost`] serves.
#[derive(Debug)]
pub(super) enum HostCall {
    Read { path: PathBuf, line: Option<u32>, limit: Option<u32> },
    Write { path: PathBuf, content: String },
    Create(TerminalSpec),
    Output { id: String },
    Wait { id: String },
    Kill { id: String },
    Release { id: String },
}

/// `None`: no such method.
pub(super) fn host_call(name: &str, params: Value) -> Option<Result<HostCall, String>> {
    let call = match name {
        method::READ => parse(params).map(|r: v1::ReadTextFileRequest| HostCall::Read {
            path: r.path,
            line: r.line,
            limit: r.limit,
        }),
        method::WRITE => parse(params).map(|r: v1::WriteTextFileRequest| HostCall::Write {
            path: r.path,
            content: r.content,
        }),
        method::TERMINAL_CREATE => parse(params).map(|r: v1::CreateTerminalRequest| {
            HostCall::Create(TerminalSpec {
                command: r.command,
                args: r.args,
                env: r.env.into_iter().map(|env| (env.name, env.value)).collect(),
                cwd: r.cwd,
                output_bytes_max: r.output_byte_limit,
            })
        }),
        method::TERMINAL_OUTPUT => parse(params)
            .map(|r: v1::TerminalOutputRequest| HostCall::Output { id: r.terminal_id.to_string() }),
        method::TERMINAL_WAIT => parse(params).map(|r: v1::WaitForTerminalExitRequest| {
            HostCall::Wait { id: r.terminal_id.to_string() }
        }),
        method::TERMINAL_KILL => parse(params)
            .map(|r: v1::KillTerminalRequest| HostCall::Kill { id: r.terminal_id.to_string() }),
        method::TERMINAL_RELEASE => parse(params).map(|r: v1::ReleaseTerminalRequest| {
            HostCall::Release { id: r.terminal_id.to_string() }
        }),
        _ => return None,
    };
    Some(call)
}

pub(super) fn read_answer(content: String) -> Value {
    value(v1::ReadTextFileResponse::new(content))
}

pub(super) fn created_answer(id: String) -> Value {
    value(v1::CreateTerminalResponse::new(id))
}

pub(super) fn output_answer(output: TerminalOutput) -> Value {
    let exit = output.exit.map(exit_status);
    value(v1::TerminalOutputResponse::new(output.output, output.truncated).exit_status(exit))
}

pub(super) fn exit_answer(exit: TerminalExit) -> Value {
    value(v1::WaitForTerminalExitResponse::new(exit_status(exit)))
}

fn exit_status(exit: TerminalExit) -> v1::TerminalExitStatus {
    v1::TerminalExitStatus::new()
        .exit_code(exit.exit_code.and_then(|code| u32::try_from(code).ok()))
        .signal(exit.signal.map(|signal| signal.to_string()))
}

pub(super) fn request_line(id: i64, method: &str, params: &Value) -> Vec<u8> {
    line(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
}

pub(super) fn notification_line(method: &str, params: &Value) -> Vec<u8> {
    line(&json!({ "jsonrpc": "2.0", "method": method, "params": params }))
}

pub(super) fn answer_line(id: &Value, result: &Value) -> Vec<u8> {
    line(&json!({ "jsonrpc": "2.0", "id": id, "result": result }))
}

pub(super) fn error_line(id: &Value, code: i64, message: &str) -> Vec<u8> {
    line(&json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } }))
}

fn line(message: &Value) -> Vec<u8> {
    let mut line = message.to_string().into_bytes();
    line.push(b'\n');
    line
}
