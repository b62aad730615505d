//! `piton sessions show`: all that matters about one session on one screen.

use piton_api::SessionStatus;
use piton_api::agent_view::AgentView;
use piton_api::enums::Context as Known;
use piton_api::record::Message;
use piton_api::server::ServerInfo;
use piton_api::status::ContinueChoice;
use piton_core::agent_view::AgentView as Features;
use piton_core::conversation::Item;
use piton_core::event::{Seq, ToolStatus};
use piton_core::id::{CallId, SessionId};
use piton_core::resume::Strategy;
use piton_core::state::{Info, OpenCall};
use piton_core::status::{Name, Status};
use piton_core::transcript::{Item as Said, Outcome, Text};
use piton_core::worktree::{Worktree, WorktreePlan};
use piton_core::{Code, PromptContent, Reason, State};
use piton_runtime::View;
use serde::Serialize;
use serde_json::{Value, json};

use super::show_agent;
use crate::agents;
use crate::call::Call;
use crate::context::Context;
use crate::error::{Error, Exit, Result};
use crate::server;
use crate::show::{self, OpenWait};
use crate::text::{one_line, padded, shortened, width, wrapped};
use crate::times;
use crate::ui::{Tone, Ui};

const EXAMPLES: &str = "\
Examples:
  piton sessions show SESSION
  piton sessions show SESSION --messages 20
  piton sessions show SESSION --json | jq .status

JSON: one object, with the fields of the API's GET /sessions/{session_id} (session_id, title,
status, state, reason, sentence, run, waits, executor, context, live, and more; live is null
without a server), and worktree (null without one) {path, repository, branch, base, base_commit},
lease {owner, alive, pid, program, epoch}, calls {call_id, name, seq, outcome}, messages as the
API's, advice {what, command}.";

/// Queued prompts that are shown; `sessions queue list` has all of them.
const QUEUED_SHOWN: usize = 3;
/// Records that are looked through for the last messages.
const WINDOW: Seq = 1_000;

/// Show a session: status and reason, run, waits, owner, last messages, next steps
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The session: its id, the beginning or end of it, or @last
    session: String,
    /// The number of recent messages and tool calls to show
    #[arg(long, short = 'm', default_value_t = 5, value_name = "COUNT")]
    messages: usize,
}

/// Something to do, and the command that does it, if there is one.
#[derive(Serialize)]
struct Advice {
    what: &'static str,
    command: Option<String>,
}

/// What is shown.
struct Session<'a> {
    cx: &'a Context,
    view: &'a View,
    id: SessionId,
    info: Info,
    state: State,
    status: Status,
    waits: Vec<OpenWait>,
    /// The first of the queued prompts, each on one line.
    queued: Vec<String>,
    items: Vec<Item>,
    server: Option<ServerInfo>,
    /// As the API spells it; with what the server knows of the agent, which no log does.
    spelled: SessionStatus,
    features: Features,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    status: &'a SessionStatus,
    worktree: Option<&'a WorktreePlan>,
    lease: Value,
    calls: Vec<Value>,
    messages: Vec<Message>,
    advice: Vec<Advice>,
    /// What the agent offers and said about itself; left out if it said nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_view: Option<AgentView>,
}

/// What the server says of the agent.
fn agent_sentence(status: &SessionStatus) -> String {
    let runtime = status.summary.runtime.as_deref().unwrap_or("none");
    let executor = status.summary.executor_status.as_ref();
    let executor = executor.map_or("none", |status| status.as_str());
    let is_connected = status.live.as_ref().is_some_and(|live| live.is_connected);
    match (status.is_agent_running, is_connected) {
        (true, true) => format!("runs ({runtime}, {executor})"),
        (true, false) => format!("runs, and its executor does not respond ({runtime}, {executor})"),
        (false, _) => "does not run".to_owned(),
    }
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    let (view, id) = cx.view_of(&args.session).await?;
    let state = view.state(&id).await?;
    let Some(info) = state.info.clone() else {
        return Err(Error::new(Code::SessionNotFound, format!("{id} is not a session's log"))
            .with_hint(format!("`piton sessions log {id}` shows its records.")));
    };
    let status = view.status(&state.facts);
    let mut waits = Vec::new();
    if let Some(run) = &state.facts.run {
        for (wait_id, wait) in &run.waits {
            waits.push(OpenWait::read(&view, &id, run, wait_id, wait).await?);
        }
    }
    let mut queued = Vec::new();
    for prompt in state.queue.iter().take(QUEUED_SHOWN) {
        queued.push(queued_text(&view, &id, prompt.seq).await?);
    }
    let features = view.agent_view(&id, &state).await?;
    let after = state.last_seq.saturating_sub(WINDOW);
    let mut items = view.conversation_after(&id, &state, after).await?;
    items.retain(|item| !matches!(item, Item::Notice(_)));
    items.drain(..items.len().saturating_sub(args.messages));
    let data = &cx.settings.data.value;
    let server = server::find(data);
    let live = match server::connect(data) {
        Some(client) => match client.session(&id).await {
            Ok(status) => Some(status),
            // The log can be read without it.
            Err(error) => {
                ui.warn(&format!("Nothing is known of the agent: {error}"))?;
                None
            }
        },
        None => None,
    };
    let spelled = if let Some(status) = live {
        status
    } else {
        let abilities = agents::abilities(&cx.settings, info.agent_profile_id.as_deref())?;
        SessionStatus::new(&view.overview(&id, state.clone(), abilities).await?, None)
    };
    let session = Session {
        cx,
        view: &view,
        id,
        info,
        state,
        status,
        waits,
        queued,
        items,
        server,
        spelled,
        features,
    };
    if ui.json {
        ui.json_line(&session.shown(&ui.call))?;
    } else {
        session.print(ui)?;
    }
    Ok(Exit::Good)
}

impl Session<'_> {
    /// The worktree that it works in.
    fn worktree(&self) -> Option<&Worktree> {
        self.state.facts.worktree.as_ref().filter(|worktree| worktree.is_prepared())
    }

    fn is_live(&self) -> bool {
        matches!(self.status.name, Name::Running | Name::Waiting)
    }

    /// Whether a living process owns it that is not the data folder's server. The server carries
    /// out commands; another process does not.
    fn is_owned_elsewhere(&self) -> bool {
        let owner = self.state.lease.owner.as_ref().filter(|owner| self.view.is_alive(owner));
        let server = self.server.as_ref().map(|server| server.boot.as_str());
        owner.is_some_and(|owner| Some(owner.as_str()) != server)
    }

    /// What the user may want to do next.
    fn advice(&self, call: &Call) -> Vec<Advice> {
        let id = &self.id;
        let do_it = |what, command: &str| {
            let command = Some(format!("{call} sessions {command}"));
            Advice { what, command }
        };
        let know = |what| Advice { what, command: None };
        let owned = self.is_owned_elsewhere();
        let mut advice = self.choices(call);
        if self.state.queue.iter().any(|prompt| prompt.held) && !owned {
            advice.push(do_it("Deliver the queued prompts", &format!("queue release {id}")));
        }
        advice.extend(match self.status.name {
            Name::Starting | Name::Running => {
                vec![do_it("Watch it", &format!("log {id} --follow"))]
            }
            Name::Waiting if owned => vec![know("Answer it through the process that owns it.")],
            Name::Waiting => vec![
                do_it("Answer it", &format!("answer {id}")),
                do_it("Make a token to answer with", &format!("resume-token {id}")),
                do_it("Cancel the run", &format!("cancel {id}")),
            ],
            Name::InterruptedStartup | Name::InterruptedWaiting if owned => {
                vec![know("Resume or dismiss it through the process that owns it.")]
            }
            Name::InterruptedStartup | Name::InterruptedWaiting => vec![
                do_it("Continue the run", &format!("resume {id} --continue")),
                do_it("Make a token to resume with", &format!("resume-token {id}")),
                do_it("Dismiss the run", &format!("dismiss {id}")),
            ],
            Name::Paused if owned => vec![know("Resume it through the process that owns it.")],
            Name::Paused => vec![do_it("Continue the run", &format!("resume {id}"))],
            Name::Error if self.status.reason == Reason::ExecutorUnreachable => vec![
                know("Wait: its executor is asked again and again."),
                do_it("Give the executor up", &format!("abandon {id}")),
            ],
            Name::Error if self.status.reason == Reason::LoginNeeded => vec![
                do_it("Log in", &format!("login {id}")),
                do_it("Retry", &format!("resume {id}")),
            ],
            Name::Error if self.spelled.choices.is_empty() => vec![
                do_it("See what happened", &format!("log {id}")),
                do_it("Retry", &format!("resume {id}")),
            ],
            Name::Error => vec![do_it("See what happened", &format!("log {id}"))],
            Name::Idle | Name::Completed | Name::Failed | Name::Cancelled => Vec::new(),
        });
        advice
    }

    /// The ways to continue where the agent lost its context, or would lose it.
    fn choices(&self, call: &Call) -> Vec<Advice> {
        let command = |choice: &ContinueChoice| match choice.context.as_ref().map(Known::as_str) {
            None => format!("{call} chat"),
            Some("native") => format!("{call} sessions resume {}", self.id),
            Some("injected") => format!("{call} sessions resume {} --with-history", self.id),
            Some(_) => format!("{call} sessions resume {} --fresh", self.id),
        };
        let known = self.spelled.choices.iter().filter_map(|choice| {
            let what = choice.choice.known()?.label();
            Some(Advice { what, command: Some(command(choice)) })
        });
        known.collect()
    }

    /// What the agent knows of what was said before, or would know.
    fn context(&self) -> Option<String> {
        if self.spelled.is_agent_running {
            return self.spelled.context_sentence.clone();
        }
        let reason = self.spelled.context_reason.as_ref()?.known()?;
        let how = match self.spelled.resume_strategy.known() {
            _ if self.state.facts.closed.is_some() => return None,
            Some(Strategy::History) => "Its first prompt will carry the history of this session.",
            _ => "It will not know what was said before.",
        };
        Some(format!("{} {how}", reason.sentence()))
    }

    fn print(&self, ui: &mut Ui) -> Result<()> {
        let now = self.view.now();
        let title = self.info.title.as_deref().map(one_line).unwrap_or_default();
        let id = ui.paint(Tone::Title, self.id.as_str());
        let is_wide = width(self.id.as_str()) + 2 + width(&title) <= Ui::width();
        ui.line(if is_wide && !title.is_empty() { format!("{id}  {title}") } else { id })?;
        if !is_wide {
            ui.line(format_args!("  {}", shortened(&title, Ui::table_width() - 2)))?;
        }

        let status = ui.paint(show::status_tone(self.status.name), self.status.name.as_str());
        fact(ui, "Status", &status)?;
        fact(ui, "", &self.status.sentence())?;
        if let Some(message) = &self.spelled.error_message {
            fact(ui, "", &one_line(message))?;
        }
        if self.status.read_only {
            fact(ui, "", "A newer version of Piton wrote to it: it can only be read.")?;
        }
        if let Some(run) = &self.state.facts.run {
            let started = times::both(run.started_at, now);
            fact(ui, "Run", &format!("{}, started {started}", run.run_id))?;
        }
        fact(ui, "Owner", &self.owner())?;
        if self.spelled.live.is_some() {
            fact(ui, "Agent", &agent_sentence(&self.spelled))?;
        }
        for (name, text) in show_agent::facts(&self.features, &self.spelled.resume_notices) {
            fact(ui, name, &text)?;
        }
        if let Some(context) = self.context() {
            fact(ui, "Context", &context)?;
        }
        if let Some(folder) = &self.info.working_dir {
            fact(ui, "Folder", &one_line(folder))?;
        }
        if let Some(worktree) = self.worktree() {
            fact(ui, "Folder", &one_line(&worktree.plan.path))?;
            let WorktreePlan { branch, base, repository, .. } = &worktree.plan;
            fact(ui, "Branch", &one_line(&format!("{branch}, from {base} of {repository}")))?;
        }
        if let Some(task) = &self.info.task_id {
            fact(ui, "Task", task.as_str())?;
        }
        fact(ui, "Created", &times::both(self.info.created_at, now))?;
        fact(ui, "Active", &times::both(self.info.active_at, now))?;
        fact(ui, "Records", &self.state.last_seq.to_string())?;
        self.print_waits(ui)?;
        self.print_calls(ui)?;
        self.print_items(ui)?;
        self.print_queue(ui)?;
        let advice = self.advice(&ui.call);
        if !advice.is_empty() {
            heading(ui, "What to do")?;
        }
        for Advice { what, command } in advice {
            match command {
                Some(command) if 2 + width(what) + 2 + width(&command) > Ui::width() => {
                    // A command in one piece can be copied.
                    ui.line(format_args!("  {what}:"))?;
                    ui.line(format_args!("    {command}"))?;
                }
                Some(command) => ui.line(format_args!("  {what}: {command}"))?,
                None => ui.line(format_args!("  {what}"))?,
            }
        }
        Ok(())
    }

    fn owner(&self) -> String {
        let Some(owner) = &self.state.lease.owner else { return "none".to_owned() };
        if !self.view.is_alive(owner) {
            return format!("{owner}, which has ended");
        }
        match self.cx.holder(owner) {
            Some(holder) => format!("{owner}, alive: {} (pid {})", holder.program, holder.pid),
            None => format!("{owner}, alive"),
        }
    }

    fn print_waits(&self, ui: &mut Ui) -> Result<()> {
        if self.waits.is_empty() {
            return Ok(());
        }
        let is_stranded = self.view.stranded(&self.state.facts).is_some();
        heading(ui, if is_stranded { "Questions that were cut off" } else { "Waits" })?;
        let now = self.view.now();
        for wait in &self.waits {
            let deadline = match wait.wait.deadline_at {
                _ if is_stranded => String::new(),
                Some(deadline) if wait.is_overdue(now) => {
                    format!(", the deadline passed {}", times::relative(deadline, now))
                }
                Some(deadline) => format!(", the deadline is {}", times::relative(deadline, now)),
                None => String::new(),
            };
            let kind = show::wait_kind(wait.wait.kind);
            ui.line(format_args!("  {}  {kind}{deadline}", wait.id))?;
            let question = one_line(&wait.question_text());
            if !question.is_empty() {
                ui.line(format_args!("    {}", shortened(&question, Ui::table_width() - 4)))?;
            }
        }
        Ok(())
    }

    fn print_calls(&self, ui: &mut Ui) -> Result<()> {
        if self.state.calls.is_empty() {
            return Ok(());
        }
        if self.is_live() {
            heading(ui, "Running tool calls")?;
        } else {
            heading(ui, "Unknown tool calls: each may have happened, wholly or in part")?;
        }
        for (id, call) in &self.state.calls {
            ui.line(format_args!("  {id}  {} (record {})", one_line(&call.name), call.seq))?;
        }
        Ok(())
    }

    fn print_items(&self, ui: &mut Ui) -> Result<()> {
        if self.items.is_empty() {
            return Ok(());
        }
        heading(ui, "Last messages")?;
        for said in self.items.iter().cloned().filter_map(Said::of) {
            let (who, text) = item_text(&said);
            let who = ui.paint(Tone::Quiet, &padded(who, 6));
            ui.line(format_args!(
                "  {who} {}",
                shortened(&one_line(&text), Ui::table_width() - 9)
            ))?;
        }
        Ok(())
    }

    fn print_queue(&self, ui: &mut Ui) -> Result<()> {
        let length = self.state.queue.len();
        if length == 0 {
            return Ok(());
        }
        let is_held = self.state.queue.iter().any(|prompt| prompt.held);
        let prompts = if length == 1 { "prompt" } else { "prompts" };
        let held = if is_held { ", held until the queue is released" } else { "" };
        heading(ui, &format!("Queue: {length} {prompts}{held}"))?;
        for (at, text) in self.queued.iter().enumerate() {
            let line = format!("{}. {text}", at + 1);
            ui.line(format_args!("  {}", shortened(&line, Ui::table_width() - 2)))?;
        }
        if length > self.queued.len() {
            ui.line(format_args!("  and {} more", length - self.queued.len()))?;
        }
        Ok(())
    }

    fn shown(&self, call: &Call) -> Shown<'_> {
        let open_call = |(id, call): (&CallId, &OpenCall)| {
            let outcome = if self.is_live() { "pending" } else { "unknown" };
            json!({"call_id": id, "name": call.name, "seq": call.seq, "outcome": outcome})
        };
        Shown {
            status: &self.spelled,
            worktree: self.worktree().map(|worktree| &worktree.plan),
            lease: show::lease_json(self.cx, self.view, &self.state.lease),
            calls: self.state.calls.iter().map(open_call).collect(),
            messages: self.items.iter().cloned().map(Message::from).collect(),
            advice: self.advice(call),
            agent_view: Some(AgentView::from(self.features.clone()))
                .filter(|_| self.features != Features::default()),
        }
    }
}

/// A queued prompt on one line; attachments are named.
async fn queued_text(view: &View, session: &SessionId, seq: Seq) -> Result<String> {
    let records = view.records(session, seq - 1, 1).await?;
    let record = records.first().filter(|record| record.seq == seq);
    let content = record.and_then(|record| PromptContent::of(record, "content"));
    Ok(content.map_or_else(|| "(redacted)".to_owned(), |content| one_line(&content.text())))
}

fn heading(ui: &mut Ui, text: &str) -> Result<()> {
    let text = ui.paint(Tone::Title, text);
    ui.line("")?;
    ui.line(text)
}

fn fact(ui: &mut Ui, name: &str, value: &str) -> Result<()> {
    for (i, line) in wrapped(value, Ui::width() - 11).iter().enumerate() {
        let name = ui.paint(Tone::Quiet, &padded(if i == 0 { name } else { "" }, 8));
        ui.line(format!("  {name} {line}").trim_end())?;
    }
    Ok(())
}

fn item_text(item: &Said) -> (&'static str, String) {
    let text = |text: &Text| match text {
        Text::Whole(text) => text.clone(),
        Text::Redacted => "(redacted)".to_owned(),
    };
    match item {
        Said::User { text: said, .. } => ("user", text(said)),
        Said::Agent { text: said, truncated: true, .. } => {
            ("agent", format!("(a part is missing: it was too long) {}", text(said)))
        }
        Said::Agent { text: said, complete: true, .. } => ("agent", text(said)),
        Said::Agent { text: said, complete: false, .. } => {
            ("agent", format!("(cut off or still writing) {}", text(said)))
        }
        Said::Tool { name, arguments, outcome, .. } => {
            let name = name.as_deref().unwrap_or("?");
            let outcome = match outcome {
                Outcome::Known { status: ToolStatus::Succeeded, .. } => "succeeded",
                Outcome::Known { status: ToolStatus::Failed, .. } => "failed",
                Outcome::Known { status: ToolStatus::Cancelled, .. } => "cancelled",
                Outcome::Pending => "running",
                Outcome::Unknown | Outcome::Known { status: ToolStatus::Unknown, .. } => "unknown",
            };
            let arguments = arguments.as_ref().map(show::words).unwrap_or_default();
            ("tool", format!("{outcome}: {name} {arguments}"))
        }
    }
}
