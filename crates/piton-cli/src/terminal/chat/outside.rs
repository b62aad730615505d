//! The prompt in a program of its own, which has the terminal meanwhile.

use std::io;
use std::process::Command;

use super::Chat;
use crate::terminal::display::{Inline, Raw, wraps_again, write};
use crate::ui::Tone;

impl Chat<'_> {
    /// The prompt in the person's own editor. What goes wrong is said, and the prompt is as it was.
    pub(super) fn edit_outside(&mut self) {
        let named = std::env::var("VISUAL").or_else(|_| std::env::var("EDITOR"));
        let program = named.ok().filter(|name| !name.is_empty()).unwrap_or_else(|| "vi".to_owned());
        match self.edit_with(&program) {
            Ok(text) => self.editor.set(&text),
            Err(why) => {
                let text = format!("{why}; the prompt is as it was.");
                self.message = Some((Tone::Bad, text));
            }
        }
    }

    fn edit_with(&mut self, program: &str) -> Result<String, String> {
        let no_file = |error: io::Error| format!("No file for {program}: {error}");
        let file = tempfile::Builder::new().prefix("piton-").suffix(".md").tempfile();
        let file = file.map_err(no_file)?;
        std::fs::write(file.path(), self.editor.text()).map_err(no_file)?;
        let no_terminal = |error: io::Error| format!("No terminal for {program}: {error}");
        write(&self.inline.leave()).map_err(no_terminal)?;
        self.inline = Inline::new(wraps_again());
        if let Some(reader) = &mut self.reader {
            reader.pause().map_err(no_terminal)?;
        }
        if let Some(raw) = &mut self.raw {
            raw.suspend();
        }
        // A shell, since editors are named with their arguments.
        let script = format!("{program} \"$1\"");
        let status = Command::new("/bin/sh").args(["-c", &script, "sh"]).arg(file.path()).status();
        let resumed = self.raw.as_mut().map_or(Ok(()), Raw::resume);
        if let Some(reader) = &self.reader {
            reader.resume();
        }
        resumed.map_err(no_terminal)?;
        match status {
            Ok(status) if status.success() => {}
            Ok(status) => return Err(format!("{program} ended with {status}")),
            Err(error) => return Err(format!("{program} could not be started: {error}")),
        }
        let text = std::fs::read(file.path()).map_err(no_file)?;
        Ok(String::from_utf8_lossy(&text).trim_end().to_owned())
    }
}
