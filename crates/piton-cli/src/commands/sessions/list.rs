//! `piton sessions list`: one page of the index, whatever the number of sessions.

use piton_api::SessionSummary;
use piton_core::event::Outcome;
use piton_core::id::{BootId, SessionId, TaskId};
use piton_core::status::{Name, Status};
use piton_runtime::Listed;
use piton_store::{Cursor, Row};
use serde::Serialize;

use crate::context::Context;
use crate::error::{Exit, Result};
use crate::show;
use crate::table::{Column, Table};
use crate::text::one_line;
use crate::times;
use crate::ui::{Tone, Ui};

const EXAMPLES: &str = "\
Examples:
  piton sessions list
  piton sessions list --status interrupted
  piton sessions list --agent weekly-report --status failed
  piton sessions list --limit 200 --json | jq -r 'select(.state == \"ERROR\").session_id'

JSON: one object per session and line, with the fields of the API's GET /sessions (session_id, title,
task_id, status, state, reason, sentence, last_outcome, working_dir, created_at, active_at, last_seq,
and more), and owner, cursor.";

/// List sessions, last active first
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Only sessions with this status; failed, completed and cancelled are also how a run ended
    #[arg(long, value_name = "STATUS", value_parser = parse_status)]
    status: Option<StatusFilter>,
    /// Only sessions of this agent profile, or of the graph with this name
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Only sessions of this task
    #[arg(long, value_name = "TASK", value_parser = str::parse::<TaskId>)]
    task: Option<TaskId>,
    /// How many at most
    #[arg(long, short = 'n', default_value_t = 50, value_name = "COUNT",
          value_parser = clap::value_parser!(u16).range(1..=1_000))]
    limit: u16,
    /// Go on behind a session of an earlier list: its cursor
    #[arg(long, value_name = "CURSOR", value_parser = parse_cursor)]
    after: Option<Cursor>,
}

/// Starting, running or waiting.
const ACTIVE: &str = "active";

/// A status, or the word that lists show for it.
#[derive(Clone, Debug)]
pub(crate) struct StatusFilter(String);

impl StatusFilter {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        parse_status(text)
    }

    fn is_named(&self, name: Name) -> bool {
        self.0 == name.as_str() || self.0 == show::status_word(name)
    }

    /// By its name, or by the words that say how a run stands or ended.
    pub(crate) fn fits(&self, status: &Status) -> bool {
        let name = status.name;
        self.is_named(name)
            || match self.0.as_str() {
                "active" => matches!(name, Name::Starting | Name::Running | Name::Waiting),
                "paused" => name.is_interrupted(),
                "failed" => name == Name::Error || status.last_outcome == Some(Outcome::Failed),
                "completed" => status.last_outcome == Some(Outcome::Completed),
                "cancelled" => status.last_outcome == Some(Outcome::Cancelled),
                _ => false,
            }
    }
}

fn parse_status(text: &str) -> Result<StatusFilter, String> {
    let wanted = StatusFilter(text.to_owned());
    if text == ACTIVE || Name::ALL.iter().any(|name| wanted.is_named(*name)) {
        return Ok(wanted);
    }
    let mut names: Vec<_> = Name::ALL.iter().map(|name| show::status_word(*name)).collect();
    names.dedup();
    names.push(ACTIVE);
    Err(format!("it is none of {}", names.join(", ")))
}

/// A cursor in the form `MILLIS.SESSION`.
fn parse_cursor(text: &str) -> Result<Cursor, String> {
    let parse = || {
        let (millis, session) = text.split_once('.')?;
        Some(Cursor { millis: millis.parse().ok()?, session: session.parse::<SessionId>().ok()? })
    };
    parse().ok_or_else(|| "it is not the cursor of an earlier list".to_owned())
}

fn cursor_text(cursor: &Cursor) -> String {
    format!("{}.{}", cursor.millis, cursor.session)
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    let Some(view) = cx.view()? else {
        let data = cx.settings.data.value.display();
        ui.note(&format!("No sessions yet: there is no store at {data}."))?;
        return Ok(Exit::Good);
    };
    let limit = usize::from(args.limit);
    let wanted = |listed: &Listed| {
        let summary = &listed.row.summary;
        let by_status = args.status.as_ref().is_none_or(|wanted| wanted.fits(&listed.status));
        let by_agent = args.agent.as_ref().is_none_or(|agent| {
            summary.info.agent_profile_id.as_ref() == Some(agent)
                || summary.facts.graph.as_ref() == Some(agent)
        });
        by_status && by_agent
    };
    let (listed, next) = view.list_where(args.task, wanted, args.after, limit).await?;
    if ui.json {
        for one in &listed {
            ui.json_line(&line(one))?;
        }
    } else if listed.is_empty() {
        ui.note("No sessions.")?;
    } else {
        let mut table = Table::new([
            Column::Whole("SESSION"),
            Column::Whole("STATUS"),
            Column::Whole("ACTIVE"),
            Column::Cut("TITLE"),
        ]);
        for Listed { row, status } in &listed {
            let info = &row.summary.info;
            table.row([
                (Tone::Plain, row.session.to_string()),
                (show::status_tone(status.name), show::status_word(status.name).to_owned()),
                (Tone::Quiet, times::relative(info.active_at, view.now())),
                (Tone::Plain, info.title.as_deref().map(one_line).unwrap_or_default()),
            ]);
        }
        table.print(ui)?;
    }
    if let Some(next) = next {
        ui.note(&format!("There may be more: continue with --after {}", cursor_text(&next)))?;
    }
    Ok(Exit::Good)
}

/// A session as the API's lists have it, with its owner and its place in the list.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    summary: SessionSummary,
    owner: Option<&'a BootId>,
    cursor: String,
}

fn line(listed: &Listed) -> Line<'_> {
    let Row { session, last_seq, summary, lease, .. } = &listed.row;
    let status = &listed.status;
    Line {
        summary: SessionSummary::new(session, &summary.info, &summary.facts, *last_seq, status),
        owner: lease.owner.as_ref(),
        cursor: cursor_text(&listed.cursor()),
    }
}
