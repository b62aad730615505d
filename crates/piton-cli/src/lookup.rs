//! From the beginning of an id to the session.

use piton_core::Code;
use piton_core::id::SessionId;
use piton_runtime::View;
use piton_store::{Query, Select};

use crate::error::{Error, Result};

/// Sessions that are looked through for a beginning; with more, only whole ids are taken.
const SCANNED_MAX: usize = 10_000;
const PAGE: usize = 1_000;
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
            Some(_) if scanned >= SCANNED_MAX => {
                let message = format!(
                    "There is no session {id}, and too many sessions to look for one that begins so"
                );
                return Err(Error::new(Code::SessionAmbiguous, message)
                    .with_hint("Give the session's whole id."));
            }
            next => after = next,
        }
    }
    match found.as_slice() {
        [] => Err(Error::new(Code::SessionUnknown, format!("There is no session {id}"))),
        [only] => Ok(only.clone()),
        several => Err(ambiguous(&id, several)),
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
