//! What a line does when Enter is pressed: a prompt, a command, a shell line, a reason.

use piton_api::agent_view::{AgentChoice, ForkRequest};
use piton_api::client::{Client, Error as ClientError};
use piton_api::queue::{QueueEdit, QueueRemoval, QueuedPrompt};
use piton_api::rewind::{RewindRequest, RewindResult, UndoRequest};
use piton_api::session::{CloseRequest, RunRequest};
use piton_core::PromptContent;
use piton_core::id::{MessageId, SessionId};

use super::requests::Done;
use super::{Chat, Left, Outgoing, Purpose};
use crate::context_choices;
use crate::error::{Error, Result};
use crate::lookup;
use crate::terminal::commands::{self, Line};
use crate::text::one_line;
use crate::ui::Tone;

const KEYS: &[(&str, &str)] = &[
    ("enter", "send; while the agent works, queue"),
    ("alt-enter, shift-enter, \\ enter", "a new line"),
    ("↑ ↓, ctrl-r", "earlier prompts of this folder; search them"),
    ("esc, ctrl-c", "stop the turn; ctrl-c again leaves"),
    ("alt-↑", "edit the last queued prompt"),
    ("ctrl-t", "all of the conversation"),
    ("ctrl-g", "the prompt in $EDITOR"),
    ("@ and !", "name a file; run a shell line in the workspace"),
    ("ctrl-a e b f k u w y, alt-b f d", "move and cut as in a shell; ctrl-z undoes"),
];

const REWIND_OPTIONS: &str = "--dry-run, --force, --cancel, --files and --conversation";

impl Chat<'_> {
    pub(super) fn remember(&mut self, text: &str) {
        if let Err(error) = self.history.add(text) {
            self.message = Some((Tone::Bad, format!("The history is not kept: {error}")));
        }
    }

    /// A line was entered.
    pub(super) fn enter(&mut self) -> Result<()> {
        match std::mem::take(&mut self.purpose) {
            Purpose::Prompt => {}
            Purpose::Rejection { wait_id, option_id } => {
                let why = self.editor.text().trim().to_owned();
                self.restore_prompt();
                let why = Some(why).filter(|why| !why.is_empty());
                self.choose_option(wait_id, &option_id, why);
                return Ok(());
            }
            Purpose::Answer { wait_id } => {
                let text = self.editor.text();
                self.restore_prompt();
                self.answer(wait_id, text.clone().into(), Some(text));
                return Ok(());
            }
            Purpose::QueueEdit { message_id, version, has_attachments } => {
                let text = self.editor.text().trim().to_owned();
                self.restore_prompt();
                self.hold(&text);
                let text = Some(text).filter(|text| has_attachments || !text.is_empty());
                self.change_queued(message_id, version, text);
                return Ok(());
            }
        }
        let text = self.editor.text();
        if text.trim().is_empty() {
            return Ok(());
        }
        if let Some(command) =
            text.strip_prefix('!').map(str::trim).filter(|command| !command.is_empty())
        {
            let command = command.to_owned();
            self.editor.take();
            self.remember(&text);
            self.run_shell(command);
            return Ok(());
        }
        let agent = self.agent_commands();
        let line = text.trim_end().to_owned();
        match commands::parse(&line, &agent) {
            Line::Prompt => {
                self.editor.take();
                self.remember(&text);
                self.send(text.trim().to_owned());
            }
            Line::Ours(name, argument) => {
                self.editor.take();
                self.remember(&text);
                self.command(name, argument)?;
            }
            Line::Unknown { name, meant } => {
                let meant = meant.map_or(String::new(), |meant| format!(" Did you mean /{meant}?"));
                let text = format!(
                    "There is no command /{name}.{meant} Nothing was sent; a blank before it sends it as a prompt."
                );
                self.message = Some((Tone::Attention, text));
            }
        }
        Ok(())
    }

    pub(super) fn send(&mut self, text: String) {
        self.next_key += 1;
        let now =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let key = format!("terminal-{}-{}-{}", std::process::id(), now.as_nanos(), self.next_key);
        self.outbox.push_back(Outgoing { text, key, has_images: true });
        self.send_next();
    }

    fn command(&mut self, name: &str, argument: &str) -> Result<()> {
        let run = RunRequest::default();
        match name {
            "help" => self.help(),
            "quit" => self.left = Some(Left::Quit),
            "transcript" => self.open_transcript()?,
            "model" | "mode" => self.choose(name == "model", argument),
            "status" => self.show_status(),
            "queue" => self.queue_command(argument),
            "resume" => {
                let Some(how) = context_choices::resume_request(argument) else {
                    let text = context_choices::RESUME_WORDS.to_owned();
                    self.message = Some((Tone::Attention, text));
                    return Ok(());
                };
                self.act("The run continues.", |client, session| async move {
                    client.resume_with(&session, &how).await.map(drop)
                });
            }
            "pause" => self.act("", |client, session| async move {
                client.pause(&session, &run).await.map(drop)
            }),
            "cancel" => self.interrupt_turn(),
            "close" => self.act("", |client, session| async move {
                client.close(&session, &CloseRequest::default()).await.map(drop)
            }),
            "new" => self.left = Some(Left::New),
            "attach" if argument.is_empty() => {
                let text = "Name the session: /attach and its id, or the beginning or end of it.";
                self.message = Some((Tone::Attention, text.to_owned()));
            }
            "attach" => {
                let (client, argument, done) =
                    (self.client.clone(), argument.to_owned(), self.done.clone());
                tokio::spawn(async move {
                    let found = match argument.parse() {
                        Ok(name) => lookup::session_on(&client, name).await,
                        Err(error) => Err(Error::from(error)),
                    };
                    // The conversation may have ended meanwhile.
                    let _ = done.send(Done::GoTo(found));
                });
            }
            "fork" => {
                let (client, session, done) =
                    (self.client.clone(), self.session.clone(), self.done.clone());
                tokio::spawn(async move {
                    let forked = client.fork(&session, &ForkRequest::default()).await;
                    let forked = forked.map(|created| created.session_id).map_err(Error::from);
                    let _ = done.send(Done::GoTo(forked));
                });
            }
            "rewind" => self.rewind(argument),
            "checkpoint" => self.list_checkpoints(),
            "undo" => self.undo(argument),
            _ => {}
        }
        Ok(())
    }

    /// `/rewind`, `/rewind 2`, `/rewind ID`, and options behind it.
    fn rewind(&mut self, argument: &str) {
        let mut request = RewindRequest::default();
        for word in argument.split_whitespace() {
            match (word, word.parse()) {
                ("--dry-run", _) => request.dry_run = Some(true),
                ("--force", _) => request.force = Some(true),
                ("--cancel", _) => request.cancel = Some(true),
                ("--files", _) => request.conversation = Some(false),
                ("--conversation", _) => request.files = Some(false),
                (option, _) if option.starts_with('-') => {
                    return self.refuse_option("rewind", option, REWIND_OPTIONS);
                }
                (_, Ok(turns)) => request.turns = Some(turns),
                (named, Err(_)) => request.checkpoint = Some(named.to_owned()),
            }
        }
        self.go_back(|client, session| async move { client.rewind(&session, &request).await });
    }

    /// `/undo`, and options behind it.
    fn undo(&mut self, argument: &str) {
        let mut request = UndoRequest::default();
        for word in argument.split_whitespace() {
            match word {
                "--dry-run" => request.dry_run = Some(true),
                "--force" => request.force = Some(true),
                other => return self.refuse_option("undo", other, "--dry-run and --force"),
            }
        }
        self.go_back(|client, session| async move { client.undo(&session, &request).await });
    }

    fn refuse_option(&mut self, command: &str, option: &str, options: &str) {
        let text = format!("/{command} has no {option}: it has {options}. Nothing was done.");
        self.message = Some((Tone::Attention, text));
    }

    fn list_checkpoints(&self) {
        let (client, session) = (self.client.clone(), self.session.clone());
        self.spawn(async move { Done::Checkpoints(client.turn_checkpoints(&session).await) });
    }

    /// Goes back, says what that came to, and shows the conversation as it is then.
    fn go_back<F>(&self, task: impl FnOnce(Client, SessionId) -> F)
    where
        F: Future<Output = Result<RewindResult, ClientError>> + Send + 'static,
    {
        let task = task(self.client.clone(), self.session.clone());
        self.spawn(async move { Done::Rewound(task.await.map(Box::new)) });
    }

    fn help(&mut self) {
        let commands =
            commands::ALL.iter().map(|command| format!("/{:<11} {}", command.name, command.what));
        let keys = KEYS.iter().map(|(keys, what)| format!("{keys}: {what}"));
        let lines: Vec<String> = commands.chain(keys).collect();
        self.conversation.note(Tone::Plain, lines.join("\n"));
    }

    /// Chooses the agent's model or mode, or shows which there are.
    fn choose(&mut self, is_model: bool, argument: &str) {
        let list = self
            .agent
            .as_ref()
            .and_then(|agent| if is_model { agent.models.as_ref() } else { agent.modes.as_ref() });
        let word = if is_model { "model" } else { "mode" };
        let Some(list) = list else {
            self.conversation
                .note(Tone::Attention, format!("The agent offers no choice of a {word}."));
            return;
        };
        if argument.is_empty() {
            let lines = list.available.iter().map(|one| {
                let sign = if list.current.as_deref() == Some(&one.id) { "●" } else { "○" };
                format!("{sign} {}  {}", one_line(&one.id), one_line(&one.name))
            });
            let lines: Vec<String> = lines.collect();
            self.conversation
                .note(Tone::Plain, format!("{}\n/{word} ID chooses one.", lines.join("\n")));
            return;
        }
        let chosen = Some(argument.to_owned());
        let choice = if is_model {
            AgentChoice { model: chosen, ..AgentChoice::default() }
        } else {
            AgentChoice { mode: chosen, ..AgentChoice::default() }
        };
        let words = format!("The {word} is {argument}.");
        self.act(&words, |client, session| async move {
            client.configure_agent(&session, &choice).await.map(drop)
        });
    }

    fn show_status(&mut self) {
        let (client, session, done) =
            (self.client.clone(), self.session.clone(), self.done.clone());
        tokio::spawn(async move {
            let status = client.session(&session).await;
            let _ = done.send(Done::Status(status.map(Box::new)));
        });
    }

    fn queue_command(&mut self, argument: &str) {
        let (word, rest) = argument.split_once(char::is_whitespace).unwrap_or((argument, ""));
        let named = || rest.trim().parse::<u32>().ok();
        match word {
            "" if self.queue.is_empty() => {
                self.conversation.note(Tone::Quiet, "No prompts are queued.");
            }
            "" => {
                let lines = self.queue.iter().map(|prompt| {
                    let held = if prompt.held { " (held)" } else { "" };
                    format!("{}{held}  {}", prompt.position, one_line(&prompt.text))
                });
                let lines: Vec<String> = lines.collect();
                self.conversation.note(Tone::Plain, lines.join("\n"));
            }
            "release" => self.act("The queue is released.", |client, session| async move {
                client.release_queue(&session).await.map(drop)
            }),
            "edit" => self.edit_queued(named()),
            "remove" => {
                let found =
                    self.queue.iter().find(|prompt| Some(prompt.position) == named()).cloned();
                match found {
                    Some(prompt) => {
                        self.change_queued(prompt.message_id, prompt.version, None);
                    }
                    None => {
                        self.message = Some((
                            Tone::Attention,
                            "Name the queued prompt by its number.".to_owned(),
                        ));
                    }
                }
            }
            other => {
                let text = format!("/queue has no {other}: it has remove N, edit N and release.");
                self.message = Some((Tone::Attention, text));
            }
        }
    }

    /// Takes a queued prompt into the editor; without a number, the last one. The list has no large
    /// prompts: they are read first.
    pub(super) fn edit_queued(&mut self, position: Option<u32>) {
        let found = match position {
            Some(position) => self.queue.iter().find(|prompt| prompt.position == position),
            None => self.queue.last(),
        };
        let Some(prompt) = found.cloned() else {
            self.message = Some((Tone::Quiet, "No such prompt is queued.".to_owned()));
            return;
        };
        if prompt.content.is_some() {
            self.edit_prompt(&prompt);
            return;
        }
        let Ok(message) = prompt.message_id.parse::<MessageId>() else { return };
        let (client, session) = (self.client.clone(), self.session.clone());
        self.spawn(async move {
            let read = client.queued_prompt(&session, &message).await;
            Done::ReadQueued(read.map(Box::new))
        });
    }

    /// Takes a queued prompt into the editor, with all of its text and without the names of its
    /// attachments.
    pub(super) fn edit_prompt(&mut self, prompt: &QueuedPrompt) {
        match self.purpose {
            Purpose::Prompt => self.stashed = self.editor.take(),
            Purpose::QueueEdit { .. } => {}
            // Something was asked while the prompt was read.
            Purpose::Rejection { .. } | Purpose::Answer { .. } => return,
        }
        let content = prompt.content.as_ref();
        self.editor.set(&content.map(PromptContent::written).unwrap_or_default());
        self.purpose = Purpose::QueueEdit {
            message_id: prompt.message_id.clone(),
            version: prompt.version,
            has_attachments: content.is_some_and(|content| content.attachments().next().is_some()),
        };
    }

    /// Another text for a queued prompt; without one the prompt is removed.
    fn change_queued(&mut self, message_id: String, version: u64, text: Option<String>) {
        let (client, session) = (self.client.clone(), self.session.clone());
        self.spawn(async move {
            let result =
                change_queued(&client, &session, &message_id, version, text.as_deref()).await;
            Done::QueueChanged { text, result }
        });
    }
}

async fn change_queued(
    client: &Client,
    session: &SessionId,
    message_id: &str,
    version: u64,
    text: Option<&str>,
) -> Result<(), ClientError> {
    let Ok(message) = message_id.parse::<MessageId>() else { return Ok(()) };
    let Some(text) = text else {
        let removal = QueueRemoval { version: Some(version) };
        return client.remove_queued(session, &message, &removal).await.map(drop);
    };
    let (text, version) = (Some(text.to_owned()), Some(version));
    let edit = QueueEdit { text, version, ..QueueEdit::default() };
    client.edit_queued(session, &message, &edit).await.map(drop)
}
