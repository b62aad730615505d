//! Templates and conditions. The variables are the keys of the memory; evaluation has limited fuel.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use minijinja::machinery::{Token, tokenize};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, ErrorKind, UndefinedBehavior};
use piton_core::Code;
use serde_json::Value;

use crate::error::NodeError;

/// Instructions that one evaluation may take.
const FUEL: u64 = 100_000;
/// Longest text that a template may make, in bytes.
const TEXT_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Words and operators of one expression. The parser calls itself for each operator of a chain, and a
/// stack that overflows ends the process.
const EXPRESSION_TOKENS_MAX: usize = 1_000;
/// Statements (`{% … %}`) of one template: a chain of `elif` is as deep as it is long.
const TEMPLATE_STATEMENTS_MAX: usize = 500;
/// What an expression can call although no key has the name.
const FUNCTIONS: &[&str] = &["range", "dict", "namespace", "debug"];

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
    check_size(expression, true)?;
    let compiled = ENVIRONMENT.compile_expression_owned(expression.to_owned());
    let compiled = compiled.map_err(|error| plain(&error))?;
    Ok(compiled.undeclared_variables(false).into_iter().filter(|name| is_key(name)).collect())
}

fn is_key(name: &str) -> bool {
    !FUNCTIONS.contains(&name)
}

/// Refuses what is too long to be parsed. A token that makes no sense is the parser's to name.
fn check_size(source: &str, is_expression: bool) -> Result<(), String> {
    let (mut tokens, mut statements) = (0, 0);
    for token in tokenize(source, is_expression, SyntaxConfig::default()) {
        let Ok((token, _)) = token else { break };
        match token {
            Token::TemplateData(_) | Token::VariableStart => tokens = 0,
            Token::BlockStart => {
                tokens = 0;
                statements += 1;
            }
            _ => tokens += 1,
        }
        if tokens > EXPRESSION_TOKENS_MAX {
            return Err(format!(
                "an expression has more than {EXPRESSION_TOKENS_MAX} words and operators"
            ));
        }
        if statements > TEMPLATE_STATEMENTS_MAX {
            return Err(format!("it has more than {TEMPLATE_STATEMENTS_MAX} statements"));
        }
    }
    Ok(())
}

/// The variables of a template; an error if it does not parse.
pub(crate) fn template_variables(template: &str) -> Result<BTreeSet<String>, String> {
    check_size(template, false)?;
    let environment = &*ENVIRONMENT;
    let parsed = environment.template_from_str(template).map_err(|error| plain(&error))?;
    Ok(parsed.undeclared_variables(false).into_iter().filter(|name| is_key(name)).collect())
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
    refuse_long(expression, true)?;
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
    refuse_long(condition, true)?;
    let compiled = ENVIRONMENT.compile_expression_owned(condition.to_owned());
    let value = compiled.and_then(|compiled| compiled.eval(context(given)));
    value.map(|value| value.is_true()).map_err(|error| failed(condition, &error))
}

pub(crate) fn render(template: &str, given: &Variables<'_>) -> Result<String, NodeError> {
    refuse_long(template, false)?;
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

/// A graph in a log was checked when it was read, by the limits of then.
fn refuse_long(source: &str, is_expression: bool) -> Result<(), NodeError> {
    check_size(source, is_expression).map_err(|why| not_evaluated(source, &why))
}

fn failed(source: &str, error: &minijinja::Error) -> NodeError {
    match error.kind() {
        ErrorKind::OutOfFuel => not_evaluated(source, "it takes too many steps"),
        _ => not_evaluated(source, &plain(error)),
    }
}

fn not_evaluated(source: &str, why: &str) -> NodeError {
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

    /// Wants to show: what a parser that calls itself would overflow the stack with is refused before it
    /// is parsed, wherever it stands; and the longest that is accepted does not.
    #[test]
    fn a_chain_that_is_too_long_is_refused() {
        for (begin, link, end) in [
            ("", "-", "x"),
            ("", "not ", "x"),
            ("x", "|int", ""),
            ("x", ".a", ""),
            ("x", "+1", ""),
            ("x", "[0]", ""),
            ("x", " ~ '}}'", ""),
        ] {
            let chain = |links: usize| format!("{begin}{}{end}", link.repeat(links));
            for text in [chain(100_000), format!("1 if {} else 2", chain(50_000))] {
                let why = variables(&text).unwrap_err();
                assert!(why.contains("words and operators"), "{link}: {why}");
                let error = evaluate(&text, &Variables::new()).unwrap_err();
                assert_eq!(error.code, Code::ExpressionFailed, "{link}");
                let text = format!("a {{{{ {text} }}}} b");
                assert!(template_variables(&text).is_err(), "{link}");
                assert!(render(&text, &Variables::new()).is_err(), "{link}");
            }
            let tokens = tokenize(link, true, SyntaxConfig::default()).count();
            assert!(variables(&chain((EXPRESSION_TOKENS_MAX - 1) / tokens)).is_ok(), "{link}");
        }
        let hidden =
            format!("{{% raw %}}{{{{ '{{% endraw %}}{{{{ '' ~ {}x }}}}", "-".repeat(9_999));
        assert!(template_variables(&hidden).unwrap_err().contains("words and operators"));
        let elif = |count: usize| {
            format!("{{% if false %}}{}{{% endif %}}", "{% elif false %}".repeat(count))
        };
        assert!(template_variables(&elif(50_000)).unwrap_err().contains("statements"));
        assert!(template_variables(&elif(TEMPLATE_STATEMENTS_MAX - 2)).is_ok());
        let long = format!("{{{{ x }}}} {}", "word ".repeat(100_000));
        assert!(template_variables(&long).is_ok(), "text is no expression");
    }

    #[test]
    fn functions_are_no_keys() {
        assert_eq!(variables("range(x) | length").unwrap(), ["x".to_owned()].into());
        let given = value_variables(&json!(["{{ range(3) }}", "{{ y }}"])).unwrap();
        assert_eq!(given, ["y".to_owned()].into());
    }
}
