//! `piton sessions waits`: what is asked and not answered.

use piton_core::id::{SessionId, WaitId};
use piton_core::permission::PermissionRequest;
use piton_core::state::Facts;
use piton_core::{Code, Timestamp};
use piton_runtime::View;
use piton_store::{Query, Select};
use serde_json::Value;

use crate::context::Context;
use crate::error::{Error, Exit, Result};
use crate::ids::ShownIds;
use crate::lookup;
use crate::permission_text;
use crate::show::{self, OpenWait};
use crate::table::{Column, Table};
use crate::text::one_line;
use crate::times;
use crate::ui::{Tone, Ui};

const EXAMPLES: &str = "\
Examples:
  piton sessions waits              All sessions, the earliest deadline first
  piton sessions waits SESSION
  piton sessions waits WAIT         One wait
  piton sessions waits --full       With the whole command, arguments and changes of each request
  piton sessions waits --json | jq -r .permission.command

JSON: one object per wait and line, as the API has it: wait_id, session_id, run_id, kind,
question, permission (tool, kind, title, command, arguments, locations, diffs, text, options,
truncated), since_seq, deadline_at, resume_token_id; and token (active, expired, revoked or
missing).";

/// Sessions on one page.
const SESSIONS_MAX: usize = 200;

/// List open waits with their questions
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// One wait, or the waits of one session: an id, or the beginning or end of it
    #[arg(value_name = "WAIT|SESSION")]
    target: Option<String>,
    /// Show each question whole
    #[arg(long)]
    full: bool,
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    let target = args.target.as_deref();
    let (mut wait, mut session) = (target.filter(|target| target.starts_with("wait_")), None);
    if let Some(part) = target.filter(|_| wait.is_none()) {
        // The end of an id does not say what it is the id of.
        match cx.view_of(part).await {
            Ok(found) => session = Some(found),
            Err(error) if error.code() == Some(Code::SessionNotFound) => wait = Some(part),
            Err(error) => return Err(error),
        }
    }
    let (view, waits) = if let Some((view, id)) = session {
        let state = view.state(&id).await?;
        let mut waits = Waits::default();
        waits.read(&view, &id, &state.facts).await?;
        (view, waits)
    } else {
        let Some(view) = cx.view()? else {
            let data = cx.settings.data.value.display();
            ui.note(&format!("No waits: there is no store at {data}."))?;
            return Ok(Exit::Good);
        };
        // Every wait has a deadline, so those that are due by the end of time are all.
        let select = Select::DueBy(Timestamp::from_millis(i64::MAX));
        let query = Query { task_id: None, select, after: None, limit: SESSIONS_MAX };
        let page = view.store().list(query).await?;
        let mut waits = Waits::default();
        for row in page.rows {
            waits.read(&view, &row.session, &row.summary.facts).await?;
        }
        if let Some(wait) = wait {
            waits.stranded.clear();
            let named = lookup::wait(wait, waits.open.iter().map(|(_, open)| &open.id))?;
            waits.open.retain(|(_, open)| Some(&open.id) == named.as_ref());
            if waits.open.is_empty() {
                let wait: WaitId = wait.parse()?;
                let message = format!("There is no open wait {wait}");
                return Err(Error::new(Code::WaitNotFound, message)
                    .with_hint("`piton sessions waits` lists the open ones."));
            }
        } else if page.next.is_some() {
            ui.note(&format!("Only the {SESSIONS_MAX} sessions with the earliest deadlines."))?;
        }
        (view, waits)
    };
    if args.full && !ui.json {
        return print_full(ui, waits);
    }
    print(ui, &view, waits)?;
    Ok(Exit::Good)
}

#[derive(Debug, Default)]
struct Waits {
    open: Vec<(SessionId, OpenWait)>,
    /// Sessions whose waits died with the process that ran them.
    stranded: Vec<SessionId>,
}

impl Waits {
    async fn read(&mut self, view: &View, id: &SessionId, facts: &Facts) -> Result<()> {
        let run = facts.run.as_ref().filter(|run| run.is_unfinished() && facts.closed.is_none());
        if view.stranded(facts).is_some_and(|run| !run.waits.is_empty()) {
            self.stranded.push(id.clone());
            return Ok(());
        }
        let Some(run) = run else { return Ok(()) };
        for (wait_id, wait) in &run.waits {
            let open = OpenWait::read(view, id, run, wait_id, wait).await?;
            self.open.push((id.clone(), open));
        }
        Ok(())
    }
}

fn print(ui: &mut Ui, view: &View, waits: Waits) -> Result<()> {
    let Waits { open: mut waits, stranded } = waits;
    waits.sort_by_key(|(_, wait)| (wait.wait.deadline_at, wait.wait.since_seq));
    if ui.json {
        for (session, wait) in &waits {
            ui.json_line(&wait.spelled(session))?;
        }
    } else if waits.is_empty() {
        ui.note("No open waits.")?;
    } else {
        print_table(ui, view, &waits)?;
    }
    for session in stranded {
        ui.note(&format!(
            "{session} was interrupted while it asked; its question can no longer be answered."
        ))?;
    }
    Ok(())
}

/// Each wait with all that it asks.
fn print_full(ui: &mut Ui, mut waits: Waits) -> Result<Exit> {
    waits.open.sort_by_key(|(_, wait)| (wait.wait.deadline_at, wait.wait.since_seq));
    for (session, wait) in &waits.open {
        let kind = show::wait_kind(wait.wait.kind);
        ui.line(format_args!("{} of session {session} ({kind})", wait.id))?;
        let asked = || PermissionRequest::new(wait.question.as_ref().unwrap_or(&Value::Null), []);
        let request = wait.permission.clone().unwrap_or_else(asked);
        for (tone, line) in permission_text::lines(&request) {
            ui.line(ui.paint(tone, &line))?;
        }
        for option in &request.options {
            let id = ui.paint(Tone::Quiet, &one_line(&option.option_id));
            ui.line(format_args!("  {id}  {}", one_line(&option.name)))?;
        }
    }
    if waits.open.is_empty() {
        ui.note("No open waits.")?;
    }
    Ok(Exit::Good)
}

fn print_table(ui: &mut Ui, view: &View, waits: &[(SessionId, OpenWait)]) -> Result<()> {
    let mut table = Table::new([
        Column::Whole("SESSION"),
        Column::Whole("WAIT"),
        Column::Whole("KIND"),
        Column::Whole("DEADLINE"),
        Column::Cut("QUESTION"),
    ]);
    let now = view.now();
    let ids = ShownIds::new(
        waits.iter().flat_map(|(session, wait)| [session.as_str(), wait.id.as_str()]),
    );
    for (session, wait) in waits {
        let overdue = if wait.is_overdue(now) { Tone::Bad } else { Tone::Quiet };
        let deadline = wait.wait.deadline_at;
        table.row([
            (Tone::Plain, ids.shown(session.as_str())),
            (Tone::Plain, ids.shown(wait.id.as_str())),
            (Tone::Attention, show::wait_kind(wait.wait.kind).to_owned()),
            (overdue, deadline.map(|at| times::relative(at, now)).unwrap_or_default()),
            (Tone::Plain, one_line(&wait.question_text())),
        ]);
    }
    table.print(ui)
}
