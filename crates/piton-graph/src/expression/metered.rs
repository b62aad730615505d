//! What evaluation may call, each with an account of what it makes. Evaluation happens on one thread and
//! does not wait, so that the account is the thread's.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt::{self, Write as _};
use std::sync::LazyLock;

use minijinja::machinery::{Instruction, Instructions};
use minijinja::value::{Rest, Tuple, ValueKind, ValueOrKwargs};
use minijinja::{
    AutoEscape, Environment, Error, ErrorKind, State, UndefinedBehavior, Value, filters, functions,
};

/// Instructions that one evaluation may take.
const FUEL: u64 = 100_000;
/// Longest text that a template may make, in bytes.
pub(super) const TEXT_BYTES_MAX: usize = 8 * 1024 * 1024;
/// What one evaluation may make in all, in bytes, and the largest value that it may work on.
const MADE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// What a value takes beside its text.
pub(super) const ITEM_BYTES: usize = 48;

/// The functions that operators become. No expression can name them.
pub(super) const CONCAT: &str = "~";
pub(super) const ADD: &str = "+";
pub(super) const MULTIPLY: &str = "*";
pub(super) const SLICE: &str = "[:]";
pub(super) const LIST: &str = "[]";
pub(super) const TUPLE: &str = "()";
pub(super) const MAP: &str = "{}";

thread_local! {
    /// Bytes that the evaluation made.
    static MADE: Cell<usize> = const { Cell::new(0) };
    /// Bytes of the template's text.
    static WRITTEN: Cell<usize> = const { Cell::new(0) };
}

/// An evaluation begins.
pub(super) fn begin() {
    MADE.set(0);
    WRITTEN.set(0);
}

pub(super) static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(environment);

/// The operators as they are.
static PLAIN: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::empty();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment
});

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_fuel(Some(FUEL));
    environment.set_formatter(|out, _, value| {
        let left = TEXT_BYTES_MAX.saturating_sub(WRITTEN.get());
        let mut limited = Limited { to: out, left };
        write!(limited, "{value}").map_err(|_| {
            refused(format!("the text of a template has more than {TEXT_BYTES_MAX} bytes"))
        })?;
        WRITTEN.set(TEXT_BYTES_MAX.saturating_sub(limited.left));
        Ok(())
    });
    for name in ["namespace", "debug"] {
        environment.remove_global(name);
    }
    for name in ["batch", "format", "indent", "pprint", "slice"] {
        environment.remove_filter(name);
    }
    let dict = made(Value::from_function(functions::dict));
    environment.add_function("dict", move |state: &mut State<'_, '_>, args: Arguments| {
        dict(state, &args.into_values())
    });
    environment.add_function(CONCAT, concat);
    environment.add_function(ADD, add);
    environment.add_function(MULTIPLY, multiply);
    environment.add_function(SLICE, |args: Rest<Value>| {
        check_all(&args)?;
        charge_made(plain(&Instruction::Slice, &args)?)
    });
    environment.add_function(LIST, |args: Rest<Value>| built(Value::from(args.0)));
    environment.add_function(TUPLE, |args: Rest<Value>| built(Value::from(Tuple::from(args.0))));
    environment.add_function(MAP, |args: Rest<Value>| {
        let pairs = args.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone()));
        built(Value::from_pairs(pairs))
    });
    add_filters(&mut environment);
    environment
}

/// Writes so many bytes and no more.
struct Limited<'a, W> {
    to: &'a mut W,
    left: usize,
}

impl<W: fmt::Write> fmt::Write for Limited<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.left = self.left.checked_sub(text.len()).ok_or(fmt::Error)?;
        self.to.write_str(text)
    }
}

fn add_filters(environment: &mut Environment<'static>) {
    // Their results are new texts, numbers or lists.
    let making: [(&'static str, Value); 20] = [
        ("safe", Value::from_function(filters::safe)),
        ("escape", Value::from_function(filters::escape)),
        ("e", Value::from_function(filters::escape)),
        ("lower", Value::from_function(filters::lower)),
        ("upper", Value::from_function(filters::upper)),
        ("title", Value::from_function(filters::title)),
        ("capitalize", Value::from_function(filters::capitalize)),
        ("trim", Value::from_function(filters::trim)),
        ("string", Value::from_function(filters::string)),
        ("reverse", Value::from_function(filters::reverse)),
        ("int", Value::from_function(filters::int)),
        ("float", Value::from_function(filters::float)),
        ("replace", Value::from_function(filters::replace)),
        ("join", Value::from_function(filters::join)),
        ("split", Value::from_function(filters::split)),
        ("lines", Value::from_function(filters::lines)),
        ("tojson", Value::from_function(filters::tojson)),
        ("dictsort", Value::from_function(filters::dictsort)),
        ("items", Value::from_function(filters::items)),
        ("sum", Value::from_function(filters::sum)),
    ];
    for (name, filter) in making {
        let metered = made(filter);
        environment.add_filter(name, move |state: &mut State<'_, '_>, args: Arguments| {
            let args = args.into_values();
            check_result(name, &args)?;
            metered(state, &args)
        });
    }
    // They are for lists. The characters of a text would be many small values.
    let listing: [(&'static str, Value); 11] = [
        ("chain", Value::from_function(filters::chain)),
        ("groupby", Value::from_function(filters::groupby)),
        ("list", Value::from_function(filters::list)),
        ("map", Value::from_function(filters::map)),
        ("reject", Value::from_function(filters::reject)),
        ("rejectattr", Value::from_function(filters::rejectattr)),
        ("select", Value::from_function(filters::select)),
        ("selectattr", Value::from_function(filters::selectattr)),
        ("sort", Value::from_function(filters::sort)),
        ("unique", Value::from_function(filters::unique)),
        ("zip", Value::from_function(filters::zip)),
    ];
    for (name, filter) in listing {
        let metered = made(filter);
        environment.add_filter(name, move |state: &mut State<'_, '_>, args: Arguments| {
            let args = args.into_values();
            let is_long =
                |arg: &Value| arg.as_str().is_some_and(|text| text.len() > LISTED_BYTES_MAX);
            if args.iter().any(is_long) {
                return Err(refused(format!("`{name}` needs a list and no long text")));
            }
            metered(state, &args)
        });
    }
}

/// Longest text that is taken for a list of its characters.
const LISTED_BYTES_MAX: usize = 64 * 1024;

/// Refuses arguments of which a small text makes a large one.
fn check_result(name: &str, args: &[Value]) -> Result<(), Error> {
    let text = |at: usize| args.get(at).and_then(Value::as_str);
    let bytes = match name {
        "replace" => {
            let mut texts = Vec::new();
            for arg in args {
                texts.push(text_of(arg)?);
            }
            let [value, from, to, ..] = &texts[..] else { return Ok(()) };
            let added = value.matches(&**from).count().saturating_mul(to.len());
            value.len().saturating_add(added)
        }
        "join" => {
            let count = args.first().and_then(Value::len).unwrap_or(0);
            // The separator can have a name, too.
            let between = args.get(1).map_or(0, |between| size(between).unwrap_or(usize::MAX));
            let parts = args.first().map_or(0, |list| size(list).unwrap_or(usize::MAX));
            parts.saturating_add(count.saturating_mul(between))
        }
        "split" => {
            let value = text(0).unwrap_or_default();
            let count = match text(1) {
                Some(separator) => value.matches(separator).count(),
                None => value.split_whitespace().count(),
            };
            value.len().saturating_add(count.saturating_mul(ITEM_BYTES))
        }
        "lines" => {
            let value = text(0).unwrap_or_default();
            let count = value.matches('\n').count();
            value.len().saturating_add(count.saturating_mul(ITEM_BYTES))
        }
        "tojson" => {
            let Some(value) = args.first() else { return Ok(()) };
            let width = args.get(1).map_or(0, indentation);
            json_bytes(value, width)
        }
        _ => 0,
    };
    check(bytes)
}

/// What a filter takes a value for that is to be a text.
fn text_of(value: &Value) -> Result<Cow<'_, str>, Error> {
    match value.as_str() {
        Some(text) => Ok(text.into()),
        None if size(value).is_some_and(|size| size <= LISTED_BYTES_MAX) => {
            Ok(value.to_string().into())
        }
        None => Err(refused("`replace` needs texts".to_owned())),
    }
}

/// How far `tojson` may indent, given as a number, as `true` or with its name.
fn indentation(given: &Value) -> usize {
    let given = given.get_attr("indent").ok().filter(Value::is_number).unwrap_or(given.clone());
    given.as_usize().unwrap_or(2)
}

/// The length of the JSON text of a value, as far as it is allowed.
fn json_bytes(value: &Value, width: usize) -> usize {
    fn nested(value: &Value, indent: usize, width: usize, sum: &mut usize) {
        if *sum > MADE_BYTES_MAX {
            return;
        }
        let bytes = match value.kind() {
            // The longest escape has six bytes.
            ValueKind::String => value.as_str().map_or(0, str::len).saturating_mul(6),
            ValueKind::Seq | ValueKind::Iterable | ValueKind::Map => indent + 2,
            _ => ITEM_BYTES,
        };
        *sum = sum.saturating_add(bytes).saturating_add(4);
        let inner = indent.saturating_add(width);
        for_each(value, &mut |part| {
            *sum = sum.saturating_add(inner);
            nested(part, inner, width, sum);
            *sum <= MADE_BYTES_MAX
        });
    }
    let mut sum = 0;
    nested(value, 0, width, &mut sum);
    sum
}

/// Arguments of which some may have names.
type Arguments = Rest<ValueOrKwargs>;

/// A function whose arguments and result are checked.
fn made(function: Value) -> impl Fn(&mut State<'_, '_>, &[Value]) -> Result<Value, Error> {
    move |state: &mut State<'_, '_>, args: &[Value]| {
        check_all(args)?;
        charge_made(function.call(state, args)?)
    }
}

fn concat(left: &Value, right: &Value) -> Result<Value, Error> {
    for value in [left, right] {
        if value.is_undefined() {
            return Err(Error::from(ErrorKind::UndefinedError));
        }
    }
    check_all(&[left.clone(), right.clone()])?;
    let mut joined = String::new();
    let free = MADE_BYTES_MAX.saturating_sub(MADE.get());
    let mut limited = Limited { to: &mut joined, left: free };
    write!(limited, "{left}{right}").map_err(|_| too_large())?;
    charge_made(Value::from(joined))
}

fn add(left: &Value, right: &Value) -> Result<Value, Error> {
    let args = [left.clone(), right.clone()];
    if let (Some(first), Some(second)) = (left.as_str(), right.as_str()) {
        charge(first.len().saturating_add(second.len()))?;
        return plain(&Instruction::Add, &args);
    }
    if is_list(left) && is_list(right) && !(left.is_tuple() || right.is_tuple()) {
        check_all(&args)?;
        charge((count(left) + count(right)).saturating_mul(ITEM_BYTES))?;
        // Not one that is put together whenever it is read.
        let both = left.try_iter()?.chain(right.try_iter()?);
        return Ok(both.collect());
    }
    check_all(&args)?;
    charge_made(plain(&Instruction::Add, &args)?)
}

fn multiply(left: &Value, right: &Value) -> Result<Value, Error> {
    for (value, times) in [(left, right), (right, left)] {
        let Some(times) = times.as_usize() else { continue };
        if let Some(text) = value.as_str() {
            charge(text.len().saturating_mul(times))?;
        } else if is_list(value) {
            check(size(value).unwrap_or(usize::MAX).saturating_mul(times))?;
            charge(count(value).saturating_mul(times).saturating_mul(ITEM_BYTES))?;
            let repeated = plain(&Instruction::Mul, &[value.clone(), times.into()])?;
            let is_tuple = repeated.is_tuple();
            return if is_tuple { Ok(repeated) } else { Ok(repeated.try_iter()?.collect()) };
        }
    }
    plain(&Instruction::Mul, &[left.clone(), right.clone()])
}

/// The result of an instruction on its arguments.
fn plain(instruction: &Instruction<'static>, args: &[Value]) -> Result<Value, Error> {
    const NAMES: [&str; 4] = ["a", "b", "c", "d"];
    let mut instructions = Instructions::new("<operator>", "");
    for (name, _) in NAMES.iter().zip(args) {
        instructions.add(Instruction::Lookup(name));
    }
    instructions.add(instruction.clone());
    let named = NAMES.iter().copied().zip(args.iter().cloned());
    let root = Value::from_pairs(named);
    let blocks = std::collections::BTreeMap::new();
    let mut text = String::new();
    let mut out = minijinja::machinery::make_string_output(&mut text);
    let none = AutoEscape::None;
    let evaluated =
        minijinja::machinery::eval(&PLAIN, &instructions, root, &blocks, &mut out, none)?;
    Ok(evaluated.0.unwrap_or_default())
}

fn is_list(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable)
}

/// The items of a list.
fn count(list: &Value) -> usize {
    list.len().unwrap_or_else(|| list.try_iter().map_or(0, Iterator::count))
}

/// A list or map that is built of values that are there. What it holds is not made again; but a value
/// that holds another one twice can be larger than all that was ever made.
fn built(value: Value) -> Result<Value, Error> {
    check_value(&value)?;
    charge_made(value)
}

/// Counts what a value takes by itself.
fn charge_made(value: Value) -> Result<Value, Error> {
    let bytes = match value.as_str() {
        Some(text) => text.len(),
        None if is_list(&value) => value.len().unwrap_or(0).saturating_mul(ITEM_BYTES),
        None if value.kind() == ValueKind::Map => {
            value.len().unwrap_or(0).saturating_mul(2 * ITEM_BYTES)
        }
        None => 0,
    };
    charge(bytes)?;
    Ok(value)
}

fn charge(bytes: usize) -> Result<(), Error> {
    let made = MADE.get().saturating_add(bytes);
    MADE.set(made);
    check(made)
}

fn check(bytes: usize) -> Result<(), Error> {
    if bytes > MADE_BYTES_MAX { Err(too_large()) } else { Ok(()) }
}

fn check_all(args: &[Value]) -> Result<(), Error> {
    let mut sum: usize = 0;
    for arg in args {
        sum = sum.saturating_add(size(arg).unwrap_or(usize::MAX));
    }
    check(sum)
}

/// Whether a value, written out, would be larger than what may be made.
pub(super) fn check_value(value: &Value) -> Result<(), Error> {
    check(size(value).unwrap_or(usize::MAX))
}

/// The size of a value with all that it holds, as often as it holds it; `None`: too large.
fn size(value: &Value) -> Option<usize> {
    fn add(value: &Value, sum: &mut usize) {
        *sum = sum.saturating_add(ITEM_BYTES).saturating_add(value.as_str().map_or(0, str::len));
        for_each(value, &mut |part| {
            add(part, sum);
            *sum <= MADE_BYTES_MAX
        });
    }
    let mut sum = 0;
    add(value, &mut sum);
    (sum <= MADE_BYTES_MAX).then_some(sum)
}

/// The parts of a list or map, until one is enough.
fn for_each(value: &Value, part: &mut dyn FnMut(&Value) -> bool) {
    let is_map = value.kind() == ValueKind::Map;
    if !is_map && !is_list(value) {
        return;
    }
    let Ok(parts) = value.try_iter() else { return };
    for item in parts {
        let goes_on = if is_map {
            part(&item) && value.get_item(&item).is_ok_and(|held| part(&held))
        } else {
            part(&item)
        };
        if !goes_on {
            return;
        }
    }
}

fn refused(why: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, why)
}

fn too_large() -> Error {
    refused(format!("it makes more than {MADE_BYTES_MAX} bytes"))
}
