//! A YAML or JSON document as a tree that knows where everything stands. Anchors and aliases are
//! refused: nothing in a file can become larger than the file.

use saphyr_parser::{Event, Parser, ScalarStyle, Span};
use serde_json::{Map, Number, Value};

use crate::error::{SourceLocation, SpecError};

/// How deep a document may be nested.
const DEPTH_MAX: usize = 32;

#[derive(Clone, Debug)]
pub(super) struct Tree {
    pub(super) node: Node,
    pub(super) location: SourceLocation,
}

#[derive(Clone, Debug)]
pub(super) enum Node {
    Scalar(Value),
    List(Vec<Tree>),
    Object(Vec<(String, SourceLocation, Tree)>),
}

fn location(span: Span) -> SourceLocation {
    SourceLocation { line: span.start.line(), column: span.start.col() + 1 }
}

pub(super) fn read(text: &str) -> Result<Tree, SpecError> {
    let mut events = Events { parser: Parser::new_from_str(text) };
    let (event, span) = loop {
        match events.next()? {
            (Event::StreamStart | Event::DocumentStart(_), _) => {}
            other => break other,
        }
    };
    if matches!(event, Event::StreamEnd) {
        return Err(SpecError::new("The graph file is empty").at(Some(location(span))));
    }
    let tree = events.tree(event, span, 0)?;
    loop {
        match events.next()? {
            (Event::DocumentEnd, _) => {}
            (Event::StreamEnd, _) => return Ok(tree),
            (_, span) => {
                let error = SpecError::new("A graph file has one document");
                return Err(error.at(Some(location(span))));
            }
        }
    }
}

struct Events<'a> {
    parser: Parser<'a, saphyr_parser::StrInput<'a>>,
}

impl<'a> Events<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Span), SpecError> {
        match self.parser.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => {
                let at = error.marker();
                let location = SourceLocation { line: at.line(), column: at.col() + 1 };
                let message = format!("The file is not valid YAML: {}", error.info());
                Err(SpecError::new(message).at(Some(location)))
            }
            None => Err(SpecError::new("The graph file breaks off")),
        }
    }

    fn tree(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Tree, SpecError> {
        let location = location(span);
        let fail = |message: &str| Err(SpecError::new(message).at(Some(location)));
        if depth > DEPTH_MAX {
            return fail("The file is nested too deeply");
        }
        let node = match event {
            Event::Alias(_) => return fail("Anchors and aliases are not supported in graph files"),
            Event::Scalar(_, _, anchor, _)
            | Event::SequenceStart(anchor, _)
            | Event::MappingStart(anchor, _)
                if anchor > 0 =>
            {
                return fail("Anchors and aliases are not supported in graph files");
            }
            Event::Scalar(text, style, _, _) => Node::Scalar(scalar(&text, style)),
            Event::SequenceStart(..) => {
                let mut items = Vec::new();
                loop {
                    match self.next()? {
                        (Event::SequenceEnd, _) => break Node::List(items),
                        (event, span) => items.push(self.tree(event, span, depth + 1)?),
                    }
                }
            }
            Event::MappingStart(..) => self.object(depth)?,
            _ => return fail("This is not expected here"),
        };
        Ok(Tree { node, location })
    }

    fn object(&mut self, depth: usize) -> Result<Node, SpecError> {
        let mut fields: Vec<(String, SourceLocation, Tree)> = Vec::new();
        loop {
            let (event, span) = match self.next()? {
                (Event::MappingEnd, _) => return Ok(Node::Object(fields)),
                other => other,
            };
            let at = location(span);
            let Event::Scalar(key, ..) = event else {
                return Err(SpecError::new("A key has to be text").at(Some(at)));
            };
            if fields.iter().any(|(known, ..)| *known == *key) {
                let error = SpecError::new(format!("The key `{key}` stands here twice"));
                return Err(error.at(Some(at)));
            }
            let (event, span) = self.next()?;
            let value = self.tree(event, span, depth + 1)?;
            fields.push((key.into_owned(), at, value));
        }
    }
}

/// A plain scalar by YAML's core schema; a quoted one is text.
fn scalar(text: &str, style: ScalarStyle) -> Value {
    if style != ScalarStyle::Plain {
        return text.into();
    }
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return true.into(),
        "false" | "False" | "FALSE" => return false.into(),
        _ => {}
    }
    if let Ok(number) = text.parse::<i64>() {
        return number.into();
    }
    let looks_like_number = text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c))
        && text.chars().any(|c| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_digit() || "+-.eE".contains(c));
    let number = text.parse::<f64>().ok().filter(|_| looks_like_number);
    number.and_then(Number::from_f64).map_or_else(|| text.into(), Value::Number)
}

impl Tree {
    /// The value without its locations.
    pub(super) fn value(&self) -> Value {
        match &self.node {
            Node::Scalar(value) => value.clone(),
            Node::List(items) => items.iter().map(Self::value).collect(),
            Node::Object(fields) => {
                let entries = fields.iter().map(|(key, _, tree)| (key.clone(), tree.value()));
                Value::Object(entries.collect::<Map<_, _>>())
            }
        }
    }

    pub(super) fn fail(&self, message: impl Into<String>) -> SpecError {
        SpecError::new(message).at(Some(self.location))
    }

    pub(super) fn text(&self, what: &str) -> Result<String, SpecError> {
        match &self.node {
            Node::Scalar(Value::String(text)) => Ok(text.clone()),
            // `writes: on` or `goal: 7` are meant as they are written.
            Node::Scalar(value @ (Value::Number(_) | Value::Bool(_))) => Ok(value.to_string()),
            _ => Err(self.fail(format!("{what} has to be text"))),
        }
    }

    pub(super) fn boolean(&self, what: &str) -> Result<bool, SpecError> {
        match &self.node {
            Node::Scalar(Value::Bool(value)) => Ok(*value),
            _ => Err(self.fail(format!("{what} has to be true or false"))),
        }
    }

    pub(super) fn number(&self, what: &str) -> Result<u64, SpecError> {
        match &self.node {
            Node::Scalar(Value::Number(value)) if value.as_u64().is_some() => {
                Ok(value.as_u64().unwrap_or_default())
            }
            _ => Err(self.fail(format!("{what} has to be a whole number"))),
        }
    }

    pub(super) fn fields(
        &self,
        what: &str,
    ) -> Result<&[(String, SourceLocation, Tree)], SpecError> {
        match &self.node {
            Node::Object(fields) => Ok(fields),
            Node::Scalar(Value::Null) => Ok(&[]),
            _ => Err(self.fail(format!("{what} has to be an object"))),
        }
    }

    /// The items of a list; one text stands for a list of one.
    pub(super) fn items(&self, what: &str) -> Result<Vec<&Self>, SpecError> {
        match &self.node {
            Node::List(items) => Ok(items.iter().collect()),
            Node::Scalar(Value::Null) => Ok(Vec::new()),
            Node::Scalar(_) => Ok(vec![self]),
            Node::Object(_) => Err(self.fail(format!("{what} has to be a list"))),
        }
    }

    pub(super) fn texts(&self, what: &str) -> Result<Vec<(String, SourceLocation)>, SpecError> {
        let items = self.items(what)?;
        items.into_iter().map(|item| Ok((item.text(what)?, item.location))).collect()
    }
}
