//! The kinds of nodes that need no code: what each does in one attempt.

mod agent;
mod artifacts;
mod command;
pub(crate) mod leftovers;
mod looping;
mod mapping;

use serde_json::Value;
use std::time::Duration;

use crate::error::NodeError;
use crate::expression;
use crate::graph::{Body, Graph};
use crate::node::NodeContext;
use crate::spec::{NodeKind, NodeSpec};

/// Runs one attempt of a node.
pub(crate) async fn run(graph: &Graph, ctx: &mut NodeContext) -> Result<(), NodeError> {
    let path = ctx.of.path.clone();
    let Some(node) = graph.node(&path) else {
        return Err(NodeError::new(format!("There is no node `{path}`")).permanent());
    };
    if node.map.is_some() {
        return mapping::run(graph, node, ctx).await;
    }
    if node.repeat.is_some() {
        return looping::run(graph, node, ctx).await;
    }
    match &node.kind {
        NodeKind::Custom => match graph.body(&path) {
            Some(Body::Node(body)) => {
                let body = std::sync::Arc::clone(body);
                body.run(ctx).await
            }
            _ => Err(NodeError::new(format!("The node `{path}` has no code")).permanent()),
        },
        NodeKind::Set { values } => {
            let mut filled = Vec::new();
            for (key, value) in values {
                filled.push((key.clone(), expression::fill(value, &ctx.variables())?));
            }
            for (key, value) in filled {
                ctx.write(&key, value)?;
            }
            Ok(())
        }
        NodeKind::Template { text } => {
            let text = expression::render(text, &ctx.variables())?;
            write_result(node, ctx, text.into())
        }
        NodeKind::Command(spec) => {
            let argv = command::fill(spec, &ctx.variables())?;
            let stdin = command::stdin(&ctx.reads);
            let printed = command::run(spec, &argv, stdin, &ctx.of, &ctx.requests).await?;
            let value = command::value(spec.output, printed)?;
            write_result(node, ctx, value)
        }
        NodeKind::Subgraph(_) => {
            Err(NodeError::new(format!("The nodes of `{path}` run, and not itself")).permanent())
        }
        NodeKind::Agent(spec) => {
            let said = agent::run(spec, ctx).await?;
            write_result(node, ctx, said)
        }
        NodeKind::Human(human) => {
            let question = expression::render(&human.question, &ctx.variables())?;
            let deadline = human.deadline_ms.map(Duration::from_millis);
            let answer = ctx.wait_for(&question, &human.options, deadline).await?;
            write_result(node, ctx, plain_answer(answer))
        }
    }
}

/// An answer that chooses an option is the option's name; any other is written as it is.
fn plain_answer(answer: Value) -> Value {
    let chosen = answer.get("option_id").or_else(|| answer.get("optionId"));
    match chosen {
        Some(Value::String(option)) => option.clone().into(),
        _ => answer,
    }
}

fn write_result(node: &NodeSpec, ctx: &mut NodeContext, value: Value) -> Result<(), NodeError> {
    match node.result_key() {
        Some(key) => {
            let key = key.to_owned();
            ctx.write(&key, value)
        }
        None => Ok(()),
    }
}
