//! Lines that begin with `/` and are meant for the chat itself. All others are the agent's, which has
//! commands of its own.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slash {
    Help,
    Resume,
    Pause,
    Cancel,
    Close,
    Quit,
}

const WORDS: &[(&str, Slash, &str)] = &[
    ("/help", Slash::Help, "Show this"),
    ("/resume", Slash::Resume, "Continue the interrupted or paused run; start the agent"),
    ("/pause", Slash::Pause, "Pause the turn, to go on with it later"),
    ("/cancel", Slash::Cancel, "Stop the turn, as Ctrl-C does"),
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
        let words = WORDS.iter().map(|(word, _, what)| format!("  {word:<8}  {what}"));
        let rest = "  All else goes to the agent, its own /commands too.".to_owned();
        words.chain([rest])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_words_are_kept_from_the_agent() {
        assert_eq!(Slash::of("/help"), Some(Slash::Help));
        assert_eq!(Slash::of("/exit"), Some(Slash::Quit));
        for line in ["/compact", "/help me", "/", "help", "", "/etc/passwd is what?"] {
            assert_eq!(Slash::of(line), None, "{line}");
        }
        let help: Vec<String> = Slash::help().collect();
        assert!(help.contains(&"  /pause    Pause the turn, to go on with it later".to_owned()));
    }
}
