//! Which conversation the next turn resumes. The agent names its conversations, and may name
//! one otherwise than it was asked for: some make a copy for each turn and name that, some name one
//! at the beginning of a turn that they never write. So a name that is given at the beginning counts
//! where there is none yet, and where there is one only what the end of a good turn says.

/// Longer ones would not fit where they are kept.
const ID_BYTES_MAX: usize = 1_024;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Handle {
    id: Option<String>,
    /// What the conversation was called before: good, as far as is known, if the new name is not.
    earlier: Option<String>,
    /// The last message of a turn that ended well, if that was the last turn. After any other the
    /// agent may know more than that, which it should keep.
    message_id: Option<String>,
    /// The id is that of the original, and there is no copy yet.
    is_to_fork: bool,
    /// Some turn ended well.
    has_ended: bool,
    /// A name that we chose, and that is not noted yet.
    chosen: Option<String>,
}

/// How the command line of an agent names the conversation to resume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResumeSupport {
    ByName,
    /// It takes the last one that it had.
    TheLast,
    /// It cannot.
    Never,
}

/// The conversation that a turn begins, resumes or forks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    New,
    Resume {
        /// `None`: the last one, whatever its name.
        id: Option<&'a str>,
        message_id: Option<&'a str>,
    },
    Fork {
        id: &'a str,
    },
}

/// When the agent names its conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    AtStart,
    /// By the end of a turn that is none in error.
    AtEnd,
}

impl Handle {
    /// For one that nothing is known of.
    pub fn none() -> Self {
        Self::default()
    }

    pub fn to_resume(id: String, message_id: Option<String>) -> Self {
        Self { id: Some(id), message_id, ..Self::default() }
    }

    pub fn to_fork(id: String) -> Self {
        Self { id: Some(id), is_to_fork: true, ..Self::default() }
    }

    pub fn target(&self, resumes: ResumeSupport) -> Target<'_> {
        match &self.id {
            Some(id) if self.is_to_fork => Target::Fork { id },
            _ if resumes == ResumeSupport::Never => Target::New,
            Some(id) => Target::Resume { id: Some(id), message_id: self.message_id.as_deref() },
            None if self.has_ended && resumes == ResumeSupport::TheLast => {
                Target::Resume { id: None, message_id: None }
            }
            None => Target::New,
        }
    }

    /// The conversation's own; not that of one which is to be forked.
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref().filter(|_| !self.is_to_fork)
    }

    pub(super) fn choose(&mut self, id: String) {
        self.chosen = Some(id);
    }

    /// The name that we gave, if it is news.
    pub(super) fn take_chosen(&mut self) -> Option<String> {
        let chosen = self.chosen.take()?;
        self.id = Some(chosen.clone());
        Some(chosen)
    }

    /// Whether it is news.
    pub(super) fn named(&mut self, id: &str, when: Named) -> bool {
        let is_known = self.id.as_deref() == Some(id);
        let is_trusted = self.id().is_none() || when == Named::AtEnd;
        if !is_good(id) || is_known || !is_trusted {
            return false;
        }
        // The original of a copy is not another name of it.
        self.earlier = self.id.take().filter(|_| !self.is_to_fork);
        (self.id, self.is_to_fork, self.chosen) = (Some(id.to_owned()), false, None);
        true
    }

    pub(super) fn ended(&mut self, message_id: Option<String>) {
        self.message_id = message_id.filter(|id| is_good(id));
        self.has_ended = true;
    }

    /// A turn did not end well.
    pub(super) fn broken_off(&mut self) {
        (self.message_id, self.chosen) = (None, None);
    }

    /// The agent does not know it; gives what it does not know.
    pub(super) fn refuse(&mut self) -> Option<String> {
        let refused = self.id.take();
        self.id = self.earlier.take();
        (self.message_id, self.is_to_fork, self.has_ended) = (None, false, false);
        refused
    }
}

/// Whether it can be an argument without being taken for an option.
pub fn is_good(id: &str) -> bool {
    let is_plain = |c: char| !c.is_control() && !c.is_whitespace();
    !id.is_empty() && id.len() <= ID_BYTES_MAX && !id.starts_with('-') && id.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BY_NAME: ResumeSupport = ResumeSupport::ByName;

    fn resume<'a>(id: &'a str, message_id: Option<&'a str>) -> Target<'a> {
        Target::Resume { id: Some(id), message_id }
    }

    #[test]
    fn the_first_name_counts_and_later_ones_when_a_turn_has_ended() {
        let mut handle = Handle::none();
        assert_eq!(handle.target(BY_NAME), Target::New);
        assert!(handle.named("a", Named::AtStart));
        assert!(!handle.named("a", Named::AtEnd), "no news");
        assert_eq!(handle.target(BY_NAME), resume("a", None));
        assert!(!handle.named("tag", Named::AtStart));
        assert_eq!(handle.target(BY_NAME), resume("a", None));
        assert!(handle.named("b", Named::AtEnd));
        assert_eq!(handle.target(BY_NAME), resume("b", None));
        // What the agent knew it by before is not refused with it.
        assert_eq!(handle.refuse(), Some("b".to_owned()));
        assert_eq!(handle.target(BY_NAME), resume("a", None));
        assert_eq!(handle.refuse(), Some("a".to_owned()));
        assert_eq!(handle.target(BY_NAME), Target::New);
    }

    #[test]
    fn a_message_is_gone_on_from_only_if_it_was_the_last() {
        let mut handle = Handle::to_resume("a".to_owned(), Some("m0".to_owned()));
        assert_eq!(handle.target(BY_NAME), resume("a", Some("m0")));
        handle.ended(Some("m1".to_owned()));
        assert_eq!(handle.target(BY_NAME), resume("a", Some("m1")));
        handle.broken_off();
        assert_eq!(handle.target(BY_NAME), resume("a", None));
        handle.ended(Some("m2".to_owned()));
        handle.ended(None);
        assert_eq!(handle.target(BY_NAME), resume("a", None), "m2 is not the last any more");
    }

    #[test]
    fn a_fork_is_one_until_it_has_a_name() {
        let mut handle = Handle::to_fork("a".to_owned());
        assert_eq!((handle.target(BY_NAME), handle.id()), (Target::Fork { id: "a" }, None));
        handle.broken_off();
        assert!(!handle.named("a", Named::AtStart));
        assert_eq!(handle.target(BY_NAME), Target::Fork { id: "a" });
        assert!(handle.named("b", Named::AtStart));
        assert_eq!(handle.target(BY_NAME), resume("b", None));
        assert_eq!(handle.refuse(), Some("b".to_owned()));
        assert_eq!(handle.target(BY_NAME), Target::New, "the original is another");
    }

    #[test]
    fn a_chosen_name_counts_when_the_agent_has_spoken() {
        let mut handle = Handle::none();
        handle.choose("x".to_owned());
        handle.broken_off();
        assert_eq!(handle.take_chosen(), None, "perhaps the agent never heard of it");
        handle.choose("y".to_owned());
        assert_eq!(handle.take_chosen(), Some("y".to_owned()));
        assert_eq!(handle.target(BY_NAME), resume("y", None));
    }

    #[test]
    fn one_without_a_name_is_gone_on_with_by_those_who_take_the_last() {
        let mut handle = Handle::none();
        assert_eq!(handle.target(ResumeSupport::TheLast), Target::New, "there is none yet");
        handle.ended(None);
        let last = Target::Resume { id: None, message_id: None };
        assert_eq!(handle.target(ResumeSupport::TheLast), last);
        assert_eq!(handle.target(BY_NAME), Target::New);
        assert!(handle.named("a", Named::AtEnd));
        assert_eq!(handle.target(ResumeSupport::Never), Target::New, "it cannot be told");
    }

    #[test]
    fn a_name_that_could_be_an_option_is_none() {
        for id in ["", "-x", "--yes", "a b", "a\nb", &"x".repeat(ID_BYTES_MAX + 1)] {
            assert!(!Handle::none().named(id, Named::AtStart), "{id:?}");
        }
    }
}
