//! Records whose contents masking changes say so: what comes back from the log is not what was meant.

use piton_core::event::{
    ArtifactAdded, Event, LoopIterated, MapItemCompleted, MapListed, MemoryChanged, NodeSafePoint,
    OutputAdded,
};
use serde_json::{Map, Value};

/// The event of a record whose content masking changed; `None`: it says so already, or nothing is
/// restored from it.
pub(super) fn marked(event: &Event, before: &str, after: &str) -> Option<Event> {
    if before == after {
        return None;
    }
    let excluded = true;
    Some(match event {
        Event::MemoryChanged(e) if !e.excluded => MemoryChanged { excluded, ..e.clone() }.into(),
        Event::OutputAdded(e) => OutputAdded { excluded, ..e.clone() }.into(),
        Event::ArtifactAdded(e) => ArtifactAdded { excluded, ..e.clone() }.into(),
        Event::LoopIterated(e) => LoopIterated { excluded, ..e.clone() }.into(),
        Event::MapListed(e) => MapListed { excluded, ..e.clone() }.into(),
        Event::MapItemCompleted(e) => MapItemCompleted { excluded, ..e.clone() }.into(),
        Event::NodeSafePoint(e) => {
            let mut excluded_keys = e.excluded_keys.clone();
            excluded_keys.extend(changed_writes(before, after));
            NodeSafePoint { excluded_keys, ..e.clone() }.into()
        }
        _ => return None,
    })
}

/// The keys of a safe point's writes whose values differ.
fn changed_writes(before: &str, after: &str) -> Vec<String> {
    let writes = |text: &str| {
        let fields = serde_json::from_str::<Map<String, Value>>(text).unwrap_or_default();
        fields.get("writes").and_then(Value::as_object).cloned().unwrap_or_default()
    };
    let after = writes(after);
    let differs = |(key, value): &(String, Value)| after.get(key) != Some(value);
    writes(before).into_iter().filter(differs).map(|(key, _)| key).collect()
}
