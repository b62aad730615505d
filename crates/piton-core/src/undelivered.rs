//! Which prompts that no agent was given go with the next one. An agent that accepted a prompt is not
//! given it again, and one that did not is given it, with or without an interruption summary.
//!
//! Each prompt to an agent is a command, and agentctl's journal knows which commands were accepted. The
//! log learns it from the spool, perhaps later: where that may be so, agentctl is asked first
//! ([`unsettled`]). What it answers becomes a record, and what is left then is [`due`].

use std::collections::BTreeSet;

use crate::event::Seq;
use crate::id::ExecutionId;
use crate::state::{Prepared, State, UndeliveredPrompt};

/// The commands that may have given this execution's agent an undelivered prompt, by the records that
/// demanded them. Nothing demands them any more: agentctl is to withdraw those that it has not accepted.
/// `of_seq`: the record that demands the prompt which is being prepared.
pub fn unsettled(state: &State, execution: &ExecutionId, of_seq: Seq) -> BTreeSet<Seq> {
    if state.pending_context.undelivered.is_empty() || is_carried(state, execution, of_seq) {
        return BTreeSet::new();
    }
    let own = state.pending_context.undelivered.iter();
    let own = own.filter(|prompt| prompt.execution_id.as_ref() == Some(execution));
    let carrier = other_prepared(state, execution, of_seq);
    own.map(|prompt| prompt.of_seq).chain(carrier.map(|carrier| carrier.of_seq)).collect()
}

/// The undelivered prompts that the prompt of `of_seq` carries, oldest first, once no command is
/// [`unsettled`] any more.
pub fn due<'a>(
    state: &'a State,
    execution: &ExecutionId,
    of_seq: Seq,
) -> impl Iterator<Item = &'a UndeliveredPrompt> {
    let is_carried = is_carried(state, execution, of_seq);
    state.pending_context.undelivered.iter().filter(move |_| !is_carried)
}

/// Another prompt to this agent has them, and is still to be given.
fn is_carried(state: &State, execution: &ExecutionId, of_seq: Seq) -> bool {
    let carrier = other_prepared(state, execution, of_seq);
    carrier.is_some_and(|carrier| state.pending.contains_key(&carrier.of_seq))
}

fn other_prepared<'a>(
    state: &'a State,
    execution: &ExecutionId,
    of_seq: Seq,
) -> Option<&'a Prepared> {
    let prepared = state.prepared.as_ref();
    prepared.filter(|prepared| prepared.execution_id == *execution && prepared.of_seq != of_seq)
}
