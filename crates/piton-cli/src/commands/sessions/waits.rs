//! `piton sessions waits`: what is asked and not answered.

use piton_core::Timestamp;
use piton_core::id::SessionId;
use piton_core::state::Facts;
use piton_runtime::View;
use piton_store::{Query, Select};

use crate::context::Context;
use crate::error::{Exit, Result};
use crate::show::{self, OpenWait};
use crate::table::{Column, Table};
use crate::text::one_line;
use crate::times;
use crate::ui::{Tone, Ui};

const EXAMPLES: &str = "\
Examples:
  piton sessions waits              All sessions, the earliest deadline first
  piton sessions waits sess_0199
  piton sessions waits --json | jq -r .question

JSON: one object per wait and line, as the API has it: wait_id, session_id, run_id, kind, question,
since_seq, deadline_at, resume_token_id; and token (active, expired, revoked or missing).";

/// Sessions on one page.
const SESSIONS_MAX: usize = 200;

/// List open waits with their questions
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Only of this session: its id, or its beginning
    session: Option<String>,
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    let (view, waits) = if let Some(session) = &args.session {
        let (view, id) = cx.view_of(session).await?;
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
        if page.next.is_some() {
            ui.note(&format!("Only the {SESSIONS_MAX} sessions with the earliest deadlines."))?;
        }
        (view, waits)
    };
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
            let open = OpenWait::read(&**view.store(), id, run, wait_id, wait).await?;
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
        ui.note(&format!("{session} was interrupted while it asked: nobody can answer it now."))?;
    }
    Ok(())
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
    for (session, wait) in waits {
        let overdue = if wait.is_overdue(now) { Tone::Bad } else { Tone::Quiet };
        let deadline = wait.wait.deadline_at;
        table.row([
            (Tone::Plain, session.to_string()),
            (Tone::Plain, wait.id.to_string()),
            (Tone::Attention, show::wait_kind(wait.wait.kind).to_owned()),
            (overdue, deadline.map(|at| times::relative(at, now)).unwrap_or_default()),
            (Tone::Plain, one_line(&wait.question_text())),
        ]);
    }
    table.print(ui)
}
