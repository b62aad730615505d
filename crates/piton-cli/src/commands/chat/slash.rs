//! Lines that begin with `/` and are meant for the chat itself. All others are the agent's, which has
//! commands of its own.

use piton_api::agent_view::AgentChoice;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slash {
    Help,
    Resume,
    ResumeWithHistory,
    ResumeFresh,
    Pause,
    Cancel,
    Close,
    Release,
    Quit,
}

/// What a line that begins with one of these chooses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Choosing {
    /// `/mode` and `/model` alone: what there is.
    Show,
    Choose(AgentChoice),
}

impl Choosing {
    /// What a whole line means; `None` if it is for the agent, or another word of ours.
    pub(super) fn of(line: &str) -> Option<Self> {
        let (word, id) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let id = id.trim();
        let (mode, model) = match word {
            "/mode" => (Some(id), None),
            "/model" => (None, Some(id)),
            _ => return None,
        };
        if id.is_empty() {
            return Some(Self::Show);
        }
        let (mode, model) = (mode.map(str::to_owned), model.map(str::to_owned));
        Some(Self::Choose(AgentChoice { mode, model, ..AgentChoice::default() }))
    }
}

const CHOOSING: &[(&str, &str)] = &[
    ("/mode", "Show the agent's modes; with one behind it, choose it"),
    ("/model", "The same for its models"),
];

const WORDS: &[(&str, Slash, &str)] = &[
    ("/help", Slash::Help, "Show this"),
    ("/resume", Slash::Resume, "Continue the interrupted or paused run; start the agent"),
    ("/resume retry", Slash::Resume, "The same: the agent loads its own conversation again"),
    (
        "/resume history",
        Slash::ResumeWithHistory,
        "The same in a new conversation; its first prompt carries the history",
    ),
    ("/resume fresh", Slash::ResumeFresh, "The same in a new conversation, without the history"),
    ("/pause", Slash::Pause, "Pause the turn; /resume continues it"),
    ("/cancel", Slash::Cancel, "Stop the turn, as Ctrl-C does"),
    ("/release", Slash::Release, "Deliver the queued prompts that are held"),
    ("/close", Slash::Close, "End the session and its agent"),
    ("/quit", Slash::Quit, "Leave, as a second Ctrl-C does; the agent stays"),
    ("/exit", Slash::Quit, "The same"),
];

impl Slash {
    /// What a whole line means; `None` if it is for the agent.
    pub(super) fn of(line: &str) -> Option<Self> {
        let word = WORDS.iter().find(|(word, ..)| *word == line);
        word.map(|(_, slash, _)| *slash)
    }

    pub(super) fn help() -> impl Iterator<Item = String> {
        let words = WORDS.iter().map(|(word, _, what)| format!("  {word:<15}  {what}"));
        let rest = "  All else goes to the agent, its own /commands too.".to_owned();
        let choosing = CHOOSING.iter().map(|(word, what)| format!("  {word:<15}  {what}"));
        words.chain(choosing).chain([rest])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_or_a_model_is_chosen_by_its_id() {
        let mode = |id: &str| AgentChoice { mode: Some(id.to_owned()), ..AgentChoice::default() };
        assert_eq!(Choosing::of("/mode plan"), Some(Choosing::Choose(mode("plan"))));
        let model = AgentChoice { model: Some("large".to_owned()), ..AgentChoice::default() };
        assert_eq!(Choosing::of("/model  large "), Some(Choosing::Choose(model)));
        assert_eq!(Choosing::of("/mode"), Some(Choosing::Show));
        for line in ["/modes", "/models x", "mode plan", "/help", ""] {
            assert_eq!(Choosing::of(line), None, "{line}");
        }
    }

    #[test]
    fn only_our_own_words_are_kept_from_the_agent() {
        assert_eq!(Slash::of("/help"), Some(Slash::Help));
        assert_eq!(Slash::of("/exit"), Some(Slash::Quit));
        assert_eq!(Slash::of("/resume history"), Some(Slash::ResumeWithHistory));
        for line in ["/compact", "/help me", "/", "help", "", "/etc/passwd is what?"] {
            assert_eq!(Slash::of(line), None, "{line}");
        }
        let help: Vec<String> = Slash::help().collect();
        assert!(
            help.contains(&"  /pause           Pause the turn; /resume continues it".to_owned())
        );
    }
}
