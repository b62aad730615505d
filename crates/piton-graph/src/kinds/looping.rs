//! A node that runs again and again: a conversation that grows, and outputs that accumulate. Each
//! iteration is one record; after a crash the loop continues with the iteration that has none.

use std::sync::Arc;

use piton_core::Code;
use serde_json::{Map, Value, json};

use super::command;
use crate::error::NodeError;
use crate::expression;
use crate::graph::{Body, Graph};
use crate::node::{Asked, LoopContext, LoopStep, NodeContext};
use crate::spec::{CommandSpec, NodeKind, NodeSpec};

pub(super) async fn run(
    graph: &Graph,
    node: &NodeSpec,
    ctx: &mut NodeContext,
) -> Result<(), NodeError> {
    let Some(repeat) = &node.repeat else { return Ok(()) };
    let mut conversation = Arc::new(std::mem::take(&mut ctx.restored.conversation));
    let mut outputs = Arc::new(std::mem::take(&mut ctx.restored.outputs));
    let mut is_done = ctx.restored.is_done;
    let mut iteration = ctx.restored.iterations;
    // What the iteration that was cut off left at its safe point.
    let mut added = std::mem::take(&mut ctx.restored.messages);
    let mut changed = std::mem::take(&mut ctx.writes);
    let mut safe_point = ctx.restored.safe_point.take().map(|(why, _)| why);
    while !is_done {
        if iteration >= repeat.max_iterations {
            let message =
                format!("The loop did not end within {} iterations", repeat.max_iterations);
            return Err(NodeError::new(message).with_code(Code::LoopLimitReached).permanent());
        }
        let mut inner = LoopContext {
            of: ctx.of.clone(),
            reads: ctx.reads.clone(),
            iteration,
            conversation: Arc::clone(&conversation),
            outputs: Arc::clone(&outputs),
            added: std::mem::take(&mut added),
            changed: std::mem::take(&mut changed),
            safe_point: safe_point.take(),
            waits: 0,
            requests: ctx.requests.clone(),
        };
        let step = match (&node.kind, graph.body(&ctx.of.path)) {
            (NodeKind::Command(spec), _) => iterate_command(spec, &mut inner).await?,
            (_, Some(Body::Loop(body))) => Arc::clone(body).iterate(&mut inner).await?,
            _ => return Err(NodeError::new("The loop has no code").permanent()),
        };
        let LoopContext { added, changed, conversation: shared, outputs: shown, .. } = inner;
        drop((shared, shown));
        // No other reference is left: nothing is copied.
        Arc::make_mut(&mut conversation).extend(added.iter().cloned());
        Arc::make_mut(&mut outputs).extend(changed.clone());
        is_done = step == LoopStep::Done || is_until(repeat.until.as_deref(), &outputs)?;
        let done = is_done;
        let asked = Asked::Iteration { iteration, messages: added, outputs: changed, done };
        ctx.ask(asked).await?;
        iteration += 1;
    }
    for key in &node.writes {
        ctx.write(key, outputs.get(key).cloned().unwrap_or(Value::Null))?;
    }
    for (key, value) in &*outputs {
        ctx.output(key, value)?;
    }
    Ok(())
}

/// The condition's variables are the loop's outputs; one that is not set yet is nothing.
fn is_until(until: Option<&str>, outputs: &Map<String, Value>) -> Result<bool, NodeError> {
    let Some(until) = until else { return Ok(false) };
    let used = expression::variables(until)
        .map_err(|why| NodeError::new(why).with_code(Code::ExpressionFailed).permanent())?;
    let given = used.iter().map(|name| (name.as_str(), outputs.get(name).unwrap_or(&Value::Null)));
    expression::holds(until, &given.collect())
}

/// A command gets the iteration, the conversation and the outputs on standard input, too. It prints an
/// object with `messages`, `outputs` and `done`, or a text, which is one message.
async fn iterate_command(spec: &CommandSpec, ctx: &mut LoopContext) -> Result<LoopStep, NodeError> {
    let extra = [
        ("iteration".to_owned(), json!(ctx.iteration)),
        ("outputs".to_owned(), Value::Object((*ctx.outputs).clone())),
        ("conversation".to_owned(), Value::Array((*ctx.conversation).clone())),
    ];
    let mut reads = ctx.reads.clone();
    reads.extend(extra.into_iter().map(|(key, value)| (key, Arc::new(value))));
    let variables = reads.iter().map(|(key, value)| (key.as_str(), &**value)).collect();
    let argv = command::fill(spec, &variables)?;
    let mut of = ctx.of.clone();
    of.idempotency_key = ctx.idempotency_key();
    let printed = command::run(spec, &argv, command::stdin(&reads), &of, &ctx.requests).await?;
    let value = command::value(spec.output, printed)?;
    let Value::Object(mut step) = value else {
        ctx.say(value)?;
        return Ok(LoopStep::Continue);
    };
    if let Some(Value::Array(messages)) = step.remove("messages") {
        for message in messages {
            ctx.say(message)?;
        }
    }
    if let Some(Value::Object(outputs)) = step.remove("outputs") {
        for (key, value) in outputs {
            ctx.set_output(&key, value)?;
        }
    }
    let done = step.get("done").and_then(Value::as_bool).unwrap_or(false);
    Ok(if done { LoopStep::Done } else { LoopStep::Continue })
}
