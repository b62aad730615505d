//! Lines that begin with `/`: ours, the agent's, and mistyped ones, which are sent nowhere. Pure.

use strsim::damerau_levenshtein;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Command {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
}

const fn command(name: &'static str, what: &'static str) -> Command {
    Command { name, what }
}

pub(crate) const ALL: &[Command] = &[
    command("help", "List commands and keys"),
    command("model", "Show the models, or choose one"),
    command("mode", "Show the modes, or choose one"),
    command("status", "Show where the session stands"),
    command("queue", "List queued prompts; `remove N`, `edit N`, `release`"),
    command(
        "resume",
        "Continue the run; `history` or `fresh`: without the agent's own conversation",
    ),
    command("pause", "Pause the turn"),
    command("cancel", "Stop the turn, as Esc does"),
    command("attach", "Go to another session: its id or the beginning of it"),
    command("new", "Begin a new session in this folder"),
    command("fork", "Continue in a copy of this session"),
    command(
        "rewind",
        "Go back before the last turn, or N turns; `--dry-run`, `--cancel`, `--force`",
    ),
    command("checkpoint", "List the checkpoints, one before and after each turn, for /rewind ID"),
    command("undo", "Take the last rewind back; `--dry-run`, `--force`"),
    command("transcript", "Show all of the conversation, as Ctrl-T does"),
    command("close", "End the session and its agent"),
    command("quit", "Leave; the agent keeps running"),
];

/// What a prompt is that begins with `/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    /// A prompt for the agent.
    Prompt,
    /// A command of ours, and what follows it.
    Ours(&'static str, &'a str),
    /// Neither ours nor the agent's; perhaps this was meant.
    Unknown { name: &'a str, meant: Option<String> },
}

/// What a whole prompt means, where the agent has these commands.
pub(crate) fn parse<'a>(line: &'a str, agent: &[(String, String)]) -> Line<'a> {
    // A blank before it sends it as it is.
    let Some(rest) = line.strip_prefix('/') else { return Line::Prompt };
    let (name, argument) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    if let Some(ours) = ALL.iter().find(|command| command.name == name) {
        return Line::Ours(ours.name, argument.trim());
    }
    if name == "exit" {
        return Line::Ours("quit", "");
    }
    let is_name =
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_:".contains(c));
    // A path, or a sentence.
    if !is_name || agent.iter().any(|(theirs, _)| theirs == name) {
        return Line::Prompt;
    }
    let known = ALL.iter().map(|command| command.name.to_owned());
    let known = known.chain(agent.iter().map(|(name, _)| name.clone()));
    let near = known.map(|known| {
        // Of two that are as near, the one of the same length: letters are swapped more often than
        // left out.
        let length = known.len().abs_diff(name.len());
        (damerau_levenshtein(&known, name), length, known)
    });
    let meant = near.filter(|(distance, ..)| *distance <= 2).min().map(|(.., known)| known);
    Line::Unknown { name, meant }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_command_is_no_prompt() {
        let agent = [("compact".to_owned(), String::new())];
        let unknown =
            |name, meant: Option<&str>| Line::Unknown { name, meant: meant.map(str::to_owned) };
        for (line, wanted) in [
            ("hello", Line::Prompt),
            ("/compact now", Line::Prompt),
            ("/etc/passwd is what?", Line::Prompt),
            (" /moddel", Line::Prompt),
            ("/model large", Line::Ours("model", "large")),
            ("/exit", Line::Ours("quit", "")),
            ("/modle x", unknown("modle", Some("model"))),
            ("/compcat", unknown("compcat", Some("compact"))),
            ("/zzzzzz", unknown("zzzzzz", None)),
        ] {
            assert_eq!(parse(line, &agent), wanted, "{line}");
        }
    }
}
