//! What a terminal sends, from bytes to keys: legacy and `CSI u` sequences, bracketed pastes, and bytes
//! that are no UTF-8. Pure: bytes come in pieces of any size, and each key comes out once.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// The largest paste that is kept; what is beyond is dropped, and the paste says so.
const PASTE_BYTES_MAX: usize = 8 * 1024 * 1024;
const PASTE_BEGIN: &[u8] = b"\x1b[200~";
const PASTE_END: &[u8] = b"\x1b[201~";
/// A sequence that is longer than this is none that we know.
const SEQUENCE_BYTES_MAX: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    Key(KeyEvent),
    /// Its text, and how many bytes of it were too many.
    Paste {
        text: String,
        left_out: usize,
    },
    /// Rows to scroll by the mouse wheel; negative is up.
    Wheel(i16),
}

/// Bytes that are not decided yet.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    held: Vec<u8>,
    /// A bracketed paste that has not ended.
    paste: Option<Vec<u8>>,
    /// Bytes of it that were too many.
    left_out: usize,
}

/// What the beginning of some bytes is.
enum Parsed {
    /// So many bytes are this input; `None`: they mean nothing to us.
    Taken(usize, Option<Input>),
    /// More bytes may decide it.
    Undecided,
}

impl Decoder {
    /// Takes bytes as they were read; answers what they complete.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<Input> {
        let mut inputs = Vec::new();
        let mut rest = bytes;
        loop {
            if self.paste.is_some() {
                match self.take_paste(rest) {
                    Some((paste, behind)) => {
                        inputs.push(paste);
                        rest = behind;
                    }
                    None => return inputs,
                }
                continue;
            }
            if !rest.is_empty() {
                self.held.extend_from_slice(rest);
                rest = &[];
            }
            if self.held.starts_with(PASTE_BEGIN) {
                let behind = self.held.split_off(PASTE_BEGIN.len());
                self.held.clear();
                self.paste = Some(Vec::new());
                if let Some((paste, behind)) = self.take_paste(&behind) {
                    inputs.push(paste);
                    self.held = behind.to_vec();
                }
                continue;
            }
            match parse(&self.held) {
                Parsed::Taken(0, _) | Parsed::Undecided => return inputs,
                Parsed::Taken(count, input) => {
                    self.held.drain(..count);
                    inputs.extend(input);
                }
            }
        }
    }

    /// Nothing followed for a moment: a lone escape is the key itself.
    pub(crate) fn settle(&mut self) -> Vec<Input> {
        let held = std::mem::take(&mut self.held);
        match held.as_slice() {
            [0x1b] => vec![key(KeyCode::Esc, KeyModifiers::NONE)],
            [0x1b, b'['] => vec![key(KeyCode::Char('['), KeyModifiers::ALT)],
            [0x1b, b'O'] => vec![key(KeyCode::Char('O'), KeyModifiers::ALT)],
            // The beginning of a sequence or of a character that was cut off.
            _ => Vec::new(),
        }
    }

    /// Whether a moment decides about something.
    pub(crate) fn is_undecided(&self) -> bool {
        self.paste.is_none() && !self.held.is_empty()
    }

    /// The rest of a paste, and what is behind it; `None` if it has not ended.
    fn take_paste<'a>(&mut self, bytes: &'a [u8]) -> Option<(Input, &'a [u8])> {
        let paste = self.paste.get_or_insert_default();
        // The end may be cut in two.
        let before = paste.len();
        paste.extend_from_slice(bytes);
        let from = before.saturating_sub(PASTE_END.len() - 1);
        let found = find(&paste[from..], PASTE_END).map(|at| from + at);
        let Some(end) = found else {
            if paste.len() > PASTE_BYTES_MAX + PASTE_END.len() {
                // The tail stays: the end of the paste may begin in it.
                let too_many = PASTE_BYTES_MAX..paste.len() - PASTE_END.len();
                self.left_out += too_many.len();
                paste.drain(too_many);
            }
            return None;
        };
        let behind = (end + PASTE_END.len()).saturating_sub(before).min(bytes.len());
        let kept = end.min(PASTE_BYTES_MAX);
        let left_out = std::mem::take(&mut self.left_out) + end - kept;
        let text =
            String::from_utf8_lossy(&paste[..kept]).replace("\r\n", "\n").replace('\r', "\n");
        self.paste = None;
        Some((Input::Paste { text, left_out }, &bytes[behind..]))
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

fn key(code: KeyCode, modifiers: KeyModifiers) -> Input {
    Input::Key(KeyEvent::new(code, modifiers))
}

fn parse(bytes: &[u8]) -> Parsed {
    match bytes {
        [] => Parsed::Taken(0, None),
        [0x1b] | [0x1b, b'O'] => Parsed::Undecided,
        [0x1b, b'[', ..] => parse_csi(bytes),
        [0x1b, b'O', last, ..] => {
            Parsed::Taken(3, ss3(*last).map(|code| key(code, KeyModifiers::NONE)))
        }
        // Alt and a key; a second escape begins anything else.
        [0x1b, 0x1b, ..] => Parsed::Taken(1, Some(key(KeyCode::Esc, KeyModifiers::NONE))),
        [0x1b, rest @ ..] => match parse_plain(rest) {
            Parsed::Taken(count, Some(Input::Key(event))) => {
                let modifiers = event.modifiers | KeyModifiers::ALT;
                Parsed::Taken(count + 1, Some(key(event.code, modifiers)))
            }
            Parsed::Taken(count, other) => Parsed::Taken(count + 1, other),
            Parsed::Undecided => Parsed::Undecided,
        },
        _ => parse_plain(bytes),
    }
}

fn parse_plain(bytes: &[u8]) -> Parsed {
    let control = |code: char| Some(key(KeyCode::Char(code), KeyModifiers::CONTROL));
    let plain = |code: KeyCode| Some(key(code, KeyModifiers::NONE));
    let input = match bytes[0] {
        0 => control(' '),
        b'\t' => plain(KeyCode::Tab),
        b'\r' => plain(KeyCode::Enter),
        // Ctrl-J: what some terminals send for Shift-Enter.
        b'\n' => Some(key(KeyCode::Enter, KeyModifiers::SHIFT)),
        0x7f => plain(KeyCode::Backspace),
        0x08 => Some(key(KeyCode::Backspace, KeyModifiers::CONTROL)),
        byte @ 1..=26 => control(char::from(byte - 1 + b'a')),
        byte @ 28..=31 => control(char::from(byte - 28 + b'4')),
        byte if byte < 0x80 => plain(KeyCode::Char(char::from(byte))),
        _ => return parse_utf8(bytes),
    };
    Parsed::Taken(1, input)
}

fn parse_utf8(bytes: &[u8]) -> Parsed {
    let wanted = match bytes[0] {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        // No beginning of a character.
        _ => return Parsed::Taken(1, Some(key(KeyCode::Char('\u{fffd}'), KeyModifiers::NONE))),
    };
    let known = bytes.len().min(wanted);
    match std::str::from_utf8(&bytes[..known]) {
        Ok(text) => {
            let c = text.chars().next().unwrap_or('\u{fffd}');
            Parsed::Taken(known, Some(key(KeyCode::Char(c), KeyModifiers::NONE)))
        }
        Err(error) if error.error_len().is_none() => Parsed::Undecided,
        Err(_) => Parsed::Taken(1, Some(key(KeyCode::Char('\u{fffd}'), KeyModifiers::NONE))),
    }
}

fn ss3(last: u8) -> Option<KeyCode> {
    match last {
        b'A' => Some(KeyCode::Up),
        b'B' => Some(KeyCode::Down),
        b'C' => Some(KeyCode::Right),
        b'D' => Some(KeyCode::Left),
        b'F' => Some(KeyCode::End),
        b'H' => Some(KeyCode::Home),
        b'M' => Some(KeyCode::Enter),
        b'P'..=b'S' => Some(KeyCode::F(last - b'P' + 1)),
        _ => None,
    }
}

fn parse_csi(bytes: &[u8]) -> Parsed {
    // Mouse as X10 spells it: three bytes behind the M.
    if bytes.get(2) == Some(&b'M') {
        return if bytes.len() < 6 { Parsed::Undecided } else { Parsed::Taken(6, None) };
    }
    let Some(end) = bytes[2..].iter().position(|byte| (0x40..=0x7e).contains(byte)) else {
        if bytes.len() > SEQUENCE_BYTES_MAX {
            return Parsed::Taken(1, None);
        }
        return Parsed::Undecided;
    };
    let (last, length) = (bytes[2 + end], end + 3);
    let Ok(parameters) = std::str::from_utf8(&bytes[2..2 + end]) else {
        return Parsed::Taken(length, None);
    };
    Parsed::Taken(length, csi(parameters, last))
}

fn csi(parameters: &str, last: u8) -> Option<Input> {
    if let Some(mouse) = parameters.strip_prefix('<') {
        return match mouse.split(';').next() {
            Some("64") => Some(Input::Wheel(-3)),
            Some("65") => Some(Input::Wheel(3)),
            _ => None,
        };
    }
    let mut fields = parameters.split(';').map(|field| {
        let mut parts = field.split(':').map(|part| part.parse::<u32>().ok());
        (parts.next().flatten(), parts.next().flatten())
    });
    let (first, _) = fields.next().unwrap_or_default();
    let (second, event) = fields.next().unwrap_or_default();
    // The release of a key, where a terminal reports it.
    if event == Some(3) {
        return None;
    }
    let modifiers = modifiers(second);
    let code = match last {
        b'A' | b'B' | b'C' | b'D' | b'F' | b'H' | b'P'..=b'S' => ss3(last)?,
        b'Z' => return Some(key(KeyCode::BackTab, KeyModifiers::SHIFT)),
        b'u' => return unicode(first?, modifiers),
        b'~' => match first? {
            1 | 7 => KeyCode::Home,
            2 => KeyCode::Insert,
            3 => KeyCode::Delete,
            4 | 8 => KeyCode::End,
            5 => KeyCode::PageUp,
            6 => KeyCode::PageDown,
            number @ 11..=15 => KeyCode::F(u8::try_from(number - 10).ok()?),
            number @ 17..=21 => KeyCode::F(u8::try_from(number - 11).ok()?),
            // xterm's modifyOtherKeys: 27 ; modifiers ; character.
            27 => return unicode(fields.next()?.0?, modifiers),
            _ => return None,
        },
        _ => return None,
    };
    Some(key(code, modifiers))
}

fn modifiers(field: Option<u32>) -> KeyModifiers {
    let bits = field.unwrap_or(1).saturating_sub(1);
    let mut modifiers = KeyModifiers::NONE;
    for (bit, modifier) in [
        (1, KeyModifiers::SHIFT),
        (2, KeyModifiers::ALT),
        (4, KeyModifiers::CONTROL),
        (8, KeyModifiers::SUPER),
    ] {
        if bits & bit != 0 {
            modifiers |= modifier;
        }
    }
    modifiers
}

fn unicode(code: u32, modifiers: KeyModifiers) -> Option<Input> {
    let code = match code {
        9 if modifiers.contains(KeyModifiers::SHIFT) => KeyCode::BackTab,
        9 => KeyCode::Tab,
        13 => KeyCode::Enter,
        27 => KeyCode::Esc,
        8 | 127 => KeyCode::Backspace,
        // Keys of their own in the private use area.
        57344..=63743 => return None,
        code => {
            let c = char::from_u32(code)?;
            let is_upper = modifiers.contains(KeyModifiers::SHIFT) && c.is_ascii_lowercase();
            KeyCode::Char(if is_upper { c.to_ascii_uppercase() } else { c })
        }
    };
    Some(key(code, modifiers))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(code: KeyCode) -> Input {
        key(code, KeyModifiers::NONE)
    }

    fn pasted(text: impl Into<String>) -> Input {
        Input::Paste { text: text.into(), left_out: 0 }
    }

    fn decoded(bytes: &[u8]) -> Vec<Input> {
        let mut decoder = Decoder::default();
        let mut inputs = decoder.push(bytes);
        inputs.extend(decoder.settle());
        inputs
    }

    #[test]
    fn keys_are_read_as_terminals_spell_them() {
        let (alt, control, shift) = (KeyModifiers::ALT, KeyModifiers::CONTROL, KeyModifiers::SHIFT);
        for (bytes, wanted) in [
            (&b"a"[..], plain(KeyCode::Char('a'))),
            ("日".as_bytes(), plain(KeyCode::Char('日'))),
            (b"\r", plain(KeyCode::Enter)),
            (b"\n", key(KeyCode::Enter, shift)),
            (b"\x1b\r", key(KeyCode::Enter, alt)),
            (b"\x1b[13;2u", key(KeyCode::Enter, shift)),
            (b"\x1b[27;2;13~", key(KeyCode::Enter, shift)),
            (b"\x1b[A", plain(KeyCode::Up)),
            (b"\x1bOA", plain(KeyCode::Up)),
            (b"\x1b[1;5D", key(KeyCode::Left, control)),
            (b"\x1bb", key(KeyCode::Char('b'), alt)),
            (b"\x1b[3~", plain(KeyCode::Delete)),
            (b"\x7f", plain(KeyCode::Backspace)),
            (b"\x1b\x7f", key(KeyCode::Backspace, alt)),
            (b"\x03", key(KeyCode::Char('c'), control)),
            (b"\x1f", key(KeyCode::Char('7'), control)),
            (b"\x1b[99;5u", key(KeyCode::Char('c'), control)),
            (b"\x1b[Z", key(KeyCode::BackTab, shift)),
            (b"\x1b", plain(KeyCode::Esc)),
            (b"\x1b[<64;1;1M", Input::Wheel(-3)),
        ] {
            assert_eq!(decoded(bytes), [wanted], "{:?}", String::from_utf8_lossy(bytes));
        }
        assert_eq!(decoded(b"\x1b[97;1:3u"), [], "the release of a key");
        assert_eq!(decoded(b"\x1b[?1;2c"), [], "an answer of the terminal");
    }

    #[test]
    fn pieces_do_not_matter() {
        let bytes = "aü\x1b[1;3C\x1b[200~one\r\ntwo\x1b[201~z\x1bOB".as_bytes();
        let whole = decoded(bytes);
        assert_eq!(whole.len(), 6);
        assert_eq!(whole[3], pasted("one\ntwo"));
        for cut in 0..=bytes.len() {
            let mut decoder = Decoder::default();
            let mut inputs = decoder.push(&bytes[..cut]);
            inputs.extend(decoder.push(&bytes[cut..]));
            assert_eq!(inputs, whole, "cut at {cut}");
        }
        let mut decoder = Decoder::default();
        let inputs: Vec<Input> = bytes.iter().flat_map(|byte| decoder.push(&[*byte])).collect();
        assert_eq!(inputs, whole);
    }

    #[test]
    fn bytes_that_are_no_text_do_no_harm() {
        let bad = plain(KeyCode::Char('\u{fffd}'));
        assert_eq!(
            decoded(b"\xff\xc3(a"),
            [bad.clone(), bad, plain(KeyCode::Char('(')), plain(KeyCode::Char('a'))]
        );
        let long = [b"\x1b[".as_slice(), &[b'1'; 100], b"x"].concat();
        assert_eq!(decoded(&long), [], "a sequence that means nothing");
        let endless = [b"\x1b[".as_slice(), &[b'1'; 100]].concat();
        assert!(!decoded(&endless).is_empty(), "it is not waited for");
        let paste = [PASTE_BEGIN, b"a\xffb", PASTE_END].concat();
        assert_eq!(decoded(&paste), [pasted("a\u{fffd}b")]);
    }

    #[test]
    fn a_paste_that_is_too_long_says_how_much_is_left_out() {
        for too_many in [0, 1, 5, 6, 7, 100_000] {
            let text = "x".repeat(PASTE_BYTES_MAX + too_many);
            let bytes = [PASTE_BEGIN, text.as_bytes(), PASTE_END, b"z"].concat();
            let mut decoder = Decoder::default();
            let chunks = bytes.chunks(65_536);
            let inputs: Vec<Input> = chunks.flat_map(|chunk| decoder.push(chunk)).collect();
            let text = "x".repeat(PASTE_BYTES_MAX);
            let paste = Input::Paste { text, left_out: too_many };
            assert!(inputs == [paste, plain(KeyCode::Char('z'))], "{too_many} too many");
        }
    }

    #[test]
    fn a_large_paste_is_one_input() {
        let text = "0123456789\n".repeat(100_000);
        let bytes = [PASTE_BEGIN, text.as_bytes(), PASTE_END, b"x"].concat();
        let mut decoder = Decoder::default();
        let inputs: Vec<Input> = bytes.chunks(4096).flat_map(|chunk| decoder.push(chunk)).collect();
        assert_eq!(inputs, [pasted(text), plain(KeyCode::Char('x'))]);
    }
}
