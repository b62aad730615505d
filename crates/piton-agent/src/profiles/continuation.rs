//! How a command line goes on with a conversation: templates of arguments, filled in. Nothing is run.

/// Stands for the conversation's id.
pub const AGENT_SESSION_ID: &str = "{agent_session_id}";
/// Stands for the id of the agent's message to go on after.
pub const AGENT_MESSAGE_ID: &str = "{agent_message_id}";

/// Arguments that follow the program. One that is empty is something it cannot do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Continuation {
    /// The program and what always follows it, where it is another than the profile's command, as
    /// with an adapter that speaks the protocol for it. Empty: it is the same.
    pub command: Vec<String>,
    /// To begin a conversation.
    pub new: Vec<String>,
    /// To go on with one, with [`AGENT_SESSION_ID`].
    pub resume: Vec<String>,
    /// The same after a message that need not be the last, with [`AGENT_MESSAGE_ID`] too.
    pub resume_at: Vec<String>,
    /// To make a copy of one, with [`AGENT_SESSION_ID`].
    pub fork: Vec<String>,
    pub output: Output,
}

/// What it prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Output {
    /// Its answer, and nothing else.
    #[default]
    Text,
    /// A JSON message on each line, in the manner of `claude -p --output-format stream-json`.
    StreamJson,
}

impl Continuation {
    /// The arguments to go on with `session`, after `message` where that can be said; or with a copy
    /// of it. Where it cannot be copied a new conversation begins: to go on with the original
    /// would be something else.
    pub fn args(&self, session: Option<&str>, message: Option<&str>, fork: bool) -> Vec<String> {
        let Some(session) = session.filter(|id| is_fit(id)) else { return self.new.clone() };
        let message = message.filter(|id| is_fit(id) && !self.resume_at.is_empty());
        let template = match message {
            _ if fork => &self.fork,
            Some(_) => &self.resume_at,
            None => &self.resume,
        };
        if template.is_empty() {
            return self.new.clone();
        }
        let values = [(AGENT_SESSION_ID, session), (AGENT_MESSAGE_ID, message.unwrap_or_default())];
        template.iter().map(|part| filled(part, values)).collect()
    }
}

/// Ids come from agents, and from bundles that somebody else made: one that a program would take
/// for an option is none.
fn is_fit(id: &str) -> bool {
    !id.is_empty() && !id.starts_with('-') && !id.contains('\0')
}

/// What was put in is not looked at again: an id may look like a name.
fn filled(part: &str, values: [(&str, &str); 2]) -> String {
    let mut text = String::new();
    let mut rest = part;
    while let Some(at) = rest.find('{') {
        let (before, from) = rest.split_at(at);
        text.push_str(before);
        let found =
            values.iter().find_map(|(name, value)| Some((from.strip_prefix(name)?, *value)));
        let (behind, value) = found.unwrap_or((&from[1..], "{"));
        text.push_str(value);
        rest = behind;
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    fn all() -> Continuation {
        Continuation {
            command: Vec::new(),
            new: texts("begin"),
            resume: texts("--resume {agent_session_id}"),
            resume_at: texts("--resume {agent_session_id} --at={agent_message_id}"),
            fork: texts("fork {agent_session_id}"),
            output: Output::Text,
        }
    }

    #[test]
    fn each_way_has_its_arguments() {
        let args = |session, message, fork| all().args(session, message, fork).join(" ");
        assert_eq!(args(None, None, false), "begin");
        assert_eq!(args(None, Some("m1"), true), "begin");
        assert_eq!(args(Some("s1"), None, false), "--resume s1");
        assert_eq!(args(Some("s1"), Some("m1"), false), "--resume s1 --at=m1");
        assert_eq!(args(Some("s1"), None, true), "fork s1");
        assert_eq!(args(Some("s1"), Some("m1"), true), "fork s1");
        assert_eq!(
            args(Some("{agent_message_id}"), Some("m1"), false),
            "--resume {agent_message_id} --at=m1"
        );
    }

    #[test]
    fn what_it_cannot_do_leaves_the_original_alone() {
        let less = Continuation { resume_at: Vec::new(), fork: Vec::new(), ..all() };
        assert_eq!(less.args(Some("s1"), Some("m1"), false), texts("--resume s1"));
        assert_eq!(less.args(Some("s1"), None, true), texts("begin"));
    }

    /// An imported session may name any id.
    #[test]
    fn an_id_cannot_be_an_option() {
        for id in ["--allow-everything", "-x", "", "a\0b"] {
            assert_eq!(all().args(Some(id), None, false), texts("begin"), "{id:?}");
            assert_eq!(all().args(Some("s1"), Some(id), false), texts("--resume s1"), "{id:?}");
        }
    }
}
