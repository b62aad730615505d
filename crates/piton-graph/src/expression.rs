//! Templates and conditions. The variables are the keys of the memory; evaluation has limited fuel and
//! limited memory.

mod compiled;
mod metered;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use minijinja::ErrorKind;
use minijinja::machinery::{Token, tokenize};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use piton_core::Code;
use serde_json::Value;

use self::compiled::Compiled;
use self::metered::ENVIRONMENT;
use crate::error::NodeError;

/// Words and operators of one expression. The parser calls itself for each operator of a chain, and a
/// stack that overflows ends the process.
const EXPRESSION_TOKENS_MAX: usize = 1_000;
/// Statements (`{% … %}`) of one template: a chain of `elif` is as deep as it is long.
const TEMPLATE_STATEMENTS_MAX: usize = 500;
/// What an expression can call although no key has the name.
const FUNCTIONS: &[&str] = &["range", "dict"];

/// Variables by name.
pub(crate) type Variables<'a> = BTreeMap<&'a str, &'a Value>;

/// The variables of an expression; an error if it does not parse.
pub(crate) fn variables(expression: &str) -> Result<BTreeSet<String>, String> {
    check_size(expression, true)?;
    Compiled::expression(expression)?;
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
    Compiled::template(template)?;
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
    let compiled =
        Compiled::expression(expression).map_err(|why| not_evaluated(expression, &why))?;
    // The value of a key is the value.
    if let Some(value) = compiled.variable().and_then(|name| given.get(name)) {
        return Ok((*value).clone());
    }
    let value = evaluated(expression, &compiled, given)?.0.unwrap_or_default();
    if value.is_undefined() {
        return Ok(Value::Null);
    }
    metered::check_value(&value).map_err(|error| failed(expression, &error))?;
    serde_json::to_value(&value).map_err(|error| {
        let message = format!("`{expression}` gives no JSON value: {error}");
        NodeError::new(message).with_code(Code::ExpressionFailed).permanent()
    })
}

/// Whether a condition holds.
pub(crate) fn holds(condition: &str, given: &Variables<'_>) -> Result<bool, NodeError> {
    refuse_long(condition, true)?;
    let compiled = Compiled::expression(condition).map_err(|why| not_evaluated(condition, &why))?;
    let value = evaluated(condition, &compiled, given)?.0;
    Ok(value.is_some_and(|value| value.is_true()))
}

pub(crate) fn render(template: &str, given: &Variables<'_>) -> Result<String, NodeError> {
    refuse_long(template, false)?;
    let compiled = Compiled::template(template).map_err(|why| not_evaluated(template, &why))?;
    Ok(evaluated(template, &compiled, given)?.1)
}

/// A value and a text. An evaluator that panics is an error of the node, and the graph's scheduler keeps running.
fn evaluated(
    source: &str,
    compiled: &Compiled<'_>,
    given: &Variables<'_>,
) -> Result<(Option<minijinja::Value>, String), NodeError> {
    match catch_unwind(AssertUnwindSafe(|| compiled.evaluate(context(given)))) {
        Ok(evaluated) => evaluated.map_err(|error| failed(source, &error)),
        Err(_) => Err(not_evaluated(source, "the evaluation came to no end")),
    }
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

    /// Wants to show: what would take all of the memory is an error, in an expression, in a template, and
    /// where the compiler computes constants.
    #[test]
    fn memory_is_limited() {
        let text = json!("0123456789abcdef".repeat(64 * 1024));
        let numbers = json!((0..1_000).collect::<Vec<u32>>());
        let given = Variables::from([("text", &text), ("numbers", &numbers)]);
        let twice = "[text ~ text, text ~ text]".to_owned();
        for expression in [
            "text * 1000",
            "[0] * 2**30",
            "[text] * 100 | join",
            "'x' * 100000000",
            "('x' * 10**8) ~ ('y' * 10**8)",
            "(0,) * 10**8",
            "(1, 2) * (5000 * 5000)",
            "-(3 * 4) if ('ab' * 90000000) else 1",
            "{'a': 'x' * 10**7}",
            "text | replace('0', text)",
            "text | replace('', text)",
            "numbers | join(text)",
            "numbers | join(d=text)",
            "text | list",
            "text | sort",
            "text | map('upper') | join",
            "(text ~ text) | split('')",
            "numbers | tojson(1000000000)",
            "[[[numbers]]] | tojson(indent=100000000)",
            "numbers | map('replace', '', text) | list",
            "[numbers] * 100000",
            "range(100000) | map('string') | join(text)",
            "numbers * 100000 | length",
            &format!("{twice} + {twice} + {twice} + [{}]", ["text ~ text"; 60].join(", ")),
            &["text"; 300].join(" ~ "),
            &format!("[{}]", ["text[1:]"; 300].join(", ")),
            &format!("[{}] | tojson | length", ["text"; 300].join(", ")),
            &format!(
                "dict({})",
                (0..200).map(|n| format!("k{n}=text")).collect::<Vec<_>>().join(",")
            ),
        ] {
            let shown: String = expression.chars().take(60).collect();
            let Err(error) = evaluate(expression, &given) else { panic!("{shown}") };
            assert_eq!(error.code, Code::ExpressionFailed, "{shown}");
            assert!(!error.is_retryable, "{shown}");
            let Err(error) = render(&format!("{{{{ {expression} }}}}"), &given) else {
                panic!("{shown}")
            };
            assert_eq!(error.code, Code::ExpressionFailed, "{shown}");
        }
        let doubled =
            |begin: &str, again: &str, end: &str| format!("{begin}{}{end}", again.repeat(40));
        for template in [
            doubled("{% set a = 'xy' %}", "{% set a = a ~ a %}", "{{ a | length }}"),
            doubled("{% set a = [1] %}", "{% set a = a + a %}", "{{ a | length }}"),
            doubled("{% set a = [1] %}", "{% set a = [a, a] %}", "{{ a == a }}"),
            doubled("{% set a = [1] %}", "{% set a = {'x': a, 'y': a} %}", "{{ a }}"),
            doubled("{% set a = 'xy' %}", "{% set a = a * 3 %}", "{{ a | length }}"),
            doubled("{% set a = 'xy' %}", "{% for a in [a ~ a] %}", "{{ a }}")
                + &"{% endfor %}".repeat(40),
            "{% for a in range(9000) %}{{ text }}{% endfor %}".to_owned(),
            format!("{{% for a in range(9000) %}}{}{{% endfor %}}", "words ".repeat(10_000)),
        ] {
            let shown: String = template.chars().take(60).collect();
            let Err(error) = render(&template, &given) else { panic!("{shown}") };
            assert!(error.message.contains("bytes"), "{shown}: {error}");
        }
    }

    /// Wants to show: what cannot be metered is refused when a graph is read, and by an old log's graph when
    /// it runs.
    #[test]
    fn what_cannot_be_metered_is_refused() {
        let namespace = "{% set n = namespace(a='x') %}{% for i in range(40) %}{% set n.a = n.a ~ n.a %}{% endfor %}";
        for template in [
            namespace,
            "{% set a %}text{% endset %}",
            "{% filter upper %}text{% endfilter %}",
            "{% for a in b recursive %}{{ loop(a) }}{% endfor %}",
            "{% autoescape true %}{{ a }}{% endautoescape %}",
            "{{ range(*a) }}",
            "{{ dict(**a) }}",
        ] {
            assert!(template_variables(template).is_err(), "{template}");
            let given = json!([1]);
            let error =
                render(template, &Variables::from([("a", &given), ("b", &given)])).unwrap_err();
            assert_eq!(error.code, Code::ExpressionFailed, "{template}");
        }
        // They are names as all others: no key has them.
        assert_eq!(variables("debug()").unwrap(), ["debug".to_owned()].into());
    }

    /// Wants to show: what evaluation is for has not changed by being metered.
    #[test]
    fn what_is_small_is_what_it_was() {
        let (list, name, empty) = (json!([3, 1, 2]), json!("Ada"), json!(null));
        let users = json!([{"n": "a", "on": true}, {"n": "b", "on": false}]);
        let given = Variables::from([
            ("list", &list),
            ("name", &name),
            ("empty", &empty),
            ("users", &users),
        ]);
        for (expression, value) in [
            ("list + [4]", json!([3, 1, 2, 4])),
            ("[0] * 3", json!([0, 0, 0])),
            ("list * 2", json!([3, 1, 2, 3, 1, 2])),
            ("'-' * 3", json!("---")),
            ("name * 2", json!("AdaAda")),
            ("2 * name", json!("AdaAda")),
            ("2 * 3 + 1", json!(7)),
            ("2.5 * list[0]", json!(7.5)),
            ("name ~ 1 ~ true", json!("Ada1True")),
            ("name + '!'", json!("Ada!")),
            ("name[1:]", json!("da")),
            ("list[::-1]", json!([2, 1, 3])),
            ("list[:2] | sort", json!([1, 3])),
            ("[name, [list[0], 'x']]", json!(["Ada", [3, "x"]])),
            ("{'a': name, 'b': {'c': list}}", json!({"a": "Ada", "b": {"c": [3, 1, 2]}})),
            ("(name, 1)", json!(["Ada", 1])),
            ("list | sort | join('-')", json!("1-2-3")),
            ("list | join(d=', ')", json!("3, 1, 2")),
            ("'a,b' | split(',')", json!(["a", "b"])),
            ("'abc' | list", json!(["a", "b", "c"])),
            ("name | replace('a', 'o') | upper", json!("ADO")),
            ("users | selectattr('on') | map(attribute='n') | list", json!(["a"])),
            ("users | map(attribute='n') | map('upper') | list", json!(["A", "B"])),
            ("dict(a=name)", json!({"a": "Ada"})),
            ("range(3) | list", json!([0, 1, 2])),
            ("empty | default('none', true)", json!("none")),
            ("1 < list | length <= 3 and name in ['Ada']", json!(true)),
            ("'y' if name == 'Ada' else 'n'", json!("y")),
            ("list | sum", json!(6)),
            ("{'b': 1, 'a': 2} | dictsort | first", json!(["a", 2])),
        ] {
            assert_eq!(evaluate(expression, &given).unwrap(), value, "{expression}");
        }
        for (template, text) in [
            (
                "{% for u in users if u.on %}{{ loop.index }}{{ u.n }}{% else %}none{% endfor %}",
                "1a",
            ),
            ("{% if list[0] > 5 %}a{% elif name %}b{{ name }}{% else %}c{% endif %}!", "bAda!"),
            ("{% for x in [] %}{{ x }}{% else %}none{% endfor %}", "none"),
            ("{% set x = list | length %}{% with y = x + 1 %}{{ x }}{{ y }}{% endwith %}", "34"),
            (
                "{{ list }} {{ empty }} {{ true }} {{ 1.0 }} {{ users[0] | tojson }}",
                "[3, 1, 2] None True 1.0 {\"n\": \"a\", \"on\": true}",
            ),
            ("{{ list | tojson(indent=1) }}", "[\n 3,\n 1,\n 2\n]"),
            ("<b> & {{ '<' ~ name }}", "<b> & <Ada"),
            ("{% for a, b in [(1, 2), (3, 4)] %}{{ a * b }};{% endfor %}", "2;12;"),
        ] {
            assert_eq!(render(template, &given).unwrap(), text, "{template}");
        }
    }

    #[test]
    fn functions_are_no_keys() {
        assert_eq!(variables("range(x) | length").unwrap(), ["x".to_owned()].into());
        let given = value_variables(&json!(["{{ range(3) }}", "{{ y }}"])).unwrap();
        assert_eq!(given, ["y".to_owned()].into());
    }
}
