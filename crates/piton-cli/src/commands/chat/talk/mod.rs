//! One conversation: records to the screen, what is typed to the agent, and a way out.

mod records;
mod typing;

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use piton_api::client::{self, Client, Records};
use piton_api::queue::PromptRequest;
use piton_api::record::FlatRecord;
use piton_core::id::{SessionId, WaitId};
use piton_core::{PromptContent, Seq};
use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::asking::Asking;
use super::input::{self, Keys, Lines, Typed};
use super::outcome::{self, Outcome};
use super::screen::{Question, Screen};
use super::slash::Slash;
use crate::background;
use crate::context::Context;
use crate::error::{Exit, Result};
use crate::server;
use crate::text::{one_line, shortened};
use crate::ui::{Tone, Ui};

/// How often a server that is away is looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// How long a server may be away before this gives up.
const AWAY_MAX: Duration = Duration::from_mins(5);
/// Of a queued prompt, what is said back.
const QUEUED_CHARS_MAX: usize = 60;

/// How long to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    Left,
    TurnEnds,
}

#[derive(Debug)]
pub(super) struct Talk<'a> {
    ui: &'a mut Ui,
    cx: &'a Context,
    client: Client,
    session: SessionId,
    until: Until,
    after: Seq,
    /// The last record that there was when this began.
    history: Seq,
    screen: Screen,
    keys: Keys,
    /// The question that is on the screen.
    asking: Option<Asking>,
    /// Questions that are asked when it is answered.
    questions: VecDeque<Question>,
    /// How long a question is on the screen before keys count.
    key_delay: Duration,
    /// The wait that the next line rejects, by which option, and what was being typed before.
    rejecting: Option<Rejecting>,
    /// Runs that were begun here or elsewhere, and have not ended. By id: the end of an older one, which
    /// the history tells, is not the end of the one that was just begun.
    open_runs: BTreeSet<String>,
    /// How the latest run ended, and the record that says so.
    last_end: Option<(Outcome, FlatRecord)>,
    /// The session is new, and its agent is being started: nothing can be said to it yet.
    awaits_agent: bool,
    /// What is said to it as soon as it is ready.
    first_prompt: Option<PromptContent>,
    /// The run that was begun from here.
    own_run: Option<String>,
    last_ctrl_c: CtrlC,
    lines: Lines,
    /// Messages that stand on the screen as they were typed.
    typed_messages: BTreeSet<String>,
    /// Messages of this terminal that the session has queued. They are the session's: leaving loses
    /// none of them.
    queued: BTreeSet<String>,
    /// The queue is held until a user releases it.
    is_held: bool,
    /// The answer, where it is printed at the end.
    collected: Option<String>,
}

/// What the last Ctrl-C did: a second one leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CtrlC {
    /// Nothing, or something was said since.
    None,
    /// It stopped the turn that still runs.
    Stopped,
    /// It cleared the line, and nothing was typed since.
    Cleared,
}

/// A request that is rejected with a message.
#[derive(Debug)]
struct Rejecting {
    wait: WaitId,
    option_id: String,
    draft: Vec<u8>,
}

/// What happened.
enum Event {
    Record(client::Result<FlatRecord>),
    Typed(Option<Typed>),
    KeysDue,
    CtrlC,
}

impl<'a> Talk<'a> {
    pub(super) fn new(
        ui: &'a mut Ui,
        cx: &'a Context,
        client: Client,
        session: SessionId,
        until: Until,
    ) -> Self {
        Self {
            ui,
            cx,
            client,
            session,
            until,
            after: 0,
            history: 0,
            screen: Screen::default(),
            keys: Keys::new(),
            asking: None,
            questions: VecDeque::new(),
            key_delay: Duration::ZERO,
            rejecting: None,
            open_runs: BTreeSet::new(),
            last_end: None,
            awaits_agent: false,
            first_prompt: None,
            own_run: None,
            last_ctrl_c: CtrlC::None,
            lines: Lines::default(),
            typed_messages: BTreeSet::new(),
            queued: BTreeSet::new(),
            is_held: false,
            collected: None,
        }
    }

    /// The session was created just now, and its agent is being started.
    pub(super) fn with_new_agent(self, first_prompt: Option<PromptContent>) -> Self {
        Self { awaits_agent: true, first_prompt, ..self }
    }

    /// The session was there before, and all of it is shown: this is said to it first.
    pub(super) fn with_first_prompt(self, prompt: PromptContent) -> Self {
        Self { first_prompt: Some(prompt), ..self }
    }

    /// The session was there before: only what follows this record counts.
    pub(super) fn with_prompt(self, prompt: PromptContent, after: Seq) -> Self {
        Self { first_prompt: Some(prompt), after, ..self }
    }

    /// The answer is printed at the end, as one JSON object.
    pub(super) fn with_one_object(self, is_wanted: bool) -> Self {
        Self { collected: is_wanted.then(String::new), ..self }
    }

    pub(super) fn with_key_delay(mut self, key_delay: Duration) -> Self {
        self.key_delay = key_delay;
        self
    }

    /// Says something to the agent.
    async fn say(&mut self, prompt: PromptContent) -> Result<()> {
        self.tell(prompt, false).await
    }

    /// While a run is open the session queues it.
    async fn tell(&mut self, prompt: PromptContent, is_on_screen: bool) -> Result<()> {
        let text = shortened(&one_line(&prompt.text()), QUEUED_CHARS_MAX);
        let request = PromptRequest::queued(prompt);
        let accepted = self.client.prompt(&self.session, &request).await?;
        self.own_run = Some(accepted.run_id);
        if accepted.queued {
            self.queued.insert(accepted.message_id);
            let position = accepted.position.unwrap_or_default();
            return self.remark(&format!("queued at position {position}: {text}"));
        }
        if is_on_screen {
            self.typed_messages.insert(accepted.message_id);
        }
        // It runs, though its records are still on their way here. Ctrl-C is counted from zero.
        self.last_ctrl_c = CtrlC::None;
        self.open_runs.extend(self.own_run.clone());
        self.last_end = None;
        Ok(())
    }

    pub(super) async fn run(&mut self) -> Result<Exit> {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut typed = None;
        let mut records = self.client.records_from(&self.session, self.after);
        records.connect().await?;
        self.history = self.client.session(&self.session).await?.summary.last_seq;
        if self.until == Until::Left {
            self.keys.begin();
        }
        self.hint()?;
        if !self.awaits_agent
            && let Some(prompt) = self.first_prompt.take()
        {
            self.say(prompt).await?;
        }
        let mut ended = false;
        loop {
            // A script that prints one answer types nothing.
            if self.until == Until::Left {
                // What is typed or piped in is for the session as it is now.
                let is_current = !self.awaits_agent && self.after >= self.history;
                if typed.is_none() && !ended && is_current {
                    typed = Some(input::typed());
                }
                self.prompt(typed.as_ref())?;
            }
            self.ui.flush()?;
            if ended && self.is_done() {
                return self.end_script();
            }
            // A script that was read to its end cannot answer; what was asked long ago may be answered.
            if ended && self.asking.is_some() && self.after >= self.history {
                self.screen.end_line(self.ui)?;
                let question = self.asking.as_ref().map(|asking| &asking.question);
                return Err(outcome::waiting(self.session.as_str(), question));
            }
            let keys_due = self.asking.as_ref().and_then(|asking| asking.due_at(self.key_delay));
            let event = tokio::select! {
                record = records.try_next() => Event::Record(record),
                bytes = next(&mut typed) => Event::Typed(bytes),
                () = until(keys_due) => Event::KeysDue,
                _ = interrupt.recv() => Event::CtrlC,
            };
            match event {
                Event::Record(Ok(record)) => {
                    if let Some(exit) = self.record(&record).await? {
                        return Ok(exit);
                    }
                    if !self.awaits_agent
                        && let Some(prompt) = self.first_prompt.take()
                    {
                        self.say(prompt).await?;
                    }
                }
                Event::Record(Err(error)) if error.is_transient() => {
                    self.reconnect(&mut records).await?;
                }
                Event::Record(Err(error)) => return Err(error.into()),
                Event::Typed(Some(bytes)) => {
                    if self.typed(&bytes).await? {
                        return self.leave();
                    }
                }
                // The end of the input: what was asked is still answered when it is a script's.
                Event::Typed(None) if self.keys.are_typed() => return self.leave(),
                Event::Typed(None) => (typed, ended) = (None, true),
                Event::KeysDue => self.arm().await?,
                Event::CtrlC => {
                    if self.ctrl_c().await? {
                        return self.leave();
                    }
                }
            }
        }
    }

    /// Shows that the user may type, when the user may. A line that was typed before is taken first: the
    /// terminal has shown it elsewhere, and what follows must not stand behind the prompt.
    fn prompt(&mut self, typed: Option<&mpsc::Receiver<Typed>>) -> Result<()> {
        let is_quiet = self.is_done() && self.asking.is_none() && self.after >= self.history;
        if is_quiet
            && self.keys.are_typed()
            && Ui::is_screen()
            && !self.ui.json
            && !self.screen.has_prompt()
        {
            self.keys.settle();
            if typed.is_some_and(|typed| !typed.is_empty()) {
                return Ok(());
            }
            let draft = self.lines.draft();
            self.screen.prompt(self.ui, &draft)?;
        }
        Ok(())
    }

    /// Nothing is left to be said or heard.
    fn is_done(&self) -> bool {
        let waits = !self.queued.is_empty() && !self.is_held;
        !self.awaits_agent && self.open_runs.is_empty() && !waits
    }

    fn hint(&mut self) -> Result<()> {
        if self.until == Until::Left && self.keys.are_typed() && !self.ui.json {
            let text = format!("Session {}. Ctrl-C stops a turn, twice leaves.", self.session);
            self.screen.line(self.ui, Tone::Quiet, &text)?;
        }
        Ok(())
    }

    /// Something that is no part of the conversation: what a script reads stays free of it.
    fn remark(&mut self, text: &str) -> Result<()> {
        match self.until {
            _ if self.ui.json => Ok(()),
            Until::Left => self.screen.line(self.ui, Tone::Quiet, &format!("-- {text}")),
            Until::TurnEnds => self.ui.note(text),
        }
    }

    /// Puts the next question on the screen, if none is there. What is asked may be answered already
    /// in what is still to be read.
    fn ask_next(&mut self) -> Result<()> {
        if self.asking.is_some() || self.rejecting.is_some() || self.after < self.history {
            return Ok(());
        }
        let Some(question) = self.questions.pop_front() else { return Ok(()) };
        self.draw_asking(Asking::new(question))
    }

    /// Puts a question on the screen that was there and asks for more now.
    fn ask_again(&mut self, asking: Asking) -> Result<()> {
        self.draw_asking(asking.again())
    }

    fn draw_asking(&mut self, mut asking: Asking) -> Result<()> {
        self.keys.settle();
        if !self.ui.json {
            asking.draw(&mut self.screen, self.ui)?;
        }
        self.asking = Some(asking);
        Ok(())
    }

    /// The question was there long enough to be read. What was typed until now does not count.
    async fn arm(&mut self) -> Result<()> {
        let Some(asking) = &mut self.asking else { return Ok(()) };
        if let Some(meaning) = asking.arm() {
            return self.request_key(meaning).await;
        }
        let keys = asking.keys(&self.ui.call);
        self.remark(&keys)
    }

    /// Shows what the server refused, and continues the conversation.
    fn show_refusal(&mut self, done: Result<()>) -> Result<()> {
        let Err(error) = done else { return Ok(()) };
        self.screen.end_line(self.ui)?;
        self.ui.report(&error);
        Ok(())
    }

    /// Stops the turn; true if it is the second time.
    async fn ctrl_c(&mut self) -> Result<bool> {
        if self.open_runs.is_empty() {
            let is_prompt = self.until == Until::Left && self.keys.are_typed();
            if !is_prompt || self.awaits_agent || self.last_ctrl_c == CtrlC::Cleared {
                return Ok(true);
            }
            self.last_ctrl_c = CtrlC::Cleared;
            let is_empty = self.lines.take().is_empty();
            let text =
                if is_empty { "Ctrl-C again leaves" } else { "cleared; Ctrl-C again leaves" };
            self.remark(text)?;
            return Ok(false);
        }
        if std::mem::replace(&mut self.last_ctrl_c, CtrlC::Stopped) == CtrlC::Stopped {
            return Ok(true);
        }
        self.remark("stopping the turn; Ctrl-C again leaves, and the agent stays")?;
        self.ui.flush()?;
        let done = self.act(Slash::Cancel).await;
        self.show_refusal(done)?;
        Ok(false)
    }

    fn leave(&mut self) -> Result<Exit> {
        let (call, session) = (&self.ui.call, &self.session);
        let text = format!("The agent stays. Come back with: {call} attach {session}");
        if self.until == Until::TurnEnds {
            // Only Ctrl-C leaves a turn that has not ended.
            self.screen.end_line(self.ui)?;
            if self.ui.json {
                let run = self.own_run.as_deref();
                let stopped = Outcome::Stopped.to_json(self.session.as_str(), run, &Value::Null);
                self.ui.json_line(&stopped)?;
            }
            self.remark(&text)?;
            return Ok(Exit::CTRL_C);
        }
        if self.keys.are_typed() && !self.ui.json {
            self.screen.line(self.ui, Tone::Quiet, &text)?;
        }
        Ok(Exit::Good)
    }

    /// Connects again after the server went away; the agent keeps running meanwhile. Restarts a
    /// server that ran in the background, and waits for one that the user started.
    async fn reconnect(&mut self, records: &mut Records) -> Result<()> {
        let begin = Instant::now();
        let mut said = false;
        loop {
            match records.connect().await {
                Ok(()) => return Ok(()),
                Err(error) if !error.is_transient() || begin.elapsed() > AWAY_MAX => {
                    return Err(error.into());
                }
                Err(_) => {}
            }
            if server::was_background_killed(&self.cx.settings.data.value) {
                self.remark(
                    "the server was killed; the agent keeps running, and a new server is started",
                )?;
                self.ui.flush()?;
                background::ensure(self.cx).await?;
                continue;
            }
            if !said && begin.elapsed() > Duration::from_secs(1) && !self.ui.json {
                said = true;
                match self.until {
                    Until::Left => self.screen.away(self.ui)?,
                    Until::TurnEnds => {
                        self.remark("the server is away; the agent keeps running")?;
                    }
                }
                self.ui.flush()?;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

async fn next(typed: &mut Option<mpsc::Receiver<Typed>>) -> Option<Typed> {
    match typed {
        Some(typed) => typed.recv().await,
        None => std::future::pending().await,
    }
}
