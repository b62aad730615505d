//! What `piton sessions show` says about the agent's own features.

use piton_api::status::ResumeNotice;
use piton_core::agent_view::{AgentView, ConfigValue, Selection};

use crate::text::one_line;

/// Models and commands that are named; some agents have more than a hundred.
const LISTED_MAX: usize = 8;
/// Fractions of a currency unit that are shown.
const COST_DIGITS: i32 = 4;

/// The first of these, and how many more there are.
fn listed(names: &[impl AsRef<str>], separator: &str) -> String {
    let first: Vec<&str> = names.iter().take(LISTED_MAX).map(AsRef::as_ref).collect();
    let first = first.join(separator);
    match names.len().saturating_sub(LISTED_MAX) {
        0 => first,
        more => format!("{first}{separator}and {more} more"),
    }
}

fn selection(of: Option<&Selection>) -> Option<String> {
    let of = of.filter(|selection| !selection.available.is_empty())?;
    let current = of.current.as_deref().unwrap_or("not known");
    let others = of.available.iter().map(|one| one.id.as_str());
    let others: Vec<&str> = others.filter(|id| Some(*id) != of.current.as_deref()).collect();
    let rest =
        if others.is_empty() { String::new() } else { format!(" (or {})", listed(&others, ", ")) };
    Some(one_line(&format!("{current}{rest}")))
}

/// A name and a text for each feature that the agent has told of, behind what to know before it is
/// resumed.
pub(super) fn facts(view: &AgentView, notices: &[ResumeNotice]) -> Vec<(&'static str, String)> {
    let mut facts: Vec<_> =
        notices.iter().map(|notice| ("Note", notice.sentence.clone())).collect();
    facts.extend(selection(view.modes.as_ref()).map(|text| ("Mode", text)));
    facts.extend(selection(view.models.as_ref()).map(|text| ("Model", text)));
    for option in &view.config_options {
        if matches!(option.category.as_deref(), Some("mode" | "model")) {
            continue;
        }
        let current = match &option.current {
            Some(ConfigValue::Bool(on)) => on.to_string(),
            Some(ConfigValue::Text(text)) => text.clone(),
            None => "not known".to_owned(),
        };
        facts.push(("Option", one_line(&format!("{}={current}", option.id))));
    }
    if !view.commands.is_empty() {
        let names: Vec<String> = view.commands.iter().map(|one| format!("/{}", one.name)).collect();
        facts.push(("Commands", one_line(&listed(&names, " "))));
    }
    if !view.plan.is_empty() {
        let done = view.plan.iter().filter(|one| one.status.as_deref() == Some("completed"));
        facts.push(("Plan", format!("{} of {} steps are done", done.count(), view.plan.len())));
    }
    if let Some(usage) = &view.usage {
        let mut parts = Vec::new();
        if let Some(used) = usage.context_tokens {
            let of = usage.context_window_tokens.map(|size| format!(" of {size}"));
            parts.push(format!("{used}{} tokens", of.unwrap_or_default()));
        }
        if let Some(amount) = usage.cost_amount {
            let currency = usage.cost_currency.as_deref().unwrap_or_default();
            let digits = 10_f64.powi(COST_DIGITS);
            parts.push(format!("{} {currency}", (amount * digits).round() / digits));
        }
        if !parts.is_empty() {
            facts.push(("Usage", one_line(&parts.join(", "))));
        }
    }
    if let Some(fork) = &view.fork {
        facts.push(("Fork of", fork.from_session_id.to_string()));
    }
    if !view.mcp_servers.is_empty() {
        facts.push(("MCP", one_line(&view.mcp_servers.join(", "))));
    }
    facts
}

#[cfg(test)]
mod tests {
    use piton_core::agent_view::{NamedChoice, PlanEntry, Usage};

    use super::*;

    #[test]
    fn only_what_the_agent_reported_is_shown() {
        assert_eq!(facts(&AgentView::default(), &[]), []);
        let named = |id: &str| NamedChoice { id: id.into(), name: id.into(), description: None };
        let entry = |status: &str| PlanEntry {
            content: "x".into(),
            status: Some(status.into()),
            priority: None,
        };
        let view = AgentView {
            modes: Some(Selection {
                current: Some("ask".into()),
                available: vec![named("ask"), named("code")],
            }),
            plan: vec![entry("completed"), entry("pending")],
            usage: Some(Usage {
                context_tokens: Some(10),
                context_window_tokens: Some(100),
                cost_amount: Some(0.002_400_000_000_000_000_2),
                cost_currency: Some("USD".into()),
                ..Usage::default()
            }),
            ..AgentView::default()
        };
        let expected = [
            ("Mode", "ask (or code)".to_owned()),
            ("Plan", "1 of 2 steps are done".to_owned()),
            ("Usage", "10 of 100 tokens, 0.0024 USD".to_owned()),
        ];
        assert_eq!(facts(&view, &[]), expected);
        let ids: Vec<String> = (0..11).map(|n| format!("m{n}")).collect();
        let models =
            Selection { current: None, available: ids.iter().map(|id| named(id)).collect() };
        let view = AgentView { models: Some(models), ..AgentView::default() };
        let text = "not known (or m0, m1, m2, m3, m4, m5, m6, m7, and 3 more)".to_owned();
        assert_eq!(facts(&view, &[]), [("Model", text)]);
    }
}
