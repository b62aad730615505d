//! Templates and conditions. The variables are the keys of the memory; evaluation has limited fuel.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use minijinja::value::Serde;
use minijinja::{Environment, ErrorKind, UndefinedBehavior};
use piton_core::Code;
use serde_json::Value;

use crate::error::NodeError;

/// Instructions that one evaluation may take.
const FUEL: u64 = 100_000;
/// Longest text that a template may make, in bytes.
const TEXT_BYTES_MAX: usize = 8 * 1024 * 1024;

static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_fuel(Some(FUEL));
    environment
});

/// Variables by name.
pub(crate) type Variables<'a> = BTreeMap<&'a str, &'a Value>;

/// The variables of an expression; an error if it does not parse.
pub(crate) fn variables(expression: &str) -> Result<BTreeSet<String>, String> {
    let compiled = ENVIRONMENT.compile_expression_owned(expression.to_owned());
    let compiled = compiled.map_err(|error| plain(&error))?;
    Ok(compiled.undeclared_variables(false).into_iter().collect())
}

/// The variables of a template; an error if it does not parse.
pub(crate) fn template_variables(template: &str) -> Result<BTreeSet<String>, String> {
    let environment = &*ENVIRONMENT;
    let parsed = environment.template_from_str(template).map_err(|error| plain(&error))?;
    let functions = ["range", "dict", "namespace", "debug"];
    let variables = parsed.undeclared_variables(false).into_iter();
    Ok(variables.filter(|name| !functions.contains(&name.as_str())).collect())
}

/// The variables of all templates in a value.
pub(crate) fn value_variables(value: &Value) -> Result<BTreeSet<String>, String> {
    match value {
        Value::String(text) => match whole_expression(text) {
            Some(expression) => variables(expression),
            None => template_variables(text),
        },
        Value::Array(items) => items.iter().map(value_variables).try_fold(BTreeSet::new(), join),
        Value::Object(object) => {
            object.values().map(value_variables).try_fold(BTreeSet::new(), join)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(BTreeSet::new()),
    }
}

fn join(
    mut all: BTreeSet<String>,
    more: Result<BTreeSet<String>, String>,
) -> Result<BTreeSet<String>, String> {
    all.extend(more?);
    Ok(all)
}

/// What stands in `{{ … }}`, if the text is nothing else.
pub(crate) fn whole_expression(text: &str) -> Option<&str> {
    let inner = text.trim().strip_prefix("{{")?.strip_suffix("}}")?;
    (!inner.contains("{{") && !inner.contains("}}")).then_some(inner.trim())
}

fn context(variables: &Variables<'_>) -> minijinja::Value {
    let pairs = variables.iter();
    minijinja::Value::from_pairs(
        pairs.map(|(name, value)| ((*name).to_owned(), minijinja::Value::from(Serde(*value)))),
    )
}

pub(crate) fn evaluate(expression: &str, given: &Variables<'_>) -> Result<Value, NodeError> {
    let compiled = ENVIRONMENT.compile_expression_owned(expression.to_owned());
    let value = compiled.and_then(|compiled| compiled.eval(context(given)));
    let value = value.map_err(|error| failed(expression, &error))?;
    if value.is_undefined() {
        return Ok(Value::Null);
    }
    serde_json::to_value(&value).map_err(|error| {
        let message = format!("`{expression}` gives no JSON value: {error}");
        NodeError::new(message).with_code(Code::ExpressionFailed).permanent()
    })
}

/// Whether a condition holds.
pub(crate) fn holds(condition: &str, given: &Variables<'_>) -> Result<bool, NodeError> {
    let compiled = ENVIRONMENT.compile_expression_owned(condition.to_owned());
    let value = compiled.and_then(|compiled| compiled.eval(context(given)));
    value.map(|value| value.is_true()).map_err(|error| failed(condition, &error))
}

pub(crate) fn render(template: &str, given: &Variables<'_>) -> Result<String, NodeError> {
    let rendered = ENVIRONMENT.render_str(template, context(given));
    let text = rendered.map_err(|error| failed(template, &error))?;
    if text.len() > TEXT_BYTES_MAX {
        let message = format!("The text of a template has more than {TEXT_BYTES_MAX} bytes");
        return Err(NodeError::new(message).with_code(Code::ExpressionFailed).permanent());
    }
    Ok(text)
}

/// A value whose strings are templates: one that is a single expression keeps the expression's type.
pub(crate) fn fill(value: &Value, given: &Variables<'_>) -> Result<Value, NodeError> {
    Ok(match value {
        Value::String(text) => match whole_expression(text) {
            Some(expression) => evaluate(expression, given)?,
            None => render(text, given)?.into(),
        },
        Value::Array(items) => {
            items.iter().map(|item| fill(item, given)).collect::<Result<_, _>>()?
        }
        Value::Object(object) => {
            let filled = object.iter().map(|(key, value)| Ok((key.clone(), fill(value, given)?)));
            Value::Object(filled.collect::<Result<_, NodeError>>()?)
        }
        other => other.clone(),
    })
}

fn plain(error: &minijinja::Error) -> String {
    error.detail().map_or_else(|| error.kind().to_string(), str::to_owned)
}

fn failed(source: &str, error: &minijinja::Error) -> NodeError {
    let why = match error.kind() {
        ErrorKind::OutOfFuel => "it takes too many steps".to_owned(),
        _ => plain(error),
    };
    let shown: String = source.chars().take(80).collect();
    NodeError::new(format!("`{shown}` cannot be evaluated: {why}"))
        .with_code(Code::ExpressionFailed)
        .permanent()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_expression_keeps_its_type_and_a_template_makes_text() {
        let (list, name) = (json!([1, 2]), json!("x"));
        let given = Variables::from([("list", &list), ("name", &name)]);
        assert_eq!(fill(&json!("{{ list }}"), &given).unwrap(), json!([1, 2]));
        assert_eq!(fill(&json!("{{ list | length + 1 }}"), &given).unwrap(), json!(3));
        assert_eq!(fill(&json!(["a-{{ name }}", 7]), &given).unwrap(), json!(["a-x", 7]));
        assert_eq!(render("{{ list | tojson }}", &given).unwrap(), "[1, 2]");
        assert!(holds("name == 'x' and list[0] == 1", &given).unwrap());
        let unknown = evaluate("nothing + 1", &given).unwrap_err();
        assert_eq!(unknown.code, Code::ExpressionFailed);
    }

    #[test]
    fn what_does_not_parse_or_end_is_an_error() {
        assert!(variables("a ==").is_err());
        assert!(template_variables("{{ a").is_err());
        let used = variables("a.b == 'x' or c in [d]").unwrap();
        assert_eq!(used, ["a", "c", "d"].map(str::to_owned).into());
        let long = "{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}";
        let error = render(long, &Variables::new()).unwrap_err();
        assert!(error.message.contains("too many steps"), "{error}");
        assert!(!error.is_retryable);
    }
}
