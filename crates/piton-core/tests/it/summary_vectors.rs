//! The interruption summary of a loop with phases of its own, and of an agent, whose phase follows from
//! the log. Clients in other languages write the text of a loop: the vectors are also read by the tests
//! of `web/client`.

use piton_core::Reason;
use piton_core::interruption::Activity;
use piton_core::interruption_summary::{
    self, Findings, LoopPhase, LoopRun, PathState, Stat, Truth,
};
use piton_core::tool_text::ToolText;
use serde::Deserialize;
use serde_json::Value;

const VECTORS: &str = include_str!("../fixtures/interruption-summary.json");

#[derive(Deserialize)]
struct Vector {
    name: String,
    /// `agent`; a loop without it.
    kind: Option<String>,
    findings: Value,
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
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AgentFound {
    interruption: Reason,
    activity: Activity,
    /// What the phase must be that follows.
    phase: Option<LoopPhase>,
    is_continued: bool,
    prompt: Option<String>,
    answer: String,
    calls: Vec<Call>,
    truth: Option<Seen>,
    truth_error: Option<String>,
}

#[derive(Deserialize)]
struct Call {
    name: String,
    arguments: Value,
    /// As agents send them.
    #[serde(default)]
    updates: Vec<Value>,
}

impl Call {
    fn text(self) -> ToolText {
        let mut text = ToolText::new(&self.name, Some(self.arguments));
        self.updates.iter().for_each(|update| text.update(update));
        text
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Seen {
    branch: Option<String>,
    head: Option<String>,
    changed: Vec<(String, String)>,
    more: u64,
    stat: Option<Stat>,
    #[serde(default)]
    truncated: bool,
    #[serde(default)]
    paths: Vec<(String, PathState)>,
}

impl From<Seen> for Truth {
    fn from(seen: Seen) -> Self {
        let Seen { branch, head, changed, more, stat, truncated, paths } = seen;
        Self { branch, head, changed, more, stat, truncated, paths }
    }
}

fn agent_findings(found: AgentFound) -> Findings {
    let calls: Vec<_> = found.calls.into_iter().map(Call::text).collect();
    let findings = Findings {
        interruption: Some(found.interruption),
        activity: Some(found.activity),
        prompt: found.prompt,
        answer: found.answer,
        calls_total: calls.len() as u64,
        calls,
        truth: found.truth.map(Truth::from),
        truth_error: found.truth_error,
        is_continued: found.is_continued,
        ..Findings::default()
    };
    assert_eq!(findings.phase(), found.phase);
    findings
}

fn findings(found: Found) -> Findings {
    let calls: Vec<_> = found.calls.into_iter().map(Call::text).collect();
    Findings {
        answer: found.answer,
        calls_total: calls.len() as u64,
        calls,
        truth: found.truth.map(Truth::from),
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
    let is_agent = |vector: &&Vector| vector.kind.as_deref() == Some("agent");
    let agents = vectors.iter().filter(is_agent).count();
    assert!(vectors.len() - agents >= 12, "every phase, with and without truth");
    assert!(agents >= 8, "every phase that follows from a log");
    for vector in vectors {
        let findings = match vector.kind.as_deref() {
            None => findings(serde_json::from_value(vector.findings).unwrap()),
            Some("agent") => agent_findings(serde_json::from_value(vector.findings).unwrap()),
            Some(other) => panic!("{other}"),
        };
        let text = interruption_summary::text(&findings, &vector.request);
        assert_eq!(text, vector.text, "{}", vector.name);
    }
}
