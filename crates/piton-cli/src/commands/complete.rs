//! `piton complete`: what the completion scripts ask for while a user types: ids of sessions, tasks
//! and waits, names of agents. Never fails: a shell that completes has no place for errors.

use clap::{ArgAction, CommandFactory as _};
use piton_core::Timestamp;
use piton_store::{Query, Select};

use crate::agents;
use crate::cli::Cli;
use crate::context::Context;
use crate::error::{Exit, Result};
use crate::ids::ShownIds;
use crate::text::one_line;
use crate::ui::Ui;

/// Ids that are offered.
const OFFERED_MAX: usize = 50;

/// Print what could follow a command line; for the completion scripts
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The words between the program and the cursor, the word at the cursor last
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// What a word of a command line names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "an argument may name one of several kinds")]
struct Wanted {
    sessions: bool,
    waits: bool,
    tasks: bool,
    agents: bool,
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    let (word, before) = match args.words.split_last() {
        Some((word, before)) => (word.as_str(), before),
        None => ("", [].as_slice()),
    };
    let wanted = wanted(before);
    let mut offered: Vec<(String, String)> = Vec::new();
    if wanted.agents
        && let Ok(profiles) = agents::all(&cx.settings)
    {
        offered.extend(profiles.into_iter().map(|one| (one.id.clone(), one.name.clone())));
    }
    // Without a store, or with one that cannot be read, there is nothing to offer.
    if (wanted.sessions || wanted.waits || wanted.tasks)
        && let Ok(Some(view)) = cx.view()
    {
        offered.extend(ids(&view, wanted, word).await.unwrap_or_default());
    }
    if wanted.sessions {
        offered.push(("@last".to_owned(), "the session that was active last".to_owned()));
    }
    for (value, what) in offered.iter().filter(|(value, _)| value.starts_with(word)) {
        ui.line(format_args!("{value}\t{}", one_line(what)))?;
    }
    Ok(Exit::Good)
}

async fn ids(
    view: &piton_runtime::View,
    wanted: Wanted,
    word: &str,
) -> Result<Vec<(String, String)>> {
    let mut found: Vec<(String, String)> = Vec::new();
    if wanted.sessions || wanted.tasks {
        let (listed, _) = view.list(None, |_| true, None, OFFERED_MAX).await?;
        for one in listed {
            let info = one.row.summary.info;
            if wanted.sessions {
                found.push((one.row.session.to_string(), info.title.unwrap_or_default()));
            }
            if wanted.tasks
                && let Some(task) = info.task_id
            {
                found.push((task.to_string(), String::new()));
            }
        }
    }
    if wanted.waits {
        let select = Select::DueBy(Timestamp::from_millis(i64::MAX));
        let query = Query { task_id: None, select, after: None, limit: OFFERED_MAX };
        for row in view.store().list(query).await?.rows {
            let info = &row.summary.info;
            let waits = row.summary.facts.run.iter().flat_map(|run| run.waits.keys());
            let title = info.title.clone().unwrap_or_default();
            found.extend(waits.map(|wait| (wait.to_string(), title.clone())));
        }
    }
    found.sort_by(|a, b| b.0.cmp(&a.0));
    found.dedup_by(|a, b| a.0 == b.0);
    // The beginnings are alike: the end is offered, unless the word is a beginning.
    if !found.iter().any(|(id, _)| !word.is_empty() && id.starts_with(word)) {
        let shown = ShownIds::short(found.iter().map(|(id, _)| id.as_str()));
        found = found.iter().map(|(id, what)| (shown.shown(id), what.clone())).collect();
    }
    Ok(found)
}

/// What the word behind these names, by the name of its argument's value.
fn wanted(before: &[String]) -> Wanted {
    let root = Cli::command();
    let mut command = &root;
    let mut positional = 1;
    let mut value_of: Option<&clap::Arg> = None;
    for word in before {
        if value_of.take().is_some() {
            continue;
        }
        if let Some(long) = word.strip_prefix("--") {
            // Those of the program stand behind any command.
            let found = command.get_arguments().chain(root.get_arguments());
            let mut found = found.filter(|arg| arg.get_long() == Some(long));
            value_of = found.next().filter(|arg| takes_value(arg));
        } else if let Some(short) = word.strip_prefix('-') {
            let mut found = command.get_arguments().filter(|arg| {
                arg.get_short().is_some_and(|known| short.chars().eq(std::iter::once(known)))
            });
            value_of = found.next().filter(|arg| takes_value(arg));
        } else if let Some(sub) = command.find_subcommand(word) {
            command = sub;
            positional = 1;
        } else {
            positional += 1;
        }
    }
    let arg = value_of.or_else(|| {
        let at = |arg: &&clap::Arg| arg.get_index() == Some(positional);
        let last = || {
            command
                .get_positionals()
                .last()
                .filter(|arg| matches!(arg.get_action(), ArgAction::Append))
        };
        let mut named = command.get_positionals();
        named.find(at).or_else(|| command.get_positionals().nth(positional - 1)).or_else(last)
    });
    arg.map(wanted_by).unwrap_or_default()
}

/// What the value of this argument names.
fn wanted_by(arg: &clap::Arg) -> Wanted {
    let names = arg.get_value_names().unwrap_or_default();
    let is = |name: &str| {
        names.iter().any(|value| value.split('|').any(|one| one == name))
            || (names.is_empty() && arg.get_id().as_str().eq_ignore_ascii_case(name))
    };
    Wanted {
        sessions: is("SESSION") || is("SESSIONS"),
        waits: is("WAIT"),
        tasks: is("TASK"),
        agents: is("AGENT") || arg.get_id() == "agent",
    }
}

/// Whether the value of this argument names a session, a wait, a task or an agent.
pub(super) fn names_an_id(arg: &clap::Arg) -> bool {
    takes_value(arg) && wanted_by(arg) != Wanted::default()
}

fn takes_value(arg: &clap::Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Set | ArgAction::Append)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> (bool, bool, bool, bool) {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let Wanted { sessions, waits, tasks, agents } = wanted(&words);
        (sessions, waits, tasks, agents)
    }

    #[test]
    fn the_place_in_the_line_says_what_is_named() {
        for line in
            ["attach", "s show", "sessions log", "--data /x sessions export", "sessions log -f"]
        {
            assert_eq!(of(line), (true, false, false, false), "{line}");
        }
        assert_eq!(of("sessions answer"), (true, true, false, false));
        assert_eq!(of("sessions waits"), (true, true, false, false));
        assert_eq!(of("tasks show"), (false, false, true, false));
        assert_eq!(of("sessions list --task"), (false, false, true, false));
        for line in ["chat --agent", "agents probe", "sessions list --agent"] {
            assert_eq!(of(line), (false, false, false, true), "{line}");
        }
        for line in ["", "sessions", "sessions list --limit", "attach sess_1", "explain", "config"]
        {
            assert_eq!(of(line), (false, false, false, false), "{line}");
        }
    }
}
