//! Which sessions a store must have, by its metadata log: what was registered or imported, without
//! what was deleted or archived. A session that is listed here and has no log was taken away.

use std::collections::BTreeSet;

use crate::event::Event;
use crate::id::SessionId;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpectedSessions {
    sessions: BTreeSet<SessionId>,
}

impl ExpectedSessions {
    /// Applies an event of the metadata log, in the log's order.
    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::SessionRegistered(e) => drop(self.sessions.insert(e.session_id.clone())),
            Event::SessionImported(e) => drop(self.sessions.insert(e.session_id.clone())),
            Event::SessionDeleted(e) => drop(self.sessions.remove(&e.session_id)),
            Event::SessionArchived(e) => drop(self.sessions.remove(&e.session_id)),
            _ => {}
        }
    }

    pub fn contains(&self, session: &SessionId) -> bool {
        self.sessions.contains(session)
    }

    /// In their order.
    pub fn iter(&self) -> impl Iterator<Item = &SessionId> {
        self.sessions.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{SessionArchived, SessionDeleted, SessionImported, SessionRegistered};

    /// Wants to show: the last record about a session decides whether it must be there.
    #[test]
    fn the_last_record_decides() {
        let id = |name: &str| name.parse::<SessionId>().unwrap();
        let registered = |name| Event::from(SessionRegistered { session_id: id(name) });
        let deleted = |name| {
            let session_id = id(name);
            Event::from(SessionDeleted { session_id, last_seq: 1, chain: None, reason: None })
        };
        let archived = |name| {
            Event::from(SessionArchived {
                session_id: id(name),
                last_seq: 1,
                chain: String::new(),
                bundle: String::new(),
                digest: String::new(),
            })
        };
        let imported = |name| {
            let (session_id, chain) = (id(name), String::new());
            Event::from(SessionImported { session_id, last_seq: 1, chain })
        };
        let mut roster = ExpectedSessions::default();
        for event in [
            registered("kept"),
            registered("deleted"),
            registered("archived"),
            registered("back"),
            deleted("deleted"),
            archived("archived"),
            archived("back"),
            imported("back"),
            imported("new"),
            deleted("never_there"),
        ] {
            roster.apply(&event);
        }
        let listed: Vec<&str> = roster.iter().map(SessionId::as_str).collect();
        assert_eq!(listed, ["back", "kept", "new"]);
        assert!(roster.contains(&id("kept")) && !roster.contains(&id("deleted")));
    }
}
