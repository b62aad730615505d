//! The transcript: opened, moved, and closed.

use ratatui::crossterm::event::{KeyCode, KeyModifiers};

use super::Chat;
use crate::error::Result;
use crate::terminal::display::{Full, enter_full, leave_full};
use crate::terminal::keys::Input;
use crate::terminal::transcript::Transcript;

impl Chat<'_> {
    /// Opens all of the conversation on the whole screen.
    pub(super) fn open_transcript(&mut self) -> Result<()> {
        if let Some(asking) = &mut self.asking {
            asking.hide();
        }
        enter_full(true)?;
        self.full = Full::default();
        self.transcript = Some(Transcript::new(self.first_seq + 1));
        Ok(())
    }

    pub(super) fn transcript_input(&mut self, input: &Input) -> Result<()> {
        let Some(transcript) = &mut self.transcript else { return Ok(()) };
        let Input::Key(key) = input else {
            if let Input::Wheel(rows) = input {
                transcript.scroll((*rows).into());
            }
            return Ok(());
        };
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Up | KeyCode::Char('k') => transcript.scroll(-1),
            KeyCode::Down | KeyCode::Char('j') => transcript.scroll(1),
            KeyCode::PageUp | KeyCode::Char('b') => transcript.scroll(-transcript.page()),
            KeyCode::PageDown | KeyCode::Char(' ') => transcript.scroll(transcript.page()),
            KeyCode::Home | KeyCode::Char('g') => transcript.move_start(),
            KeyCode::End | KeyCode::Char('G') => transcript.move_end(),
            KeyCode::Char('t' | 'c') if is_control => self.close_transcript()?,
            KeyCode::Char('q') | KeyCode::Esc => self.close_transcript()?,
            _ => {}
        }
        Ok(())
    }

    pub(super) fn close_transcript(&mut self) -> Result<()> {
        self.transcript = None;
        leave_full()?;
        Ok(())
    }
}
