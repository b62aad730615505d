//! A question of a graph to a person, as it is shown and answered beside permission requests. Pure.

use piton_core::permission::PermissionRequest;
use serde_json::{Value, json};

use crate::commands::chat::screen::{self, Asked, Question};

/// The kind of request that such a question is.
pub(crate) const KIND: &str = "human";

/// The question that a record asks: a permission request, or the readable question of a graph.
pub(crate) fn question(record: &Value) -> Option<Question> {
    let asked = &record["question"];
    let Some(text) = asked["question"].as_str().filter(|_| record["wait_kind"] == KIND) else {
        return screen::question(record);
    };
    let request = json!({"toolCall": {"title": text, "kind": KIND}, "options": asked["options"]});
    let mut request = PermissionRequest::new(&request, []);
    text.clone_into(&mut request.title);
    let options = request.options.iter();
    let options = options.map(|option| (option.option_id.clone(), option.name.clone())).collect();
    let asked = Asked::default();
    Some(Question { wait_id: record["wait_id"].as_str()?.to_owned(), request, options, asked })
}

/// A graph asks, not an agent.
pub(crate) fn is_human(question: &Question) -> bool {
    question.request.kind.as_deref() == Some(KIND)
}

/// How the choice of an option is spelled.
pub(crate) fn answer_of(question: &Question, option_id: &str) -> Value {
    if is_human(question) { json!(option_id) } else { json!({"option_id": option_id}) }
}
