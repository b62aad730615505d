//! What is typed: answers, commands, prompts.

use piton_api::session::{CloseRequest, ContextChoice, ResumeRequest, RunRequest};
use piton_api::wait::AnswerRequest;
use piton_core::id::WaitId;
use serde_json::json;

use super::{CtrlC, Rejecting, Talk};
use crate::commands::chat::asking::{Meaning, Pressed};
use crate::commands::chat::input::{Typed, Typing};
use crate::commands::chat::slash::{Choosing, Slash};
use crate::error::Result;
use crate::terminal::commands;
use crate::text::one_line;
use crate::ui::Tone;

impl Talk<'_> {
    /// Takes what was typed; true if that means to leave.
    pub(super) async fn typed(&mut self, typed: &Typed) -> Result<bool> {
        let mut bytes = typed.bytes.clone();
        if let Some(asking) = &mut self.asking {
            match asking.press(typed) {
                Pressed::Line { before, is_first } => {
                    bytes.splice(0..0, before);
                    if is_first {
                        let text = "what you type goes to the prompt; Tab gives the keys back to the request";
                        self.remark(text)?;
                    }
                }
                Pressed::Nothing => return Ok(false),
                Pressed::More => {
                    asking.draw(&mut self.screen, self.ui)?;
                    return Ok(false);
                }
                Pressed::Meant(meaning) => return self.request_key(meaning).await.map(|()| false),
            }
        }
        if self.last_ctrl_c == CtrlC::Cleared {
            self.last_ctrl_c = CtrlC::None;
        }
        let typing = if self.keys.are_typed() {
            self.lines.push_keys(&bytes)
        } else {
            self.lines.push_script(&bytes)
        };
        for one in typing {
            let line = match one {
                Typing::Echo(text) => {
                    // Beside a request and while an answer streams it is shown with the next prompt.
                    if self.screen.has_prompt() {
                        self.ui.text(&text)?;
                    }
                    continue;
                }
                Typing::Erase(columns) => {
                    if self.screen.has_prompt() {
                        self.ui.raw("\x08 \x08".repeat(columns).as_bytes())?;
                    }
                    continue;
                }
                Typing::LeftOut(bytes) => {
                    self.remark(&format!(
                        "the paste was too long: its last {bytes} bytes are left out"
                    ))?;
                    continue;
                }
                Typing::End => return Ok(true),
                Typing::Line(line) => line,
            };
            let at_prompt = self.screen.entered();
            if let Some(Rejecting { wait, option_id, draft }) = self.rejecting.take() {
                let message = Some(line).filter(|line| !line.is_empty());
                let answer = AnswerRequest { answer: json!({"option_id": option_id}), message };
                let answered = self.client.answer(&wait, &answer).await;
                self.show_refusal(answered.map(drop).map_err(Into::into))?;
                self.lines.put_back(draft);
                self.ask_next()?;
                continue;
            }
            if let Some(choosing) = Choosing::of(&line) {
                let done = self.choose(choosing).await;
                self.show_refusal(done)?;
                continue;
            }
            let done = match Slash::of(&line) {
                None if line.is_empty() => Ok(()),
                Some(Slash::Quit) => return Ok(true),
                Some(Slash::Help) => self.help(),
                Some(action) => self.act(action).await,
                None => match self.mistyped(&line).await {
                    Some(words) => self.remark(&words),
                    None => self.tell(line.into(), at_prompt).await,
                },
            };
            self.show_refusal(done)?;
        }
        Ok(false)
    }

    /// Answers the question that is on the screen.
    pub(super) async fn request_key(&mut self, meaning: Meaning) -> Result<()> {
        let Some(asking) = self.asking.take() else { return Ok(()) };
        let question = asking.question;
        let wait: WaitId = question.wait_id.parse()?;
        match meaning {
            Meaning::RejectAndSay => {
                let option_id = question.rejection().unwrap_or_default().to_owned();
                let draft = self.lines.take();
                self.rejecting = Some(Rejecting { wait, option_id, draft });
                self.remark("say why, and press Enter")?;
                self.screen.prompt(self.ui, "")
            }
            Meaning::Option(at) => {
                let answer = json!({"option_id": question.options[at].0});
                let answer = AnswerRequest { answer, message: None };
                let answered = self.client.answer(&wait, &answer).await;
                self.show_refusal(answered.map(drop).map_err(Into::into))?;
                self.ask_next()
            }
        }
    }

    /// What is wrong with a line that looks like a command and is none; it goes to no agent.
    async fn mistyped(&self, line: &str) -> Option<String> {
        if !line.starts_with('/') {
            return None;
        }
        let agent = self.client.agent(&self.session).await.map(|agent| agent.commands);
        // Without an answer nothing is known of the agent's commands: the agent itself says so then.
        let agent: Vec<(String, String)> = agent
            .ok()?
            .into_iter()
            .map(|one| (one.name.trim_start_matches('/').to_owned(), one.description))
            .collect();
        match commands::parse(line, &agent) {
            commands::Line::Prompt => None,
            commands::Line::Ours(name, _) => {
                Some(format!("/{name} is not available with --plain; /help lists what is"))
            }
            commands::Line::Unknown { name, meant } => {
                let meant = meant.filter(|meant| {
                    Slash::of(&format!("/{meant}")).is_some()
                        || agent.iter().any(|(a, _)| a == meant)
                });
                let meant =
                    meant.map_or(String::new(), |meant| format!("; did you mean /{meant}?"));
                Some(format!("there is no command /{}{meant}", one_line(name)))
            }
        }
    }

    pub(super) async fn act(&self, action: Slash) -> Result<()> {
        let (client, session, run) = (&self.client, &self.session, RunRequest::default());
        let done = match action {
            Slash::Resume | Slash::ResumeWithHistory | Slash::ResumeFresh => {
                let context = match action {
                    Slash::ResumeWithHistory => Some(ContextChoice::Injected),
                    Slash::ResumeFresh => Some(ContextChoice::None),
                    _ => None,
                };
                let how = ResumeRequest { continue_run: Some(true), context };
                client.resume_with(session, &how).await
            }
            Slash::Pause => client.pause(session, &run).await,
            Slash::Cancel => client.cancel(session, &run).await,
            Slash::Close => client.close(session, &CloseRequest::default()).await,
            Slash::Release => {
                return client.release_queue(session).await.map(drop).map_err(Into::into);
            }
            Slash::Help | Slash::Quit => return Ok(()),
        };
        done.map(drop).map_err(Into::into)
    }

    /// Chooses the agent's mode or model, or shows which there are.
    async fn choose(&mut self, choosing: Choosing) -> Result<()> {
        if let Choosing::Choose(choice) = choosing {
            self.client.configure_agent(&self.session, &choice).await?;
            return Ok(());
        }
        let view = self.client.agent(&self.session).await?;
        for (name, list) in [("Mode", view.modes), ("Model", view.models)] {
            let Some(list) = list else { continue };
            let ids: Vec<&str> = list.available.iter().map(|one| one.id.as_str()).collect();
            let current = list.current.as_deref().unwrap_or("not known");
            let line = one_line(&format!("{name}: {current} (of {})", ids.join(", ")));
            self.remark(&line)?;
        }
        Ok(())
    }

    fn help(&mut self) -> Result<()> {
        if self.ui.json {
            return Ok(());
        }
        Slash::help().try_for_each(|line| self.screen.line(self.ui, Tone::Plain, &line))
    }
}
