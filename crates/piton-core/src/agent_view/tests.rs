use serde_json::json;

use super::*;

fn configured(choice: Configure) -> AgentConfigured {
    AgentConfigured { choice }
}

fn said(what: &str) -> AgentUpdated {
    let execution_id = "exec_1".parse().unwrap();
    AgentUpdated { execution_id, what: what.to_owned(), run_id: None, truncated: false }
}

fn mode(mode: &str) -> Configure {
    Configure { mode: Some(mode.to_owned()), ..Configure::default() }
}

/// Wants to show: a choice is pending until the agent says so, or was started with it; one that the
/// agent refused is not given to the next one.
#[test]
fn a_choice_is_pending_until_an_agent_has_it() {
    let mut features = AgentFeatures::default();
    let is_pending =
        |features: &AgentFeatures| features.choices.mode.as_ref().map(|choice| choice.is_pending);
    features.configured(1, &configured(mode("plan")));
    assert_eq!(is_pending(&features), Some(true));
    features.updated(2, &said("mode"));
    assert_eq!(is_pending(&features), Some(false));
    features.configured(3, &configured(mode("code")));
    features.resuming(4);
    features.ready();
    assert_eq!(is_pending(&features), Some(false), "it was started with it");
    features.resuming(5);
    features.configured(6, &configured(mode("plan")));
    features.ready();
    assert_eq!(is_pending(&features), Some(true), "it was started without it");
    assert_eq!(features.choices.all(), mode("plan"));
    features.updated(7, &said("choice_refused:mode"));
    assert_eq!(features.choices.all(), Configure::default());
}

#[test]
fn what_an_agent_says_is_read_leniently() {
    let said = BTreeMap::from([
        (
            Feature::Modes,
            json!({"modes": {"currentModeId": "ask", "availableModes": [
                {"id": "ask", "name": "Ask"}, {"id": "code"}, {"name": "no id"}]}}),
        ),
        (Feature::Mode, json!({"currentModeId": "code"})),
        (
            Feature::Config,
            json!({"configOptions": [
                {"id": "m", "name": "Model", "category": "model", "type": "select",
                 "currentValue": "big", "options": [{"group": "g", "options": [
                    {"value": "big", "name": "Big"}, {"value": "small", "name": "Small"}]}]},
                {"id": "web", "name": "Web", "type": "boolean", "currentValue": true}]}),
        ),
        (
            Feature::Commands,
            json!({"availableCommands": [{"name": "test", "description": "Run", "input": {"hint": "what"}}]}),
        ),
        (Feature::Plan, json!({"entries": [{"content": "One", "status": "pending"}, 7]})),
        (
            Feature::Usage,
            json!({"used": 10, "size": 100, "cost": {"amount": 0.5, "currency": "USD"}}),
        ),
        (Feature::TurnUsage, json!({"inputTokens": 3, "outputTokens": "?"})),
    ]);
    let view = AgentView::new(&said, Choices::default());
    let modes = view.modes.clone().unwrap();
    assert_eq!((modes.current.as_deref(), modes.available.len()), (Some("code"), 2));
    let offered = view.models.clone().unwrap();
    assert_eq!((offered.current.as_deref(), offered.available.len()), (Some("big"), 2));
    assert_eq!(view.config_options[1].current, Some(ConfigValue::Bool(true)));
    assert_eq!(view.commands[0].hint.as_deref(), Some("what"));
    assert_eq!(view.plan.len(), 1);
    let usage = view.usage.clone().unwrap();
    assert_eq!((usage.context_tokens, usage.cost_amount), (Some(10), Some(0.5)));
    assert_eq!((usage.input_tokens, usage.output_tokens), (Some(3), None));

    assert_eq!(view.not_offered(&mode("ask")), None);
    let missing = view.not_offered(&mode("fly")).unwrap();
    assert_eq!((missing.what, missing.available.len()), ("mode", 2));
    let option = |id: &str, value: ConfigValue| Configure {
        options: BTreeMap::from([(id.to_owned(), value)]),
        ..Configure::default()
    };
    let small = || ConfigValue::Text("small".to_owned());
    assert_eq!(view.not_offered(&option("m", small())), None);
    assert_eq!(view.not_offered(&option("web", ConfigValue::Bool(false))), None);
    for wrong in
        [option("x", small()), option("web", small()), option("m", ConfigValue::Bool(true))]
    {
        assert!(view.not_offered(&wrong).is_some(), "{wrong:?}");
    }
}
