//! What the agent does beside talking.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use tokio::process::Command;

use super::memory::unique;
use super::script::Directive;
use super::turn::{Turn, now_us};

/// How a call ended: what it shows, and what it says.
struct Done {
    is_ok: bool,
    content: Value,
    raw_output: Value,
    said: Option<String>,
}

impl Done {
    fn text(is_ok: bool, text: &str) -> Self {
        let content = json!([{ "type": "content", "content": { "type": "text", "text": text } }]);
        Self { is_ok, content, raw_output: Value::Null, said: None }
    }

    fn says(mut self, said: String) -> Self {
        self.said = Some(said);
        self
    }
}

impl Turn<'_> {
    pub(super) async fn tool(&mut self, step: Directive) {
        let call_id = format!("call-{}", unique());
        let (name, kind, title, input) = describe(&step);
        let call = json!({
            "sessionUpdate": "tool_call",
            "toolCallId": call_id,
            "title": title,
            "name": name,
            "kind": kind,
            "status": "pending",
            "rawInput": input,
        });
        self.update(call).await;
        let is_question =
            matches!(step, Directive::Ask(_) | Directive::AskRun(_) | Directive::AskWrite { .. });
        if !is_question {
            self.progress(&call_id, json!({ "status": "in_progress" })).await;
        }
        let done = self.carry_out(&call_id, step).await;
        let status = if done.is_ok { "completed" } else { "failed" };
        let mut end = json!({ "status": status, "content": done.content });
        if !done.raw_output.is_null() {
            end["rawOutput"] = done.raw_output;
        }
        self.progress(&call_id, end).await;
        if let Some(said) = done.said {
            self.say_alone(&said).await;
        }
    }

    async fn progress(&mut self, call_id: &str, mut update: Value) {
        update["sessionUpdate"] = "tool_call_update".into();
        update["toolCallId"] = call_id.into();
        self.update(update).await;
    }

    async fn carry_out(&mut self, call_id: &str, step: Directive) -> Done {
        match step {
            Directive::Shell(command) if self.agent.has_terminals.load(Ordering::Relaxed) => {
                let done = self.in_terminal(call_id, &command).await;
                done.unwrap_or_else(|error| refused(&error))
            }
            Directive::Run(command) | Directive::Shell(command) => self.by_itself(&command).await,
            Directive::Escape(command) => {
                // The shell in between exits, so the child no longer descends from this process.
                let script = "setsid sh -c \"$1\" </dev/null >/dev/null 2>&1 &";
                let status = Command::new("sh")
                    .args(["-c", script, "sh", &command])
                    .current_dir(&self.session.cwd)
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .status()
                    .await;
                Done::text(status.is_ok_and(|status| status.success()), "started")
            }
            Directive::Read(path) if self.agent.out.is_alone() => {
                match std::fs::read_to_string(self.path(&path)) {
                    Ok(text) => Done::text(true, &text).says(text),
                    Err(error) => refused(&json!({ "message": error.to_string() })),
                }
            }
            Directive::Write { path, text } if self.agent.out.is_alone() => {
                match std::fs::write(self.path(&path), text) {
                    Ok(()) => Done::text(true, "written"),
                    Err(error) => refused(&json!({ "message": error.to_string() })),
                }
            }
            Directive::Read(path) => {
                let params = json!({ "sessionId": self.id, "path": self.path(&path) });
                match self.agent.out.ask("fs/read_text_file", params).await {
                    Ok(answer) => {
                        let text = answer["content"].as_str().unwrap_or_default().to_owned();
                        Done::text(true, &text).says(text)
                    }
                    Err(error) => refused(&error),
                }
            }
            Directive::Write { path, text } => {
                let path = self.path(&path);
                let params = json!({ "sessionId": self.id, "path": path, "content": text });
                match self.agent.out.ask("fs/write_text_file", params).await {
                    Ok(_) => {
                        let diff = json!([{ "type": "diff", "path": path, "newText": text }]);
                        Done { content: diff, ..Done::text(true, "") }
                    }
                    Err(error) => refused(&error),
                }
            }
            Directive::Ask(question) => self.ask(call_id, &question).await,
            Directive::AskRun(command) => {
                // As some agents do it: the call says nothing at first, then its arguments come, and
                // the question is the tool's name.
                self.progress(call_id, json!({ "rawInput": { "command": command } })).await;
                let done = self.ask(call_id, "run").await;
                if done.is_ok { self.by_itself(&command).await } else { done }
            }
            Directive::AskWrite { path, text } => {
                let whole = self.path(&path);
                let old = std::fs::read_to_string(&whole).ok();
                let diff =
                    json!({ "type": "diff", "path": whole, "oldText": old, "newText": text });
                let update = json!({ "rawInput": { "path": whole, "content": text },
                    "content": [diff], "locations": [{ "path": whole }] });
                self.progress(call_id, update).await;
                let done = self.ask(call_id, &whole.to_string_lossy()).await;
                if !done.is_ok {
                    return done;
                }
                let params = json!({ "sessionId": self.id, "path": whole, "content": text });
                match self.agent.out.ask("fs/write_text_file", params).await {
                    Ok(_) => Done::text(true, "written"),
                    Err(error) => refused(&error),
                }
            }
            _ => Done::text(true, "done"),
        }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.session.cwd.join(path)
    }

    async fn ask(&self, call_id: &str, question: &str) -> Done {
        let option = |id: &str, name: &str| json!({ "optionId": id, "name": name, "kind": id });
        let params = json!({
            "sessionId": self.id,
            "toolCall": { "toolCallId": call_id, "title": question, "status": "pending" },
            "options": [option("allow_once", "Allow"), option("reject_once", "Reject")],
        });
        let answer = self.agent.out.ask("session/request_permission", params).await;
        let outcome = answer.unwrap_or_default();
        let chosen = outcome.pointer("/outcome/optionId").and_then(Value::as_str);
        match chosen {
            Some(chosen) => {
                Done::text(chosen == "allow_once", chosen).says(format!("chosen: {chosen}"))
            }
            None => Done::text(false, "cancelled").says("chosen: nothing".to_owned()),
        }
    }

    async fn by_itself(&self, command: &str) -> Done {
        let run = Command::new("sh")
            .args(["-c", command])
            .current_dir(&self.session.cwd)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await;
        match run {
            Ok(run) => {
                let output =
                    String::from_utf8_lossy(&[run.stdout, run.stderr].concat()).into_owned();
                let raw_output = json!({ "exit_code": run.status.code(), "output": output });
                Done { raw_output, ..Done::text(run.status.success(), &output) }
            }
            Err(error) => Done::text(false, &error.to_string()),
        }
    }

    async fn in_terminal(&mut self, call_id: &str, command: &str) -> Result<Done, Value> {
        let out = std::sync::Arc::clone(&self.agent.out);
        let session = self.id.clone();
        let params = json!({ "sessionId": session, "command": "sh", "args": ["-c", command],
            "cwd": self.session.cwd });
        let made = out.ask("terminal/create", params).await?;
        let terminal = made["terminalId"].clone();
        let content = json!([{ "type": "terminal", "terminalId": terminal }]);
        self.progress(call_id, json!({ "content": content })).await;
        let params = json!({ "sessionId": session, "terminalId": terminal });
        let exit = out.ask("terminal/wait_for_exit", params.clone()).await?;
        out.ask("terminal/output", params.clone()).await?;
        out.ask("terminal/release", params).await?;
        let is_ok = exit["exitCode"].as_i64() == Some(0);
        Ok(Done { is_ok, content, raw_output: exit, said: None })
    }
}

fn refused(error: &Value) -> Done {
    let message = error["message"].as_str().unwrap_or("refused").to_owned();
    Done::text(false, &message).says(format!("failed: {message}"))
}

/// Name, kind, title and arguments of a call.
fn describe(step: &Directive) -> (String, &'static str, String, Value) {
    if *step == Directive::ToolNow {
        let name = now_us().to_string();
        return (name.clone(), "other", name, json!({}));
    }
    let (name, kind, title, input) = match step {
        Directive::Tool(name) => (name.as_str(), "other", name.clone(), json!({})),
        Directive::Shell(command) => {
            ("shell", "execute", command.clone(), json!({ "command": command }))
        }
        Directive::Run(command) => {
            ("run", "execute", command.clone(), json!({ "command": command }))
        }
        Directive::Escape(command) => {
            ("escape", "execute", command.clone(), json!({ "command": command }))
        }
        Directive::Read(path) => ("read", "read", path.clone(), json!({ "path": path })),
        Directive::Write { path, text } => {
            ("write", "edit", path.clone(), json!({ "path": path, "text": text }))
        }
        Directive::Ask(question) => {
            ("ask", "other", question.clone(), json!({ "question": question }))
        }
        Directive::AskRun(_) => ("run", "execute", "run".to_owned(), json!({})),
        Directive::AskWrite { .. } => ("write", "edit", "write".to_owned(), json!({})),
        _ => ("other", "other", "other".to_owned(), json!({})),
    };
    (name.to_owned(), kind, title, input)
}
