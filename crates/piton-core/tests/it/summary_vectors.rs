//! The interruption summary of a loop with phases of its own. Clients in other languages write the same
//! text: the vectors are also read by the tests of `web/client`.

use piton_core::interruption_summary::{self, Findings, LoopRun, Stat, Truth};
use piton_core::tool_text::ToolText;
use serde::Deserialize;
use serde_json::Value;

const VECTORS: &str = include_str!("../fixtures/interruption-summary.json");

#[derive(Deserialize)]
struct Vector {
    name: String,
    findings: Found,
    request: String,
    text: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Found {
    phase: interruption_summary::LoopPhase,
    round: u64,
    answer: String,
    answer_chars_max: Option<usize>,
    calls: Vec<Call>,
    coder_state: Option<String>,
    truth: Option<Seen>,
    truth_error: Option<String>,
}

#[derive(Deserialize)]
struct Call {
    name: String,
    arguments: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Seen {
    branch: Option<String>,
    head: Option<String>,
    changed: Vec<(String, String)>,
    more: u64,
    stat: Option<Stat>,
}

fn findings(found: Found) -> Findings {
    let calls: Vec<_> = found
        .calls
        .into_iter()
        .map(|call| ToolText::new(&call.name, Some(call.arguments)))
        .collect();
    Findings {
        answer: found.answer,
        calls_total: calls.len() as u64,
        calls,
        truth: found.truth.map(|seen| {
            let Seen { branch, head, changed, more, stat } = seen;
            Truth { branch, head, changed, more, stat }
        }),
        truth_error: found.truth_error,
        loop_run: Some(LoopRun {
            phase: found.phase,
            round: found.round,
            coder_state: found.coder_state,
            answer_chars_max: found.answer_chars_max,
        }),
        ..Findings::default()
    }
}

#[test]
fn the_summary_of_a_loop_is_the_same_in_every_language() {
    let vectors: Vec<Vector> = serde_json::from_str(VECTORS).unwrap();
    assert!(vectors.len() >= 12, "every phase, with and without truth");
    for vector in vectors {
        let text = interruption_summary::text(&findings(vector.findings), &vector.request);
        assert_eq!(text, vector.text, "{}", vector.name);
    }
}
