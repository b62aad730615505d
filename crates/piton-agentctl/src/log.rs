//! agentctl's own log, in a file of bounded size: its output has no reader.

use std::fmt::{Debug, Write as _};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use piton_core::Timestamp;
use piton_core::mask::Masker;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// When the file is longer, it becomes the old one, and the old one goes.
const BYTES_MAX: u64 = 256 * 1024;

pub(crate) struct LogFile {
    path: PathBuf,
    masker: Arc<Masker>,
    file: Mutex<(File, u64)>,
}

impl LogFile {
    pub(crate) fn open(path: &Path, masker: Arc<Masker>) -> io::Result<Self> {
        let file = append(path)?;
        let bytes = file.metadata()?.len();
        Ok(Self { path: path.to_owned(), masker, file: Mutex::new((file, bytes)) })
    }

    fn line(&self, line: &str) {
        let mut guard = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let (file, bytes) = &mut *guard;
        if *bytes > BYTES_MAX
            && fs::rename(&self.path, self.path.with_extension("log.old")).is_ok()
            && let Ok(new) = append(&self.path)
        {
            (*file, *bytes) = (new, 0);
        }
        // There is nowhere to report a log that cannot be written.
        if *bytes <= BYTES_MAX && file.write_all(line.as_bytes()).is_ok() {
            *bytes += line.len() as u64;
        }
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

impl Subscriber for LogFile {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO && metadata.target().starts_with("piton")
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        let millis = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let at = Timestamp::from_millis(i64::try_from(millis).unwrap_or(i64::MAX));
        let said = format!("{}{}", text.message, text.fields).replace('\n', " ");
        let said = self.masker.text(&said);
        self.line(&format!("{at} {} {said}\n", event.metadata().level()));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let written = if field.name() == "message" {
            write!(self.message, "{value:?}")
        } else {
            write!(self.fields, " {}={value:?}", field.name())
        };
        // Writing to a string does not fail.
        let _ = written;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_bounded_and_masked() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("agentctl.log");
        let keys = piton_core::mask::KeyPatterns::default();
        let masker = Arc::new(Masker::new(keys, ["hunter2hunter2"]).unwrap());
        let log = LogFile::open(&path, masker).unwrap();
        tracing::subscriber::with_default(log, || {
            for n in 0..10_000 {
                tracing::warn!(n, "The password is hunter2hunter2, and so on and on and on");
            }
        });
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains("WARN The password is") && text.contains("n=9999"), "{text}");
        assert!(!text.contains("hunter2"));
        let bytes: u64 =
            fs::read_dir(temp.path()).unwrap().map(|f| f.unwrap().metadata().unwrap().len()).sum();
        assert!(bytes < 2 * BYTES_MAX + 4096, "{bytes}");
    }
}
