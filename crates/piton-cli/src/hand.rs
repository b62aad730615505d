//! Who changes sessions: the data folder's server if one runs, since the sessions are its own; else
//! this process, as an offline writer. The one place that chooses.

use std::time::Duration;

use piton_core::decide::{self, Removal, Verdict};
use piton_core::id::{RunId, SessionId, WaitId};
use piton_core::worktree::Stage;
use piton_core::{Seq, State, Timestamp};
use piton_runtime::View;
use serde_json::{Value, json};

use crate::background;
use crate::client::{Client, encoded};
use crate::context::{Context, HeldWriter};
use crate::error::{Error, Result};
use crate::lookup;

#[derive(Debug)]
pub(crate) enum Hand {
    Server(Client),
    OfflineWriter(HeldWriter),
}

/// What ends a run without its agent's doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settling {
    Cancel,
    Dismiss,
}

impl Settling {
    fn path(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Dismiss => "dismiss",
        }
    }

    /// The status's reason when it was done before.
    fn reason(self) -> &'static str {
        match self {
            Self::Cancel => "run_cancelled",
            Self::Dismiss => "run_dismissed",
        }
    }
}

/// What became of a session's run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Settled {
    pub(crate) run_id: Option<String>,
    /// It was not so before.
    pub(crate) changed: bool,
    pub(crate) last_seq: Seq,
}

/// A secret, shown once.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) token_id: String,
    pub(crate) token: String,
}

/// A deleted session's worktree, which is still there.
#[derive(Debug)]
pub(crate) struct LeftWorktree {
    pub(crate) path: String,
    pub(crate) because: String,
}

/// The waits of a session that could be answered.
#[derive(Debug, Default)]
pub(crate) struct Waits(pub(crate) Vec<(WaitId, Option<Timestamp>)>);

impl Hand {
    /// For changing sessions; `None` if there is no store.
    fn of(cx: &Context) -> Result<Option<Self>> {
        match Client::find(&cx.settings.data.value) {
            Some(client) => Ok(Some(Self::Server(client))),
            None => Ok(cx.offline_writer()?.map(Self::OfflineWriter)),
        }
    }

    /// For changing one session, which may be named by the beginning of its id.
    pub(crate) async fn for_session(cx: &Context, session: &str) -> Result<(Self, SessionId)> {
        let id = SessionId::from_user(session)?;
        let Some(hand) = Self::of(cx)? else { return Err(cx.no_store(&id)) };
        let id = hand.find(id).await?;
        Ok((hand, id))
    }

    /// For changing several. All of them must be there; one that is named twice is meant once.
    pub(crate) async fn for_sessions(
        cx: &Context,
        sessions: &[String],
    ) -> Result<(Self, Vec<SessionId>)> {
        let Some(hand) = Self::of(cx)? else { return Err(cx.missing_store()) };
        let mut ids = Vec::new();
        for session in sessions {
            let id = hand.find(SessionId::from_user(session)?).await?;
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        Ok((hand, ids))
    }

    async fn find(&self, id: SessionId) -> Result<SessionId> {
        match self {
            Self::Server(client) => lookup::session_on(client, id).await,
            Self::OfflineWriter(held) => lookup::session(held.writer.view(), id).await,
        }
    }

    /// Ends a run: `run`, if it is still the session's, or the latest.
    pub(crate) async fn settle(
        &self,
        cx: &Context,
        session: &SessionId,
        run: Option<RunId>,
        how: Settling,
    ) -> Result<Settled> {
        match self {
            Self::Server(client) => {
                let before = status(client, session).await?;
                let path = format!("/api/v1/sessions/{session}/{}", how.path());
                let done = client.post(&path, &json!({"run_id": run})).await?;
                let after = status(client, session).await?;
                // Other records may come in between, so that both have to say it.
                let wrote = seq(&after) > seq(&before);
                Ok(Settled {
                    run_id: done["run_id"].as_str().map(str::to_owned),
                    changed: wrote && before["reason"] != how.reason(),
                    last_seq: seq(&after),
                })
            }
            Self::OfflineWriter(held) => {
                let ack = match how {
                    Settling::Cancel => held.writer.cancel(session, run).await,
                    Settling::Dismiss => held.writer.dismiss(session, run).await,
                };
                let ack = ack.map_err(|error| cx.name_owner(error))?;
                let run = held.writer.view().state(session).await?.facts.run;
                Ok(Settled {
                    run_id: run.map(|run| run.run_id.to_string()),
                    changed: ack.verdict != Verdict::Already,
                    last_seq: ack.last_seq,
                })
            }
        }
    }

    /// The waits that could be answered now.
    pub(crate) async fn waits(&self, session: &SessionId) -> Result<Waits> {
        match self {
            Self::Server(client) => {
                let status = status(client, session).await?;
                let waits = status["waits"].as_array().into_iter().flatten();
                let waits = waits.map(|wait| {
                    let id: WaitId = wait["wait_id"].as_str().unwrap_or_default().parse()?;
                    let deadline = wait["deadline_at"].as_str().and_then(|at| at.parse().ok());
                    Ok((id, deadline))
                });
                Ok(Waits(waits.collect::<Result<_>>()?))
            }
            Self::OfflineWriter(held) => {
                let view = held.writer.view();
                Ok(answerable(view, &view.state(session).await?))
            }
        }
    }

    /// A new token for a wait; the old one is revoked.
    pub(crate) async fn wait_token(
        &self,
        cx: &Context,
        session: &SessionId,
        wait: &WaitId,
    ) -> Result<Shown> {
        match self {
            Self::Server(client) => {
                let path = format!("/api/v1/waits/{wait}/token");
                Ok(minted(&client.post(&path, &json!({})).await?))
            }
            Self::OfflineWriter(held) => {
                let token = held.writer.rotate_token(session, wait).await;
                let token = token.map_err(|error| cx.name_owner(error))?;
                Ok(Shown { token_id: token.id.to_string(), token: token.reveal() })
            }
        }
    }

    /// A token with which the interrupted run can be resumed.
    pub(crate) async fn interruption_token(
        &self,
        cx: &Context,
        session: &SessionId,
        valid_for: Option<Duration>,
    ) -> Result<Shown> {
        match self {
            Self::Server(client) => {
                let body = json!({"valid_for_s": valid_for.map(|span| span.as_secs())});
                let path = format!("/api/v1/sessions/{session}/token");
                Ok(minted(&client.post(&path, &body).await?))
            }
            Self::OfflineWriter(held) => {
                let token = held.writer.interruption_token(session, valid_for).await;
                let token = token.map_err(|error| cx.name_owner(error))?;
                Ok(Shown { token_id: token.id.to_string(), token: token.reveal() })
            }
        }
    }

    /// What is in the way of a removal; nothing is changed.
    pub(crate) async fn may_remove(
        &self,
        cx: &Context,
        session: &SessionId,
        state: &State,
        how: Removal,
    ) -> Result<()> {
        match self {
            // The same rule that the server asks.
            Self::Server(_) => decide::may_remove(state, how)
                .map_err(|refusal| Error::new(refusal.code(), refusal.to_string())),
            Self::OfflineWriter(held) => {
                let may = held.writer.may_remove(session, how).await;
                may.map_err(|error| cx.name_owner(error))
            }
        }
    }

    pub(crate) async fn delete(
        &self,
        cx: &Context,
        session: &SessionId,
        how: Removal,
        reason: Option<&str>,
    ) -> Result<Option<LeftWorktree>> {
        match self {
            Self::Server(client) => {
                let force = how == Removal::DeleteForced;
                let reason = reason
                    .map_or_else(String::new, |reason| format!("&reason={}", encoded(reason)));
                let path = format!("/api/v1/sessions/{session}?force={force}{reason}");
                let answer = client.delete(&path).await?;
                let text = |name: &str| answer[name].as_str().map(str::to_owned);
                let (path, because) = (text("worktree_path"), text("left_because"));
                Ok(path.zip(because).map(|(path, because)| LeftWorktree { path, because }))
            }
            Self::OfflineWriter(held) => {
                let worktree = held.writer.view().state(session).await?.facts.worktree;
                let deleted = held.writer.delete(session, how, reason.map(str::to_owned)).await;
                deleted.map_err(|error| cx.name_owner(error))?;
                let there = worktree.filter(|w| !matches!(w.stage, Stage::Removed { .. }));
                Ok(there.map(|worktree| LeftWorktree {
                    path: worktree.plan.path,
                    because: "No server runs that could have looked at it".to_owned(),
                }))
            }
        }
    }
}

/// A server for what needs the session's agent; one is started if none runs.
pub(crate) async fn server_for(cx: &Context, session: &str) -> Result<(Client, SessionId)> {
    let id = SessionId::from_user(session)?;
    // A server would make a store that nobody asked for.
    if crate::stores::detect(&cx.settings.data.value)?.is_none() {
        return Err(cx.no_store(&id));
    }
    let client = background::ensure(cx).await?;
    let id = lookup::session_on(&client, id).await?;
    Ok((client, id))
}

/// Where a session stands, as the server says it.
pub(crate) async fn status(client: &Client, session: &SessionId) -> Result<Value> {
    client.get(&format!("/api/v1/sessions/{session}")).await
}

pub(crate) fn seq(status: &Value) -> Seq {
    status["last_seq"].as_u64().unwrap_or_default()
}

fn minted(answer: &Value) -> Shown {
    let text = |name: &str| answer[name].as_str().unwrap_or_default().to_owned();
    Shown { token_id: text("token_id"), token: text("token") }
}

fn answerable(view: &View, state: &State) -> Waits {
    let run = state.facts.run.as_ref().filter(|run| run.is_open());
    // Its waits died with it, though nobody has written that down yet.
    let run = run.filter(|_| view.stranded(&state.facts).is_none());
    let waits = run.iter().flat_map(|run| &run.waits);
    Waits(waits.map(|(id, wait)| (id.clone(), wait.deadline_at)).collect())
}
