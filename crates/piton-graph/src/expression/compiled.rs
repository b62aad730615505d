//! Expressions and templates as instructions whose memory is bounded: what makes values is metered, and
//! what cannot be is refused before anything is evaluated.

use std::collections::BTreeMap;

use minijinja::machinery::ast::{BinOp, BinOpKind, CallArg, Compare, Expr, Stmt};
use minijinja::machinery::{CodeGenerator, Instruction, Instructions, parse, parse_expr};
use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Error};

use super::metered::{self, ENVIRONMENT};

/// Longest constant that the compiler may compute, in bytes: it does that before anything is metered.
const CONSTANT_BYTES_MAX: usize = 64 * 1024;
/// The flag of a loop that calls itself.
const RECURSIVE: u8 = 2;

/// Something to evaluate.
pub(super) struct Compiled<'a> {
    instructions: Instructions<'a>,
}

impl<'a> Compiled<'a> {
    pub(super) fn expression(source: &'a str) -> Result<Self, String> {
        let parsed = parse_expr(source).map_err(|error| super::plain(&error))?;
        check_expression(&parsed)?;
        let mut generator = CodeGenerator::new("<expression>", source);
        generator.compile_expr(&parsed);
        Self::bounded(&generator.finish().0)
    }

    pub(super) fn template(source: &'a str) -> Result<Self, String> {
        let parsed = parse(source, "<template>", SyntaxConfig::default());
        let parsed = parsed.map_err(|error| super::plain(&error))?;
        check_statement(&parsed)?;
        let mut generator = CodeGenerator::new("<template>", source);
        generator.compile_stmt(&parsed);
        Self::bounded(&generator.finish().0)
    }

    /// The same instructions; those that make values call what meters them.
    fn bounded(original: &Instructions<'a>) -> Result<Self, String> {
        let mut instructions = Instructions::new(original.name(), original.source());
        let mut moved = Vec::new();
        let mut at = 0;
        while let Some(instruction) = original.get(at) {
            moved.push(metered_instructions(instruction)?);
            at += 1;
        }
        let mut positions = Vec::with_capacity(moved.len() + 1);
        let mut position = 0;
        for group in &moved {
            positions.push(position);
            position += u32::try_from(group.len()).unwrap_or(u32::MAX);
        }
        positions.push(position);
        let moved_to = |target: u32| {
            let target = usize::try_from(target).unwrap_or(usize::MAX);
            positions.get(target).copied().unwrap_or(position)
        };
        for mut instruction in moved.into_iter().flatten() {
            if let Instruction::Iterate(target)
            | Instruction::Jump(target)
            | Instruction::JumpIfFalse(target)
            | Instruction::JumpIfFalseOrPop(target)
            | Instruction::JumpIfTrueOrPop(target) = &mut instruction
            {
                *target = moved_to(*target);
            }
            instructions.add(instruction);
        }
        Ok(Self { instructions })
    }

    /// The variable that the expression is, if it is nothing else.
    pub(super) fn variable(&self) -> Option<&str> {
        match (self.instructions.get(0), self.instructions.get(1)) {
            (Some(Instruction::Lookup(name)), None) => Some(name),
            _ => None,
        }
    }

    /// The value of an expression, or the text of a template.
    pub(super) fn evaluate(
        &self,
        context: minijinja::Value,
    ) -> Result<(Option<minijinja::Value>, String), Error> {
        metered::begin();
        let mut text = String::new();
        let mut output = minijinja::machinery::make_string_output(&mut text);
        let blocks = BTreeMap::new();
        let (value, _) = minijinja::machinery::eval(
            &ENVIRONMENT,
            &self.instructions,
            context,
            &blocks,
            &mut output,
            AutoEscape::None,
        )?;
        drop(output);
        Ok((value, text))
    }
}

fn metered_instructions<'a>(instruction: &Instruction<'a>) -> Result<Vec<Instruction<'a>>, String> {
    let call = |name, count: usize| {
        let count = u16::try_from(count).map_err(|_| "a list has too many items".to_owned())?;
        Ok(vec![Instruction::CallFunction(name, Some(count))])
    };
    match instruction {
        Instruction::StringConcat => call(metered::CONCAT, 2),
        Instruction::Add => call(metered::ADD, 2),
        Instruction::Mul => call(metered::MULTIPLY, 2),
        Instruction::Slice => call(metered::SLICE, 4),
        Instruction::BuildList(Some(count)) => call(metered::LIST, *count),
        Instruction::BuildTuple(Some(count)) => call(metered::TUPLE, *count),
        Instruction::BuildMap(count) => call(metered::MAP, count * 2),
        // Only what is emitted is metered.
        Instruction::EmitRaw(text) => {
            Ok(vec![Instruction::LoadConst((*text).into()), Instruction::Emit])
        }
        Instruction::BeginCapture(_) => {
            Err("`{% set … %}` and `{% filter … %}` cannot enclose a text".to_owned())
        }
        Instruction::SetAttr(_) => Err("an attribute cannot be set".to_owned()),
        Instruction::PushAutoEscape => Err("`{% autoescape %}` is not supported".to_owned()),
        Instruction::UnpackLists(_) | Instruction::MergeKwargs(_) => {
            Err("arguments cannot be unpacked with `*` or `**`".to_owned())
        }
        Instruction::PushLoop(flags) if flags & RECURSIVE != 0 => {
            Err("a loop cannot be recursive".to_owned())
        }
        other => Ok(vec![other.clone()]),
    }
}

/// What a constant that the compiler computes can come to.
#[derive(Clone, Copy)]
enum Constant {
    /// No text and no list.
    Number,
    /// At most so many bytes.
    Other(usize),
}

impl Constant {
    fn bytes(self) -> usize {
        match self {
            Self::Number => metered::ITEM_BYTES,
            Self::Other(bytes) => bytes,
        }
    }
}

/// A constant would be too long.
struct TooLong;

impl From<TooLong> for String {
    fn from(TooLong: TooLong) -> Self {
        format!("a constant is longer than {CONSTANT_BYTES_MAX} bytes")
    }
}

type Found = Result<Option<Constant>, TooLong>;

/// Refuses constants that would be large, wherever in an expression they stand.
fn check_expression(expression: &Expr<'_>) -> Result<(), TooLong> {
    constant(expression).map(|_| ())
}

/// It calls itself as deep as an expression is nested: each level is to need little of the stack.
fn constant(expression: &Expr<'_>) -> Found {
    match expression {
        Expr::Var(_) => Ok(None),
        Expr::Const(constant) => Ok(Some(match constant.value.as_str() {
            Some(text) => Constant::Other(text.len()),
            None => Constant::Number,
        })),
        Expr::UnaryOp(e) => Ok(constant(&e.expr)?.map(|_| Constant::Number)),
        Expr::BinOp(e) => binary(e),
        Expr::GetAttr(e) => variable([Some(&e.expr)]),
        Expr::GetItem(e) => variable([Some(&e.expr), Some(&e.subscript_expr)]),
        Expr::Slice(e) => {
            variable([Some(&e.expr), e.start.as_ref(), e.stop.as_ref(), e.step.as_ref()])
        }
        Expr::IfExpr(e) => {
            variable([Some(&e.test_expr), Some(&e.true_expr), e.false_expr.as_ref()])
        }
        Expr::Filter(e) => call(e.expr.as_ref(), &e.args),
        Expr::Test(e) => call(Some(&e.expr), &e.args),
        Expr::Call(e) => call(Some(&e.expr), &e.args),
        Expr::Compare(e) => compared(e),
        Expr::List(e) => list(&e.items),
        Expr::Tuple(e) => list(&e.items),
        Expr::Map(e) => {
            let (keys, values) = (list(&e.keys)?, list(&e.values)?);
            let both = keys.zip(values);
            both.map_or(Ok(None), |(keys, values)| limited(keys.bytes() + values.bytes()))
        }
    }
}

fn limited(bytes: usize) -> Found {
    if bytes > CONSTANT_BYTES_MAX { Err(TooLong) } else { Ok(Some(Constant::Other(bytes))) }
}

/// Parts of what is computed when it is evaluated.
#[inline(never)]
fn variable<const N: usize>(parts: [Option<&Expr<'_>>; N]) -> Found {
    for part in parts.into_iter().flatten() {
        constant(part)?;
    }
    Ok(None)
}

#[inline(never)]
fn call(called: Option<&Expr<'_>>, args: &[CallArg<'_>]) -> Found {
    for arg in args {
        match arg {
            CallArg::Pos(arg)
            | CallArg::Kwarg(_, arg)
            | CallArg::PosSplat(arg)
            | CallArg::KwargSplat(arg) => constant(arg)?,
        };
    }
    variable([called])
}

#[inline(never)]
fn compared(compare: &Compare<'_>) -> Found {
    let mut all = constant(&compare.expr)?;
    for operand in &compare.ops {
        all = all.and(constant(&operand.expr)?);
    }
    Ok(all.map(|_| Constant::Number))
}

#[inline(never)]
fn list(items: &[Expr<'_>]) -> Found {
    let mut bytes = Some(metered::ITEM_BYTES);
    for item in items {
        let item = constant(item)?.map(|item| item.bytes().saturating_add(metered::ITEM_BYTES));
        bytes = bytes.zip(item).map(|(sum, item)| sum.saturating_add(item));
    }
    bytes.map_or(Ok(None), limited)
}

#[inline(never)]
fn binary(e: &BinOp<'_>) -> Found {
    let (left, right) = (constant(&e.left)?, constant(&e.right)?);
    let Some((left, right)) = left.zip(right) else { return Ok(None) };
    match (e.op, left, right) {
        (BinOpKind::Mul, Constant::Number, Constant::Other(bytes)) => repeated(bytes, &e.left),
        (BinOpKind::Mul, Constant::Other(bytes), Constant::Number) => repeated(bytes, &e.right),
        (op, Constant::Number, Constant::Number) if !matches!(op, BinOpKind::Concat) => {
            Ok(Some(Constant::Number))
        }
        _ => limited(left.bytes().saturating_add(right.bytes())),
    }
}

/// A constant that is repeated. What is no number of times is an error when it is evaluated.
fn repeated(bytes: usize, times: &Expr<'_>) -> Found {
    let times = times.as_const().and_then(|times| times.as_usize()).unwrap_or(0);
    limited(bytes.saturating_mul(times))
}

fn check_statement(statement: &Stmt<'_>) -> Result<(), TooLong> {
    let all = |statements: &[Stmt<'_>]| statements.iter().try_for_each(check_statement);
    match statement {
        Stmt::Template(s) => all(&s.children),
        Stmt::EmitExpr(s) => check_expression(&s.expr),
        Stmt::EmitRaw(_) => Ok(()),
        Stmt::ForLoop(s) => {
            check_expression(&s.target)?;
            check_expression(&s.iter)?;
            s.filter_expr.as_ref().map_or(Ok(()), check_expression)?;
            all(&s.body)?;
            all(&s.else_body)
        }
        Stmt::IfCond(s) => {
            check_expression(&s.expr)?;
            all(&s.true_body)?;
            all(&s.false_body)
        }
        Stmt::WithBlock(s) => {
            for (target, value) in &s.assignments {
                check_expression(target)?;
                check_expression(value)?;
            }
            all(&s.body)
        }
        Stmt::Set(s) => {
            check_expression(&s.target)?;
            check_expression(&s.expr)
        }
        Stmt::SetBlock(s) => {
            s.filter.as_ref().map_or(Ok(()), check_expression)?;
            all(&s.body)
        }
        Stmt::AutoEscape(s) => {
            check_expression(&s.enabled)?;
            all(&s.body)
        }
        Stmt::FilterBlock(s) => {
            check_expression(&s.filter)?;
            all(&s.body)
        }
        Stmt::Do(s) => call(Some(&s.call.expr), &s.call.args).map(|_| ()),
    }
}
