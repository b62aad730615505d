//! Bytes of a text that come in pieces. Cut wherever they are, the text is the same.

/// Holds back the beginning of a character, and a line's end that may be the last: programs end
/// their output with one that belongs to no answer.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    held: Vec<u8>,
}

impl Decoder {
    /// What is sure by now. What is no character is one that says so.
    pub(super) fn push(&mut self, bytes: &[u8]) -> String {
        self.held.extend_from_slice(bytes);
        let whole = self.held.len() - self.open_bytes();
        let rest = self.held.split_off(whole);
        let text = String::from_utf8_lossy(&self.held).into_owned();
        self.held = rest;
        text
    }

    pub(super) fn finish(&mut self) -> String {
        let held = std::mem::take(&mut self.held);
        let end = held.strip_suffix(b"\r\n").or_else(|| held.strip_suffix(b"\n"));
        String::from_utf8_lossy(end.unwrap_or(&held)).into_owned()
    }

    /// How many bytes at the end are not to be given out yet.
    fn open_bytes(&self) -> usize {
        let held = &self.held;
        if held.ends_with(b"\r\n") {
            return 2;
        }
        if held.ends_with(b"\n") || held.ends_with(b"\r") {
            return 1;
        }
        // A character has four bytes at most: the last three may be the beginning of one.
        let from = held.len().saturating_sub(3);
        let starts = (from..held.len()).rev().find(|at| held[*at] & 0b1100_0000 != 0b1000_0000);
        match starts {
            Some(at) if needs(held[at]) > held.len() - at => held.len() - at,
            _ => 0,
        }
    }
}

/// How many bytes a character has that begins with this one.
fn needs(first: u8) -> usize {
    match first {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cuts at every place, and at every pair of places, give what the whole gives.
    #[test]
    fn it_does_not_matter_where_bytes_are_cut() {
        let texts: [&[u8]; 6] = [
            "Größe 大 🦀\r\nnext\n\nline\r\n".as_bytes(),
            b"no end",
            b"\n",
            b"\r",
            b"bad \xff\xc3 \xe5\xa4 \xf0\x9f\xa6 \x80\x80 end \xf0\x9f",
            b"",
        ];
        for bytes in texts {
            let end = bytes.strip_suffix(b"\r\n").or_else(|| bytes.strip_suffix(b"\n"));
            let expected = String::from_utf8_lossy(end.unwrap_or(bytes)).into_owned();
            for one in 0..=bytes.len() {
                for two in one..=bytes.len() {
                    let mut decoder = Decoder::default();
                    let pieces = [&bytes[..one], &bytes[one..two], &bytes[two..]];
                    let mut text: String = pieces.map(|piece| decoder.push(piece)).concat();
                    text.push_str(&decoder.finish());
                    assert_eq!(text, expected, "cut at {one} and {two}");
                }
            }
        }
    }

    /// An agent that says a word and thinks is heard at once.
    #[test]
    fn little_is_held_back() {
        let mut decoder = Decoder::default();
        assert_eq!(decoder.push("halb ".as_bytes()), "halb ");
        assert_eq!(decoder.push("größer\n".as_bytes()), "größer");
        assert_eq!(decoder.push(b"x"), "\nx");
    }
}
