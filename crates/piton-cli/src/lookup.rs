//! From the beginning of an id to the session.

use piton_api::client::Client;
use piton_api::session::SessionQuery;
use piton_core::Code;
use piton_core::id::SessionId;
use piton_runtime::View;
use piton_store::{Query, Select};

use crate::error::{Error, Result};

/// Sessions that are looked through for a beginning; with more, only whole ids are taken.
const SCANNED_MAX: usize = 10_000;
const PAGE: usize = 1_000;
/// The longest page that a server gives.
const SERVED_PAGE: usize = 200;
/// Candidates that an error names.
const NAMED_MAX: usize = 5;

/// The session with this id, or the only one whose id begins like this.
pub(crate) async fn session(view: &View, id: SessionId) -> Result<SessionId> {
    if view.store().head(&id).await?.is_some() {
        return Ok(id);
    }
    let mut found = Vec::new();
    let (mut after, mut scanned) = (None, 0);
    loop {
        let query = Query { task_id: None, select: Select::All, after, limit: PAGE };
        let page = view.store().list(query).await?;
        scanned += page.rows.len();
        let begins = |row: &piton_store::Row| row.session.as_str().starts_with(id.as_str());
        found.extend(page.rows.into_iter().filter(begins).map(|row| row.session));
        match page.next {
            None => break,
            Some(_) if scanned >= SCANNED_MAX => return Err(too_many(&id)),
            next => after = next,
        }
    }
    the_only_one(&id, found)
}

/// The same, asked of the server that has the store.
pub(crate) async fn session_on(client: &Client, id: SessionId) -> Result<SessionId> {
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
        found.extend(ids.filter(|one| one.as_str().starts_with(id.as_str())));
        match page.next {
            Some(_) if scanned >= SCANNED_MAX => return Err(too_many(&id)),
            None => break,
            next => query.after = next,
        }
    }
    the_only_one(&id, found)
}

fn too_many(id: &SessionId) -> Error {
    let message =
        format!("There is no session {id}, and too many sessions to look for one that begins so");
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
    let message = format!("{} sessions begin with {id}", found.len());
    Error::new(Code::SessionAmbiguous, message)
        .with_hint(format!("Give more of the id: {}{more}.", named.join(", ")))
}
