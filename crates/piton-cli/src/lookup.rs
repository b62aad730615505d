//! From what a user calls a session to its id: the id, the beginning or the end of it, or `@last`.

use std::fmt;
use std::str::FromStr;

use piton_api::client::Client;
use piton_api::session::SessionQuery;
use piton_core::Code;
use piton_core::id::{self, SessionId};
use piton_runtime::View;
use piton_store::{Query, Select};

use crate::error::{Error, Result};

/// Sessions that are searched for a part of an id; a larger store takes only whole ids.
const SCANNED_MAX: usize = 10_000;
const PAGE: usize = 1_000;
/// The longest page that a server gives.
const SERVED_PAGE: usize = 200;
/// Candidates that an error names.
const NAMED_MAX: usize = 5;
const LAST: &str = "@last";

/// How a user names a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SessionName {
    /// Its id, or the beginning or the end of it.
    Id(SessionId),
    /// The session that was active last.
    Last,
}

impl FromStr for SessionName {
    type Err = id::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == LAST { Ok(Self::Last) } else { SessionId::from_user(text).map(Self::Id) }
    }
}

impl fmt::Display for SessionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => id.fmt(f),
            Self::Last => f.write_str(LAST),
        }
    }
}

/// The session of this name in an open store.
pub(crate) async fn session(view: &View, name: SessionName) -> Result<SessionId> {
    let id = match name {
        SessionName::Id(id) => id,
        SessionName::Last => {
            let query = Query { task_id: None, select: Select::All, after: None, limit: 1 };
            let last = view.store().list(query).await?.rows.into_iter().next();
            return last.map(|row| row.session).ok_or_else(none);
        }
    };
    if view.store().head(&id).await?.is_some() {
        return Ok(id);
    }
    let mut found = Vec::new();
    let (mut after, mut scanned) = (None, 0);
    loop {
        let query = Query { task_id: None, select: Select::All, after, limit: PAGE };
        let page = view.store().list(query).await?;
        scanned += page.rows.len();
        let ids = page.rows.into_iter().map(|row| row.session);
        found.extend(ids.filter(|one| is_part(&id, one)));
        match page.next {
            None => break,
            Some(_) if scanned >= SCANNED_MAX => return Err(too_many(&id)),
            next => after = next,
        }
    }
    the_only_one(&id, found)
}

/// The session of this name, asked of the server that has the store.
pub(crate) async fn session_on(client: &Client, name: SessionName) -> Result<SessionId> {
    let id = match name {
        SessionName::Id(id) => id,
        SessionName::Last => {
            let query = SessionQuery { limit: Some(1), ..SessionQuery::default() };
            let last = client.sessions(&query).await?.sessions.into_iter().next();
            return last.map(|session| session.session_id).ok_or_else(none);
        }
    };
    match client.session(&id).await {
        Ok(_) => return Ok(id),
        Err(error) if error.code() == Some(Code::SessionNotFound) => {}
        Err(error) => return Err(error.into()),
    }
    let (mut found, mut scanned) = (Vec::new(), 0);
    let mut query = SessionQuery { limit: Some(SERVED_PAGE), ..SessionQuery::default() };
    loop {
        let page = client.sessions(&query).await?;
        scanned += page.sessions.len();
        let ids = page.sessions.into_iter().map(|session| session.session_id);
        found.extend(ids.filter(|one| is_part(&id, one)));
        match page.next {
            Some(_) if scanned >= SCANNED_MAX => return Err(too_many(&id)),
            None => break,
            next => query.after = next,
        }
    }
    the_only_one(&id, found)
}

/// Ids begin with the time of their creation: sessions of one day differ at the end.
fn is_part(part: &SessionId, whole: &SessionId) -> bool {
    whole.as_str().starts_with(part.as_str()) || whole.as_str().ends_with(part.as_str())
}

pub(crate) fn none() -> Error {
    Error::new(Code::SessionNotFound, "There are no sessions")
        .with_hint("Begin one with `piton chat`.")
}

fn too_many(id: &SessionId) -> Error {
    let message =
        format!("There is no session {id}, and too many sessions to search for a part of an id");
    Error::new(Code::SessionAmbiguous, message).with_hint("Give the session's whole id.")
}

fn the_only_one(id: &SessionId, mut found: Vec<SessionId>) -> Result<SessionId> {
    match (found.pop(), found.as_slice()) {
        (None, _) => Err(Error::new(Code::SessionNotFound, format!("There is no session {id}"))),
        (Some(only), []) => Ok(only),
        (Some(last), _) => {
            found.push(last);
            Err(ambiguous(id, &found))
        }
    }
}

fn ambiguous(id: &SessionId, found: &[SessionId]) -> Error {
    let mut named: Vec<&str> = found.iter().map(SessionId::as_str).collect();
    named.sort_unstable();
    let more = match named.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    named.truncate(NAMED_MAX);
    let message = format!("{} sessions begin or end with {id}", found.len());
    Error::new(Code::SessionAmbiguous, message)
        .with_hint(format!("Give more of the id: {}{more}.", named.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_a_beginning_or_an_end() {
        let whole: SessionId = "sess_0199-3f9a".parse().unwrap();
        for (part, is) in
            [("sess_0199", true), ("3f9a", true), ("sess_0199-3f9a", true), ("0199", false)]
        {
            assert_eq!(is_part(&part.parse().unwrap(), &whole), is, "{part}");
        }
    }

    #[test]
    fn last_is_a_name_and_other_signs_are_not() {
        assert_eq!("@last".parse::<SessionName>().unwrap(), SessionName::Last);
        assert_eq!(SessionName::Last.to_string(), "@last");
        assert!("@first".parse::<SessionName>().is_err());
        assert!("_piton".parse::<SessionName>().is_err());
    }
}
