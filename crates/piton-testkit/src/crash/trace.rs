//! Reads what strace saw and decides whether anything was acknowledged before it was flushed. Only
//! order counts: a system call happened between the line on which it began and the one on which it
//! ended.

use std::collections::HashMap;

/// The store's write-ahead log.
pub const WAL: &str = "store.sqlite3-wal";
/// SQLite writes a frame's head by itself, then its page.
const FRAME_HEAD_BYTES: usize = 24;
/// Where a frame's head says that a transaction ends with it (the database's new size).
const FRAME_ENDS_AT: std::ops::Range<usize> = 4..8;

/// One system call on one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub name: String,
    /// What the file descriptor stands for.
    pub file: String,
    /// What was written.
    pub data: Vec<u8>,
    /// The lines on which it began and ended.
    pub begun: usize,
    pub ended: usize,
    pub worked: bool,
}

impl Call {
    fn is_flush(&self) -> bool {
        matches!(self.name.as_str(), "fdatasync" | "fsync")
    }

    fn is_write(&self) -> bool {
        matches!(self.name.as_str(), "pwrite64" | "pwritev" | "pwritev2" | "write" | "writev")
    }

    fn is_of(&self, file: &str) -> bool {
        self.file.rsplit('/').next() == Some(file)
    }
}

/// What a trace was found to show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// Acknowledgements, each behind its flush.
    pub acks: usize,
    /// Flushes of the write-ahead log that worked, and that did not.
    pub flushes: usize,
    pub flushes_failed: usize,
    /// Acknowledgements after the first failed flush, of what no flush before it had made durable.
    /// (Another thread may acknowledge durable records late.)
    pub acks_after_failure: usize,
}

/// The calls of a trace (`strace -f -y -s BIG -o FILE`), in the order of their ends.
pub fn parse(trace: &str) -> Vec<Call> {
    let mut calls = Vec::new();
    let mut unfinished: HashMap<&str, Call> = HashMap::new();
    for (line, text) in trace.lines().enumerate() {
        let Some((pid, rest)) = text.split_once(' ') else { continue };
        let rest = rest.trim_start();
        if rest.starts_with("<... ") {
            if let Some(mut call) = unfinished.remove(pid) {
                (call.ended, call.worked) = (line, worked(rest));
                calls.push(call);
            }
            continue;
        }
        let Some(mut call) = begun(rest, line) else { continue };
        if rest.ends_with("<unfinished ...>") {
            unfinished.insert(pid, call);
        } else {
            call.worked = worked(rest);
            calls.push(call);
        }
    }
    // A thread that was killed in a call did not see its end.
    calls.extend(unfinished.into_values().map(|call| Call { ended: usize::MAX, ..call }));
    calls
}

fn begun(text: &str, line: usize) -> Option<Call> {
    let (name, arguments) = text.split_once('(')?;
    if !name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_') {
        return None;
    }
    let file = arguments.split_once('<').and_then(|(fd, rest)| {
        let is_fd = !fd.is_empty() && fd.bytes().all(|c| c.is_ascii_digit());
        is_fd.then(|| rest.split('>').next().unwrap_or_default())
    });
    Some(Call {
        name: name.to_owned(),
        file: file.unwrap_or_default().to_owned(),
        data: strings(arguments),
        begun: line,
        ended: line,
        worked: false,
    })
}

fn worked(text: &str) -> bool {
    let result = text.rsplit_once(" = ").map_or("", |(_, result)| result);
    result.starts_with(|c: char| c.is_ascii_digit())
}

/// All quoted strings, one behind the other.
fn strings(text: &str) -> Vec<u8> {
    let mut bytes = text.bytes().peekable();
    let mut data = Vec::new();
    let mut quoted = false;
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => quoted = !quoted,
            b'\\' if quoted => {
                let digit = |c: &u8| (b'0'..=b'7').contains(c);
                match bytes.next() {
                    Some(first) if digit(&first) => {
                        let mut value = u32::from(first - b'0');
                        for _ in 0..2 {
                            let Some(next) = bytes.next_if(digit) else { break };
                            value = value * 8 + u32::from(next - b'0');
                        }
                        data.push(u8::try_from(value).unwrap_or(u8::MAX));
                    }
                    Some(b'n') => data.push(b'\n'),
                    Some(b't') => data.push(b'\t'),
                    Some(b'r') => data.push(b'\r'),
                    Some(b'v') => data.push(0x0b),
                    Some(b'f') => data.push(0x0c),
                    Some(other) => data.push(other),
                    None => {}
                }
            }
            _ if quoted => data.push(byte),
            _ => {}
        }
    }
    data
}

/// Whether every acknowledged record's transaction was written and flushed before it was
/// acknowledged.
pub fn check(calls: &[Call]) -> Result<Shown, Vec<String>> {
    let mut wal: Vec<&Call> =
        calls.iter().filter(|call| call.is_of(WAL) && call.is_write() && call.worked).collect();
    wal.sort_by_key(|call| call.begun);
    // Marks are ASCII; searching in text is much faster than in bytes.
    let texts: Vec<_> = wal.iter().map(|call| String::from_utf8_lossy(&call.data)).collect();
    let flushes: Vec<&Call> =
        calls.iter().filter(|call| call.is_of(WAL) && call.is_flush()).collect();
    let failed = flushes.iter().filter(|flush| !flush.worked).map(|flush| flush.begun).min();
    let mut shown = Shown {
        flushes: flushes.iter().filter(|flush| flush.worked).count(),
        flushes_failed: flushes.iter().filter(|flush| !flush.worked).count(),
        ..Shown::default()
    };
    let mut wrong = Vec::new();
    for ack in calls.iter().filter(|call| call.is_write() && call.data.starts_with(b"ack ")) {
        let said = String::from_utf8_lossy(&ack.data);
        let mark = said.trim_end().rsplit(' ').next().unwrap_or_default();
        let page = texts.iter().position(|text| text.contains(mark));
        match flushed_before(&wal, &flushes, page, ack.begun) {
            Ok(()) => shown.acks += 1,
            Err(why) => wrong.push(format!("{}: {why}", said.trim_end())),
        }
        let after = failed.is_some_and(|failed| {
            ack.begun > failed && flushed_before(&wal, &flushes, page, failed).is_err()
        });
        shown.acks_after_failure += usize::from(after);
    }
    if wrong.is_empty() { Ok(shown) } else { Err(wrong) }
}

fn flushed_before(
    wal: &[&Call],
    flushes: &[&Call],
    page: Option<usize>,
    acknowledged: usize,
) -> Result<(), String> {
    let page = page.ok_or("was never written")?;
    let head = wal[..=page].iter().rposition(|call| call.data.len() == FRAME_HEAD_BYTES);
    let head = head.ok_or("is not in a frame")?;
    let ends = |call: &&Call| {
        call.data.len() == FRAME_HEAD_BYTES && call.data[FRAME_ENDS_AT].iter().any(|b| *b != 0)
    };
    let last = wal[head..].iter().position(ends).ok_or("is in a transaction without an end")?;
    let last = wal.get(head + last + 1).ok_or("is in a transaction without its last page")?;
    let durable = flushes
        .iter()
        .any(|flush| flush.worked && flush.begun > last.ended && flush.ended < acknowledged);
    if durable { Ok(()) } else { Err("was acknowledged before a flush".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A batch whose second frame ends the transaction, with another thread's lines in between.
    const GOOD: &str = r#"10 openat(AT_FDCWD</d>, "/d/store.sqlite3-wal", O_RDWR) = 7</d/store.sqlite3-wal>
11 pwrite64(7</d/store.sqlite3-wal>, "\0\0\0\3\0\0\0\0ssssssssccccccc\n", 24, 32) = 24
11 pwrite64(7</d/store.sqlite3-wal>, "..run.completed{\"run_id\":\"r1\"}..", 4096, 56) = 4096
11 pwrite64(7</d/store.sqlite3-wal>, "\0\0\0\4\0\0\0\11ssssssssccccccc\0", 24, 4152) = 24
11 pwrite64(7</d/store.sqlite3-wal>, "more", 4096, 4176) = 4096
11 fdatasync(7</d/store.sqlite3-wal> <unfinished ...>
12 fdatasync(9</d/anchors.sqlite3-wal>) = 0
11 <... fdatasync resumed>) = 0
10 write(3<pipe:[1]>, "ack s 7 0 run.completed{\"run_id\":\"r1\"\n", 40) = 40
"#;

    fn without(lines: &[usize]) -> String {
        let kept = GOOD.lines().enumerate().filter(|(index, _)| !lines.contains(index));
        kept.map(|(_, line)| line).collect::<Vec<_>>().join("\n")
    }

    fn moved(from: usize, to: usize) -> String {
        let mut lines: Vec<&str> = GOOD.lines().collect();
        let line = lines.remove(from);
        lines.insert(to, line);
        lines.join("\n")
    }

    #[test]
    fn a_flush_between_batch_and_acknowledgement_is_good() {
        let shown = check(&parse(GOOD)).unwrap();
        assert_eq!((shown.acks, shown.flushes, shown.flushes_failed), (1, 1, 0));
    }

    #[test]
    fn a_missing_flush_is_found_though_another_file_is_flushed() {
        assert!(check(&parse(&without(&[5, 7]))).unwrap_err()[0].contains("before a flush"));
    }

    #[test]
    fn a_flush_that_ends_after_the_acknowledgement_is_found() {
        assert!(check(&parse(&moved(7, 8))).unwrap_err()[0].contains("before a flush"));
    }

    #[test]
    fn a_flush_that_begins_before_the_batch_is_whole_is_found() {
        assert!(check(&parse(&moved(5, 3))).unwrap_err()[0].contains("before a flush"));
    }

    #[test]
    fn a_failed_flush_is_none() {
        let failed = GOOD.replace("resumed>) = 0", "resumed>) = -1 EIO (INJECTED)");
        assert!(check(&parse(&failed)).unwrap_err()[0].contains("before a flush"));
    }

    #[test]
    fn what_was_never_written_is_found() {
        assert!(check(&parse(&without(&[2]))).unwrap_err()[0].contains("never written"));
        assert!(check(&parse(&without(&[3, 4]))).unwrap_err()[0].contains("without an end"));
    }

    #[test]
    fn escapes_are_read() {
        assert_eq!(
            strings(r#"7, [{iov_base="a\0\12\377\"\\", iov_len=6}, {"z"}]"#),
            [b'a', 0, 10, 255, b'"', b'\\', b'z']
        );
    }
}
