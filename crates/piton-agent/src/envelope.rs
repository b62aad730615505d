//! Finds the `id` and `method` of a message that is too long to be held, so that neither side waits
//! for ever for an answer that was skipped.

use serde_json::Value;

/// Longer ones are not looked at.
const SCALAR_BYTES_MAX: usize = 256;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Envelope {
    pub(crate) id: Option<Value>,
    pub(crate) method: Option<String>,
}

/// Goes over JSON text of any length and keeps what stands at its top under two keys.
#[derive(Debug, Default)]
pub(crate) struct EnvelopeScanner {
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// The scalar being read at the top level, as it is written.
    scalar: Vec<u8>,
    key: Option<String>,
    /// Behind the colon.
    is_value: bool,
    found: Envelope,
}

impl EnvelopeScanner {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.step(*byte);
        }
    }

    pub(crate) fn finish(self) -> Envelope {
        self.found
    }

    fn step(&mut self, byte: u8) {
        let at_top = self.depth == 1;
        if self.in_string {
            self.keep(byte);
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return;
        }
        match byte {
            b'"' => {
                self.in_string = true;
                self.keep(byte);
            }
            b':' if at_top && !self.is_value => {
                self.key = serde_json::from_slice(&self.scalar).ok();
                self.is_value = true;
                self.scalar.clear();
            }
            b',' if at_top => self.end_of_value(),
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                if at_top {
                    self.end_of_value();
                }
                self.depth = self.depth.saturating_sub(1);
            }
            _ => self.keep(byte),
        }
    }

    fn keep(&mut self, byte: u8) {
        if self.depth == 1 && self.scalar.len() <= SCALAR_BYTES_MAX {
            self.scalar.push(byte);
        }
    }

    fn end_of_value(&mut self) {
        let value: Option<Value> = serde_json::from_slice(&self.scalar).ok();
        self.scalar.clear();
        self.is_value = false;
        match (self.key.take().as_deref(), value) {
            (Some("id"), Some(id)) => self.found.id = Some(id),
            (Some("method"), Some(Value::String(method))) => self.found.method = Some(method),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_and_method_are_found_at_the_top_and_nowhere_else() {
        for (text, id, method) in [
            (
                r#"{"jsonrpc":"2.0","id":3,"method":"a/b","params":{"id":4}}"#,
                Some(3.into()),
                Some("a/b"),
            ),
            (
                r#"{"params":{"id":4,"method":"x"},"id":"q\"}","method":"m"}"#,
                Some("q\"}".into()),
                Some("m"),
            ),
            (r#"{ "result" : [1,{"id":2}] , "id" : 9 }"#, Some(9.into()), None),
            (r#"{"result":"\"id\":5,","id":null"#, None, None),
            (r"xxxxxxxx", None, None),
        ] {
            for size in [1, 3, 1_000] {
                let mut scanner = EnvelopeScanner::default();
                text.as_bytes().chunks(size).for_each(|piece| scanner.push(piece));
                let found = scanner.finish();
                assert_eq!((found.id, found.method.as_deref()), (id.clone(), method), "{text}");
            }
        }
    }
}
