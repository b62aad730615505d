//! A node that runs once for each item of a list. The list is durable before the first item, each
//! result when its item is complete: an item that completed never runs again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use piton_core::Code;
use piton_core::limits::PAYLOAD_BYTES_MAX;
use serde_json::Value;
use tokio::task::JoinSet;

use super::{command, write_result};
use crate::error::NodeError;
use crate::expression;
use crate::graph::{Body, Graph};
use crate::node::{Asked, ItemContext, NodeContext, RestoredMap, check_size};
use crate::spec::{NodeKind, NodeSpec};

/// Most items of a list.
const ITEMS_MAX: usize = 100_000;

pub(super) async fn run(
    graph: &Graph,
    node: &NodeSpec,
    ctx: &mut NodeContext,
) -> Result<(), NodeError> {
    let Some(map) = &node.map else { return Ok(()) };
    let (items, mut results) = match ctx.restored.map.take() {
        Some(RestoredMap { items: Some(items), results, .. }) => (items, results),
        known => {
            let over = expression::whole_expression(&map.over).unwrap_or(&map.over);
            let Value::Array(items) = expression::evaluate(over, &ctx.variables())? else {
                let message = format!("`{}` is no list", map.over);
                return Err(NodeError::new(message).with_code(Code::ExpressionFailed).permanent());
            };
            if items.len() > ITEMS_MAX {
                let message =
                    format!("The list has {} items; {ITEMS_MAX} are the limit", items.len());
                return Err(NodeError::new(message).with_code(Code::LimitReached).permanent());
            }
            match known {
                // Masking changed the list: this is it, as it was.
                Some(RestoredMap { count, results, .. })
                    if usize::try_from(count) == Ok(items.len()) =>
                {
                    (items, results)
                }
                _ => {
                    ctx.ask(Asked::MapList { items: items.clone() }).await?;
                    (items, BTreeMap::new())
                }
            }
        }
    };
    let can_wait = matches!(node.kind, NodeKind::Custom);
    let mut parts = 1;
    let mut running = JoinSet::new();
    let mut left = (0..).zip(items).filter(|(index, _)| !results.contains_key(index));
    let mut left: Vec<(u32, Value)> = left.by_ref().collect();
    left.reverse();
    let mut failure = None;
    loop {
        // Who waits for people and who runs is the scheduler's to tell: it knows how many there are.
        let more = if failure.is_none() { left.len() } else { 0 };
        let count = (running.len() + more).min(map.parallel).max(1);
        if can_wait && count != parts {
            parts = count;
            ctx.ask(Asked::Parts { running: count }).await?;
        }
        while failure.is_none() && running.len() < map.parallel {
            let Some((index, item)) = left.pop() else { break };
            let (graph, node) = (graph.clone(), node.clone());
            let item = ItemContext {
                of: ctx.of.clone(),
                reads: ctx.reads.clone(),
                index,
                item,
                waits: AtomicU32::new(0),
                requests: ctx.requests.clone(),
            };
            running.spawn(async move {
                let value = one(&graph, &node, &item).await;
                (item.index, value)
            });
        }
        let Some(ended) = running.join_next().await else { break };
        let (index, value) = ended.map_err(|error| NodeError::new(error.to_string()))?;
        match value {
            Ok(value) => {
                check_size("item", &value)?;
                ctx.ask(Asked::MapItem { index, value: value.clone() }).await?;
                results.insert(index, value);
            }
            // Those that run are waited for: what they did is kept.
            Err(error) => {
                failure.get_or_insert(NodeError {
                    message: format!("Item {index}: {}", error.message),
                    ..error
                });
            }
        }
    }
    if let Some(error) = failure {
        return Err(error);
    }
    let list: Vec<Value> = results.into_values().collect();
    let list = Value::Array(list);
    if check_size("list", &list).is_err() {
        let message = format!("The results have more than {PAYLOAD_BYTES_MAX} bytes together");
        return Err(NodeError::new(message).with_code(Code::PayloadTooLarge).permanent());
    }
    write_result(node, ctx, list)
}

async fn one(graph: &Graph, node: &NodeSpec, item: &ItemContext) -> Result<Value, NodeError> {
    let name = node.map.as_ref().map_or("item", |map| map.item.as_str());
    let index = Value::from(item.index);
    let mut variables =
        item.reads.iter().map(|(k, v)| (k.as_str(), &**v)).collect::<BTreeMap<_, _>>();
    variables.insert(name, &item.item);
    variables.insert("index", &index);
    match &node.kind {
        NodeKind::Custom => match graph.body(&item.of.path) {
            Some(Body::Map(body)) => {
                let body = Arc::clone(body);
                body.item(item).await
            }
            _ => Err(NodeError::new("The map has no code").permanent()),
        },
        NodeKind::Command(spec) => {
            let argv = command::fill(spec, &variables)?;
            let mut reads = item.reads.clone();
            reads.insert(name.to_owned(), Arc::new(item.item.clone()));
            let mut of = item.of.clone();
            of.idempotency_key = item.idempotency_key();
            let stdin = command::stdin(&reads);
            let printed = command::run(spec, &argv, stdin, &of, &item.requests).await?;
            command::value(spec.output, printed)
        }
        NodeKind::Template { text } => Ok(expression::render(text, &variables)?.into()),
        NodeKind::Set { .. } | NodeKind::Human(_) | NodeKind::Agent(_) | NodeKind::Subgraph(_) => {
            Err(NodeError::new("This kind of node cannot be a map").permanent())
        }
    }
}
