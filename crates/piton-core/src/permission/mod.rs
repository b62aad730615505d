//! Permission requests: what an agent wants to do, whole and readable, and the standing rules that
//! answer some of them.
//!
//! Everything here trusts what the agent says about its own request. That is enough to keep an honest
//! agent from doing by accident what was not wanted; it is no boundary against the agent itself.

mod command;
mod glob;
mod request;
mod rules;

pub use request::{
    Diff, Location, PermissionOption, PermissionRequest, asked_call, normal_answer,
    update_of_intent,
};
pub(crate) use request::{capped, option_id};
pub use rules::{Action, AskReason, InvalidRule, Rule, RuleDecision, Rules, Subject};
