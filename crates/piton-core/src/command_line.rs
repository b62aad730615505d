//! Agents without a protocol of their own: each turn is a process. Its arguments name the conversation
//! that it continues; it prints its answer, and ends. Templates of arguments, filled in; nothing is run.

use serde::{Deserialize, Serialize};

/// Stands for the agent's own id of its conversation.
pub const AGENT_SESSION_ID: &str = "{agent_session_id}";
/// Stands for the agent's own id of the last message of that conversation.
pub const AGENT_MESSAGE_ID: &str = "{agent_message_id}";
/// Stands for what the agent is asked to do.
pub const PROMPT: &str = "{prompt}";

/// What is appended to the agent's command for a turn. Each argument may hold placeholders; what is
/// put in their place is not looked at again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CommandLine {
    /// For a new conversation. If [`AGENT_SESSION_ID`] stands in it, agentctl chooses the id.
    pub new: Vec<String>,
    /// For one that is known. Empty: it cannot be continued.
    pub resume: Vec<String>,
    /// The same, up to a message of it. Empty: all of it is continued.
    pub resume_at: Vec<String>,
    /// For a copy of one that is known. Empty: there are no copies.
    pub fork: Vec<String>,
    pub prompt: PromptBy,
    pub output: Output,
    /// The last message of the conversation that a turn has ended with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_message_id: Option<String>,
}

/// How the agent is given a prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromptBy {
    /// No other user sees it there, and it may be of any length.
    #[default]
    Stdin,
    /// In place of [`PROMPT`], where everybody on the machine can read it.
    Argument,
}

/// What the agent prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Output {
    /// Its answer, and nothing else.
    #[default]
    Text,
    /// JSON, a message on each line, in the manner of `claude -p --output-format stream-json`.
    StreamJson,
}

/// Which conversation a turn belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConversationTarget<'a> {
    New {
        /// The id that it is to have, where the caller chooses it.
        id: Option<&'a str>,
    },
    Resume {
        /// `None`: the agent knows by itself which was the last.
        id: Option<&'a str>,
        message_id: Option<&'a str>,
    },
    Fork {
        id: &'a str,
    },
}

impl CommandLine {
    /// Whether the id of a new conversation is ours to choose.
    pub fn chooses_id(&self) -> bool {
        names(&self.new, AGENT_SESSION_ID)
    }

    /// Whether a conversation whose id is not known can be continued.
    pub fn resumes_the_last(&self) -> bool {
        !self.resume.is_empty() && !names(&self.resume, AGENT_SESSION_ID)
    }

    /// Why no agent can be given a prompt with this.
    pub fn fault(&self) -> Option<&'static str> {
        let ways = [&self.new, &self.resume, &self.resume_at, &self.fork];
        let holds = |way: &&Vec<String>| names(way, PROMPT);
        let forgets = |way: &&Vec<String>| !way.is_empty() && !names(way, PROMPT);
        match self.prompt {
            PromptBy::Argument if self.new.is_empty() || ways.iter().any(forgets) => {
                Some("The prompt is to be an argument, and one of the ways leaves it out")
            }
            PromptBy::Stdin if ways.iter().any(holds) => {
                Some("The prompt is to be read, and stands in an argument, too")
            }
            _ => None,
        }
    }

    /// Why a conversation cannot be forked.
    pub fn fork_fault(&self) -> Option<&'static str> {
        if self.fork.is_empty() {
            return Some("This agent has no way to fork a conversation");
        }
        let is_named = self.output == Output::StreamJson;
        (!is_named).then_some("An agent that prints text alone does not name what it forks")
    }

    /// The arguments for one turn. Where a conversation cannot be continued, a new one begins.
    pub fn arguments(&self, way: ConversationTarget<'_>, prompt: &str) -> Vec<String> {
        let (template, id, message_id) = match way {
            ConversationTarget::New { id } => (&self.new, id, None),
            ConversationTarget::Resume { id: Some(id), .. } | ConversationTarget::Fork { id }
                if !is_fit(id) =>
            {
                (&self.new, None, None)
            }
            ConversationTarget::Resume { id, message_id: Some(at) }
                if is_fit(at) && !self.resume_at.is_empty() =>
            {
                (&self.resume_at, id, Some(at))
            }
            ConversationTarget::Resume { id, .. } if !self.resume.is_empty() => {
                (&self.resume, id, None)
            }
            ConversationTarget::Fork { id } if !self.fork.is_empty() => {
                (&self.fork, Some(id), None)
            }
            // To continue the original instead of a copy would be something else.
            ConversationTarget::Resume { .. } | ConversationTarget::Fork { .. } => {
                (&self.new, None, None)
            }
        };
        let values = [
            (AGENT_SESSION_ID, id.unwrap_or_default()),
            (AGENT_MESSAGE_ID, message_id.unwrap_or_default()),
            (PROMPT, prompt),
        ];
        let mut arguments: Vec<String> = Vec::with_capacity(template.len());
        for argument in template {
            let mut filled = fill(argument, &values);
            let is_behind_options = arguments.last().is_some_and(|before| before == "--");
            if argument == PROMPT && !is_behind_options && filled.starts_with('-') {
                // The author of a prompt must not be able to give options with it.
                filled.insert(0, ' ');
            }
            arguments.push(filled);
        }
        arguments
    }
}

/// Ids come from agents, and from bundles that others made: one that a program would take for
/// an option is none.
fn is_fit(id: &str) -> bool {
    !id.is_empty() && !id.starts_with('-') && !id.contains('\0')
}

fn names(template: &[String], placeholder: &str) -> bool {
    template.iter().any(|argument| argument.contains(placeholder))
}

/// Goes over the template once, so that a prompt which holds a placeholder stays as it is.
fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let mut filled = String::new();
    let mut rest = template;
    while let Some(at) = rest.find('{') {
        let (before, from) = rest.split_at(at);
        filled.push_str(before);
        let found = values.iter().find_map(|(name, value)| Some((from.strip_prefix(name)?, value)));
        rest = if let Some((behind, value)) = found {
            filled.push_str(value);
            behind
        } else {
            filled.push('{');
            &from[1..]
        };
    }
    filled.push_str(rest);
    filled
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn line() -> CommandLine {
        CommandLine {
            new: words("-p"),
            resume: words("-p --resume {agent_session_id}"),
            resume_at: words("-p --resume {agent_session_id} --at={agent_message_id}"),
            fork: words("-p --resume {agent_session_id} --fork"),
            ..CommandLine::default()
        }
    }

    /// Each way has its arguments, and what is not there is not asked for.
    #[test]
    fn arguments_of_each_way() {
        let line = line();
        let resume = |message_id| ConversationTarget::Resume { id: Some("s1"), message_id };
        for (way, expected) in [
            (ConversationTarget::New { id: None }, "-p"),
            (resume(None), "-p --resume s1"),
            (resume(Some("m1")), "-p --resume s1 --at=m1"),
            (ConversationTarget::Fork { id: "s1" }, "-p --resume s1 --fork"),
        ] {
            assert_eq!(line.arguments(way, "do it"), words(expected), "{way:?}");
        }
        let whole = CommandLine { resume_at: Vec::new(), ..line };
        assert_eq!(whole.arguments(resume(Some("m1")), ""), words("-p --resume s1"));
    }

    #[test]
    fn what_it_cannot_do_leaves_the_original_alone() {
        let less = CommandLine { resume: Vec::new(), fork: Vec::new(), ..line() };
        for way in [
            ConversationTarget::Resume { id: Some("s1"), message_id: None },
            ConversationTarget::Fork { id: "s1" },
        ] {
            assert_eq!(less.arguments(way, ""), words("-p"), "{way:?}");
        }
    }

    /// An imported session may name any id.
    #[test]
    fn an_id_cannot_be_an_option() {
        let line = line();
        for id in ["--allow-everything", "-x", "", "a\0b"] {
            let resume = ConversationTarget::Resume { id: Some(id), message_id: None };
            assert_eq!(line.arguments(resume, ""), words("-p"), "{id:?}");
            assert_eq!(line.arguments(ConversationTarget::Fork { id }, ""), words("-p"), "{id:?}");
            let at = ConversationTarget::Resume { id: Some("s1"), message_id: Some(id) };
            assert_eq!(line.arguments(at, ""), words("-p --resume s1"), "{id:?}");
        }
        let named =
            ConversationTarget::Resume { id: Some("{agent_message_id}"), message_id: Some("m1") };
        let expected = words("-p --resume {agent_message_id} --at=m1");
        assert_eq!(line.arguments(named, ""), expected, "what was put in is not looked at again");
    }

    /// A prompt is data: neither placeholders nor options in it mean anything.
    #[test]
    fn a_prompt_stays_what_it_is() {
        let with = |new: &str| CommandLine {
            new: words(new),
            prompt: PromptBy::Argument,
            ..CommandLine::default()
        };
        let id = ConversationTarget::New { id: Some("s1") };
        let sly = "--yes {agent_session_id} {prompt} {";
        let spaced = format!(" {sly}");
        for (new, expected) in [
            ("--id {agent_session_id} {prompt}", vec!["--id", "s1", &spaced]),
            ("-- {prompt}", vec!["--", sly]),
            ("{{prompt} {other}", vec!["{--yes {agent_session_id} {prompt} {", "{other}"]),
        ] {
            assert_eq!(with(new).arguments(id, sly), expected, "{new}");
        }
    }

    #[test]
    fn what_cannot_work_is_said() {
        let argument = CommandLine { prompt: PromptBy::Argument, ..line() };
        assert!(argument.fault().is_some());
        let new = words("-p {prompt}");
        assert!(CommandLine { new: new.clone(), ..argument.clone() }.fault().is_some());
        assert!(CommandLine { new: new.clone(), ..line() }.fault().is_some(), "read and given");
        let alone = CommandLine { new, prompt: PromptBy::Argument, ..CommandLine::default() };
        assert_eq!((line().fault(), alone.fault()), (None, None));
        assert!(line().fork_fault().is_some(), "text does not name the copy");
        let json = CommandLine { output: Output::StreamJson, ..line() };
        assert_eq!(json.fork_fault(), None);
        assert!(CommandLine { fork: Vec::new(), ..json }.fork_fault().is_some());
    }

    #[test]
    fn it_is_written_as_it_is_documented() {
        let text = r#"{"new":["-p"],"resume":["-r","{agent_session_id}"],"resume_at":[],"fork":[],"prompt":"argument","output":"stream_json","agent_message_id":"m1"}"#;
        let line: CommandLine = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&line).unwrap(), text);
        assert_eq!(serde_json::from_str::<CommandLine>("{}").unwrap(), CommandLine::default());
        assert!(!line.resumes_the_last() && !line.chooses_id());
        let own =
            CommandLine { new: words("--id {agent_session_id}"), resume: words("-c"), ..line };
        assert!(own.resumes_the_last() && own.chooses_id());
    }
}
