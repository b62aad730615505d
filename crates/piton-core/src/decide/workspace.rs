//! A session's worktree: planned before git is run, prepared when it is there, removed when it is
//! not any more. What is so already is not recorded again.

use super::{Context, Decision, Refusal};
use crate::event::{WorkspacePlanned, WorkspacePrepared, WorkspaceRemoved};
use crate::record::NewRecord;
use crate::state::State;
use crate::worktree::{Stage, Worktree, WorktreePlan};

pub(super) fn planned(cx: &Context, plan: WorktreePlan) -> NewRecord {
    NewRecord::new(cx.now, WorkspacePlanned { plan })
}

/// One at a time: what is in the old one would be forgotten.
pub(super) fn plan(state: &State, cx: &Context, plan: WorktreePlan) -> Result<Decision, Refusal> {
    match &state.facts.worktree {
        None | Some(Worktree { stage: Stage::Removed { .. }, .. }) => {
            Ok(Decision::done(vec![planned(cx, plan)]))
        }
        Some(known) if known.plan == plan => Ok(Decision::already()),
        Some(known) => Err(Refusal::WorktreeExists { path: known.plan.path.clone() }),
    }
}

pub(super) fn prepared(
    state: &State,
    cx: &Context,
    plan: WorktreePlan,
) -> Result<Decision, Refusal> {
    let known = state.facts.worktree.as_ref().filter(|known| known.plan == plan);
    match known.map(|known| known.stage) {
        Some(Stage::Planned) => {
            Ok(Decision::done(vec![NewRecord::new(cx.now, WorkspacePrepared { plan })]))
        }
        Some(Stage::Prepared) => Ok(Decision::already()),
        Some(Stage::Removed { .. }) | None => Err(Refusal::WorktreeNotFound),
    }
}

pub(super) fn removed(state: &State, cx: &Context, kept_branch: bool) -> Result<Decision, Refusal> {
    let known = state.facts.worktree.as_ref().ok_or(Refusal::WorktreeNotFound)?;
    if known.stage == (Stage::Removed { kept_branch }) {
        return Ok(Decision::already());
    }
    let event = WorkspaceRemoved { path: known.plan.path.clone(), kept_branch };
    Ok(Decision::done(vec![NewRecord::new(cx.now, event)]))
}
