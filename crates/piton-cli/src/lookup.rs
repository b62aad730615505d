//! From what a user calls a session, task or wait to its id: the id, the beginning or the end of it;
//! `@last` for a session.

use std::fmt;
use std::str::FromStr;

use piton_api::client::Client;
use piton_api::session::SessionQuery;
use piton_api::task::TaskQuery;
use piton_core::Code;
use piton_core::id::{self, SessionId, TaskId, WaitId};
use piton_runtime::View;
use piton_store::{Query, Select};

use crate::error::{Error, Result};
use crate::ids::is_part;

/// Sessions that are searched for a part of an id; a larger store takes only whole ids.
const SCANNED_MAX: usize = 10_000;
const PAGE_SESSIONS: usize = 1_000;
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
        let query = Query { task_id: None, select: Select::All, after, limit: PAGE_SESSIONS };
        let page = view.store().list(query).await?;
        scanned += page.rows.len();
        let ids = page.rows.into_iter().map(|row| row.session);
        found.extend(ids.filter(|one| is_part(id.as_str(), one.as_str())));
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
        found.extend(ids.filter(|one| is_part(id.as_str(), one.as_str())));
        match page.next {
            Some(_) if scanned >= SCANNED_MAX => return Err(too_many(&id)),
            None => break,
            next => query.after = next,
        }
    }
    the_only_one(&id, found)
}

/// The task of this name, asked of the server.
pub(crate) async fn task_on(client: &Client, name: &str) -> Result<TaskId> {
    let id: TaskId = name.parse()?;
    match client.task(&id).await {
        Ok(_) => return Ok(id),
        Err(error) if error.code() == Some(Code::TaskNotFound) => {}
        Err(error) => return Err(error.into()),
    }
    let (mut found, mut scanned) = (Vec::new(), 0);
    let mut query = TaskQuery { limit: Some(SERVED_PAGE), after: None };
    loop {
        let page = client.tasks(&query).await?;
        scanned += page.tasks.len();
        let ids = page.tasks.into_iter().map(|task| task.task_id);
        found.extend(ids.filter(|one| is_part(name, one.as_str())));
        match page.next {
            Some(_) if scanned < SCANNED_MAX => query.after = page.next,
            _ => break,
        }
    }
    the_only_task(&id, found)
}

/// The task of this name among those that the store's sessions belong to.
pub(crate) async fn task(view: &View, name: &str) -> Result<TaskId> {
    let id: TaskId = name.parse()?;
    let mut found = Vec::new();
    let (mut after, mut scanned) = (None, 0);
    loop {
        let query = Query { task_id: None, select: Select::All, after, limit: PAGE_SESSIONS };
        let page = view.store().list(query).await?;
        scanned += page.rows.len();
        for task in page.rows.into_iter().filter_map(|row| row.summary.info.task_id) {
            if task == id {
                return Ok(id);
            }
            if is_part(name, task.as_str()) && !found.contains(&task) {
                found.push(task);
            }
        }
        match page.next {
            Some(_) if scanned < SCANNED_MAX => after = page.next,
            _ => break,
        }
    }
    // A task without sessions has an empty list.
    if found.is_empty() { Ok(id) } else { the_only_task(&id, found) }
}

fn the_only_task(id: &TaskId, mut found: Vec<TaskId>) -> Result<TaskId> {
    match (found.pop(), found.len()) {
        (None, _) => Err(Error::new(Code::TaskNotFound, format!("There is no task {id}"))
            .with_hint("`piton tasks list` shows the tasks.")),
        (Some(only), 0) => Ok(only),
        (Some(last), _) => {
            found.push(last);
            let names: Vec<&str> = found.iter().map(TaskId::as_str).collect();
            let message = format!("{} tasks begin or end with {id}", names.len());
            Err(Error::usage(&message).with_hint(more_of(&names)))
        }
    }
}

/// The wait of this name among open ones; `None` if there is none.
pub(crate) fn wait<'a>(
    name: &str,
    open: impl IntoIterator<Item = &'a WaitId>,
) -> Result<Option<WaitId>> {
    let mut found: Vec<&WaitId> =
        open.into_iter().filter(|wait| is_part(name, wait.as_str())).collect();
    if let Some(whole) = found.iter().find(|wait| wait.as_str() == name) {
        return Ok(Some((*whole).clone()));
    }
    match (found.pop(), found.len()) {
        (None, _) => Ok(None),
        (Some(only), 0) => Ok(Some(only.clone())),
        (Some(last), _) => {
            found.push(last);
            let names: Vec<&str> = found.into_iter().map(WaitId::as_str).collect();
            let message = format!("{} open waits begin or end with {name}", names.len());
            Err(Error::usage(&message).with_hint(more_of(&names)))
        }
    }
}

fn more_of(names: &[&str]) -> String {
    let mut names = names.to_vec();
    names.sort_unstable();
    let more = match names.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    names.truncate(NAMED_MAX);
    format!("Give more of the id: {}{more}.", names.join(", "))
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
    let named: Vec<&str> = found.iter().map(SessionId::as_str).collect();
    let message = format!("{} sessions begin or end with {id}", found.len());
    Error::new(Code::SessionAmbiguous, message).with_hint(more_of(&named))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_named_by_either_end() {
        let open: Vec<WaitId> =
            ["wait_01aa-11", "wait_01aa-21"].map(|id| id.parse().unwrap()).to_vec();
        assert_eq!(wait("-21", &open).unwrap(), Some(open[1].clone()));
        assert_eq!(wait("wait_01aa-11", &open).unwrap(), Some(open[0].clone()));
        assert_eq!(wait("wait_02", &open).unwrap(), None);
        assert!(wait("1", &open).unwrap_err().message().contains("2 open waits"));
    }

    #[test]
    fn last_is_a_name_and_other_signs_are_not() {
        assert_eq!("@last".parse::<SessionName>().unwrap(), SessionName::Last);
        assert_eq!(SessionName::Last.to_string(), "@last");
        assert!("@first".parse::<SessionName>().is_err());
        assert!("_piton".parse::<SessionName>().is_err());
    }
}
