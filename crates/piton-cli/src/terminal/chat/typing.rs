//! What keys do.

use std::time::Instant;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::requests::Done;
use super::{Chat, Files, Left, Purpose, Search};
use crate::error::Result;
use crate::terminal::asking::{Meaning, Pressed};
use crate::terminal::display::{Inline, size, wraps_again, write};
use crate::terminal::keys::Input;
use crate::terminal::popup;
use crate::terminal::view::editor_width;
use crate::ui::Tone;

const CLEARED: &str = "Cleared; ↑ brings it back. Ctrl-C again leaves.";

impl Chat<'_> {
    pub(super) fn input(&mut self, input: Input, read_at: Instant) -> Result<()> {
        self.is_dirty = true;
        if self.transcript.is_some() {
            return self.transcript_input(&input);
        }
        match input {
            Input::Paste { text, left_out } => {
                self.cleared_at = None;
                self.message = (left_out > 0).then(|| {
                    let text = format!(
                        "The paste was too long: its last {left_out} bytes are left out. Name a file instead."
                    );
                    (Tone::Attention, text)
                });
                self.rule_shown = None;
                if self.search.is_some() {
                    self.search_for(|query| query.push_str(&first_line(&text)));
                    return Ok(());
                }
                if let Some(asking) = &mut self.asking
                    && let Some(before) = asking.begin_typing(read_at)
                {
                    self.editor.insert(before);
                }
                self.editor.paste(&text);
                self.update_popup();
            }
            Input::Wheel(rows) => {
                if let Some(asking) = &mut self.asking {
                    asking.scroll(rows.into(), read_at);
                }
            }
            Input::Key(key) => self.key(key, read_at)?,
        }
        Ok(())
    }

    fn key(&mut self, key: KeyEvent, read_at: Instant) -> Result<()> {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        if is_control && key.code == KeyCode::Char('c') {
            self.rule_shown = None;
            self.ctrl_c();
            return Ok(());
        }
        self.cleared_at = None;
        // Only its own key writes a rule that is shown; any other takes it back.
        if let Some(rule) = self.rule_shown.take()
            && is_control
            && key.code == KeyCode::Char('s')
        {
            self.add_rule(rule);
            return Ok(());
        }
        if let Files::Wanted { is_tab } = &mut self.files {
            *is_tab = false;
        }
        if self.search.is_some() {
            self.search_key(key);
            return Ok(());
        }
        if self.popup.is_some() && self.popup_key(key) {
            return Ok(());
        }
        if self.asking.is_some() && self.purpose == Purpose::Prompt && self.asking_key(key, read_at)
        {
            return Ok(());
        }
        let is_history = matches!(key.code, KeyCode::Up | KeyCode::Down)
            || (is_control && matches!(key.code, KeyCode::Char('p' | 'n')));
        if !is_history {
            self.history.settle();
        }
        if is_control || key.modifiers.contains(KeyModifiers::ALT) {
            self.modified_key(key)?;
        } else {
            self.plain_key(key)?;
        }
        if let Some(asking) = &mut self.asking
            && !self.editor.is_empty()
        {
            // An earlier prompt was brought back: what follows is meant for it.
            asking.begin_typing(read_at);
        }
        self.update_popup();
        Ok(())
    }

    fn plain_key(&mut self, key: KeyEvent) -> Result<()> {
        let width = editor_width(size().0.saturating_sub(1), "> ");
        let is_shift = key.modifiers.contains(KeyModifiers::SHIFT);
        match key.code {
            KeyCode::Enter if is_shift => self.editor.insert('\n'),
            KeyCode::Enter => {
                if self.editor.before_cursor().ends_with('\\') && self.editor.is_at_end() {
                    self.editor.backspace();
                    self.editor.insert('\n');
                } else {
                    self.message = None;
                    self.enter()?;
                }
            }
            KeyCode::Char(c) => {
                self.message = None;
                self.editor.insert(c);
            }
            KeyCode::Tab => self.tab(),
            KeyCode::Backspace => self.editor.backspace(),
            KeyCode::Delete => self.editor.delete(),
            KeyCode::Left => self.editor.left(),
            KeyCode::Right => self.editor.right(),
            KeyCode::Home => self.editor.move_line_start(),
            KeyCode::End => self.editor.move_line_end(),
            KeyCode::Up => {
                let is_first = !self.editor.up(width);
                if is_first {
                    self.older();
                }
            }
            KeyCode::Down => {
                if !self.editor.down(width)
                    && let Some(text) = self.history.newer()
                {
                    self.editor.set(&text);
                }
            }
            KeyCode::PageUp => self.open_transcript()?,
            KeyCode::Esc => self.escape(),
            _ => {}
        }
        Ok(())
    }

    /// Completes the name of a file whose choices are not there yet, as soon as they are.
    fn tab(&mut self) {
        let is_name = popup::file_word(self.editor.before_cursor()).is_some();
        match &mut self.files {
            Files::Wanted { is_tab } if is_name => *is_tab = true,
            _ => self.editor.insert('\t'),
        }
    }

    fn older(&mut self) {
        let typed = self.editor.text();
        if let Some(text) = self.history.older(&typed) {
            self.editor.set(&text);
        }
    }

    fn modified_key(&mut self, key: KeyEvent) -> Result<()> {
        let is_alt = key.modifiers.contains(KeyModifiers::ALT);
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Enter => self.editor.insert('\n'),
            KeyCode::Left => self.editor.move_word_left(),
            KeyCode::Right => self.editor.move_word_right(),
            KeyCode::Home => self.editor.move_start(),
            KeyCode::End => self.editor.move_end(),
            KeyCode::Backspace => self.editor.kill_word_left(),
            KeyCode::Delete => self.editor.kill_word_right(),
            KeyCode::Up => self.edit_queued(None),
            KeyCode::Char(c) if is_control => self.control_key(c.to_ascii_lowercase())?,
            KeyCode::Char(c) if is_alt => match c {
                'b' => self.editor.move_word_left(),
                'f' => self.editor.move_word_right(),
                'd' => self.editor.kill_word_right(),
                't' => self.editor.transpose(),
                '<' => self.editor.move_start(),
                '>' => self.editor.move_end(),
                _ => {}
            },
            _ => {}
        }
        Ok(())
    }

    fn control_key(&mut self, c: char) -> Result<()> {
        match c {
            'a' => self.editor.move_line_start(),
            'e' => self.editor.move_line_end(),
            'b' => self.editor.left(),
            'f' => self.editor.right(),
            'p' => self.older(),
            'n' => {
                if let Some(text) = self.history.newer() {
                    self.editor.set(&text);
                }
            }
            'd' if self.editor.is_empty() => self.left = Some(Left::Quit),
            'd' => self.editor.delete(),
            'h' => self.editor.backspace(),
            'k' => self.editor.kill_line_right(),
            'u' => self.editor.kill_line_left(),
            'w' => self.editor.kill_blank_left(),
            'y' => self.editor.yank(),
            't' => self.open_transcript()?,
            // Ctrl-_ comes as Ctrl-7.
            'z' | '7' | '_' | '/' => self.editor.undo(),
            'x' | '^' | '6' => self.editor.redo(),
            'r' => {
                let typed = self.editor.text();
                self.search = Some(Search { typed, ..Search::default() });
            }
            'g' => self.edit_outside(),
            'l' => {
                write("\x1b[2J\x1b[H")?;
                self.inline = Inline::new(wraps_again());
            }
            _ => {}
        }
        Ok(())
    }

    /// Stops the turn, or goes back from what was begun.
    fn escape(&mut self) {
        self.message = None;
        if self.stop_shell() {
            return;
        }
        if self.purpose != Purpose::Prompt {
            self.give_up_purpose();
        } else if self.conversation.is_running() {
            self.interrupt_turn();
        }
    }

    /// Stops the turn; a second time in the same turn leaves. Without a turn the first clears the prompt.
    pub(super) fn ctrl_c(&mut self) {
        if let Some(search) = self.search.take() {
            self.editor.set(&search.typed);
            return;
        }
        if self.stop_shell() {
            return;
        }
        if self.purpose != Purpose::Prompt {
            self.give_up_purpose();
            return;
        }
        if self.conversation.is_running() {
            if self.interrupted_at.is_some() {
                self.left = Some(Left::Quit);
            } else {
                self.interrupt_turn();
            }
            return;
        }
        let cleared = self.clear_prompt();
        if self.cleared_at.is_some() && !cleared {
            self.left = Some(Left::Quit);
            return;
        }
        let text = if cleared { CLEARED } else { "Ctrl-C again leaves." };
        self.cleared_at = Some(Instant::now());
        self.message = Some((Tone::Quiet, text.to_owned()));
    }

    /// Empties the prompt; false if it was empty. The history keeps what was there.
    fn clear_prompt(&mut self) -> bool {
        if self.editor.is_empty() {
            return false;
        }
        let text = self.editor.take();
        self.remember(&text);
        self.popup = None;
        true
    }

    /// Back from a line with another purpose; the history keeps what was typed there.
    fn give_up_purpose(&mut self) {
        if self.clear_prompt() {
            self.message = Some((Tone::Quiet, "Cancelled; ↑ brings the text back.".to_owned()));
        }
        self.restore_prompt();
        self.ask_next();
    }

    /// A key while a request is open; false if it belongs to the prompt.
    fn asking_key(&mut self, key: KeyEvent, read_at: Instant) -> bool {
        if key.code == KeyCode::Esc {
            self.interrupt_turn();
            return true;
        }
        self.keys_due(read_at);
        // What was due may have been the answer: this key is for what is there now.
        let Some(asking) = &mut self.asking else { return false };
        match asking.press(key, read_at) {
            Pressed::Typed { before } => {
                if let Some(before) = before {
                    self.editor.insert(before);
                }
                return false;
            }
            Pressed::Taken | Pressed::Pending => {}
            Pressed::Meant(meaning) => self.request_key(meaning),
        }
        true
    }

    /// A moment of quiet may be over, and a key that was pressed before it meant.
    pub(super) fn keys_due(&mut self, now: Instant) {
        let Some(asking) = &mut self.asking else { return };
        if let Some(meaning) = asking.arm(now, self.key_delay) {
            self.request_key(meaning);
        }
    }

    fn request_key(&mut self, meaning: Meaning) {
        let Some(asking) = &self.asking else { return };
        let wait_id = asking.question.wait_id.clone();
        match meaning {
            Meaning::RejectAndSay => {
                let option_id = asking.question.rejection().unwrap_or_default().to_owned();
                self.asking = None;
                self.rule_shown = None;
                self.stashed = self.editor.take();
                self.purpose = Purpose::Rejection { wait_id, option_id };
            }
            Meaning::Text => {
                self.asking = None;
                self.stashed = self.editor.take();
                self.purpose = Purpose::Answer { wait_id };
            }
            Meaning::Rule => self.show_rule(),
            Meaning::Option(at) => {
                let Some((option, _)) = asking.question.options.get(at).cloned() else { return };
                self.message = None;
                self.choose_option(wait_id, &option, None);
            }
        }
    }

    fn search_key(&mut self, key: KeyEvent) {
        let Some(search) = &mut self.search else { return };
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('r') if is_control => {
                search.at += 1;
                self.show_found();
            }
            KeyCode::Backspace => self.search_for(|query| {
                query.pop();
            }),
            KeyCode::Char(c) if !is_control => self.search_for(|query| query.push(c)),
            // What was typed before comes back; any other key takes what was found.
            KeyCode::Esc => {
                let typed = std::mem::take(&mut search.typed);
                self.search = None;
                self.editor.set(&typed);
            }
            _ => {
                let typed = std::mem::take(&mut search.typed);
                self.search = None;
                if typed != self.editor.text() {
                    self.remember(&typed);
                }
            }
        }
    }

    /// Changes what is searched; the newest prompt with it is shown.
    fn search_for(&mut self, change: impl FnOnce(&mut String)) {
        let Some(search) = &mut self.search else { return };
        change(&mut search.query);
        search.at = 0;
        self.show_found();
    }

    fn show_found(&mut self) {
        let Some(search) = &mut self.search else { return };
        let matches = self.history.matches(&search.query);
        search.at = search.at.min(matches.len().saturating_sub(1));
        if let Some(found) = matches.get(search.at) {
            let found = (*found).to_owned();
            self.editor.set(&found);
        }
    }

    /// A key for the choices; false if it is typed.
    fn popup_key(&mut self, key: KeyEvent) -> bool {
        let Some(popup) = &mut self.popup else { return false };
        let is_plain = key.modifiers.is_empty();
        match key.code {
            KeyCode::Up if is_plain => popup.previous(),
            KeyCode::Down if is_plain => popup.next(),
            KeyCode::BackTab => popup.previous(),
            KeyCode::Esc => {
                self.popup = None;
                self.popup_closed_for = Some(self.editor.text());
            }
            KeyCode::Tab | KeyCode::Enter if is_plain => {
                let Some(entry) = popup.entry() else { return false };
                let (from, text, name) = (popup.from, entry.text.clone(), entry.name.clone());
                // Enter behind a whole command sends it.
                if key.code == KeyCode::Enter && self.editor.before_cursor() == name {
                    self.popup = None;
                    return false;
                }
                self.complete(from, &text);
            }
            _ => return false,
        }
        true
    }

    fn complete(&mut self, from: usize, text: &str) {
        self.editor.replace_before(from, text);
        self.popup = None;
        self.update_popup();
    }

    pub(super) fn update_popup(&mut self) {
        self.popup = None;
        if self.purpose != Purpose::Prompt || self.search.is_some() || !self.editor.is_at_end() {
            return;
        }
        if self.popup_closed_for.as_ref().is_some_and(|text| *text == self.editor.text()) {
            return;
        }
        self.popup_closed_for = None;
        let before = self.editor.before_cursor();
        if let Some(found) = popup::of_commands(before, &self.agent_commands()) {
            self.popup = Some(found);
        } else if let Some((from, word)) = popup::file_word(before) {
            match (&self.files, &self.folder) {
                (Files::Known(files), _) => self.popup = popup::of_files(from, word, files),
                (Files::Unknown, Some(folder)) => {
                    let (folder, done) = (folder.clone(), self.done.clone());
                    self.files = Files::Wanted { is_tab: false };
                    // A workspace may be large or slow: keys do not wait for it.
                    tokio::task::spawn_blocking(move || {
                        // The conversation may have ended meanwhile.
                        let _ = done.send(Done::Files(popup::files(&folder)));
                    });
                }
                (Files::Wanted { .. }, _) | (Files::Unknown, None) => {}
            }
        } else if matches!(self.files, Files::Known(_)) {
            // Looked at again when the next one is begun.
            self.files = Files::Unknown;
        }
    }

    pub(super) fn files_found(&mut self, files: Vec<String>) {
        let is_tab = self.files == Files::Wanted { is_tab: true };
        self.files = Files::Known(files);
        self.update_popup();
        let first = self.popup.as_ref().and_then(|popup| Some((popup.from, popup.entry()?)));
        if let Some((from, text)) = first.map(|(from, entry)| (from, entry.text.clone()))
            && is_tab
        {
            self.complete(from, &text);
        }
    }

    pub(super) fn agent_commands(&self) -> Vec<(String, String)> {
        let commands = self.agent.iter().flat_map(|agent| &agent.commands);
        commands
            .map(|command| {
                (command.name.trim_start_matches('/').to_owned(), command.description.clone())
            })
            .collect()
    }
}

/// The first line of a paste, where a line is all there is room for.
pub(crate) fn first_line(text: &str) -> String {
    let line = text.trim_start().split(['\n', '\r']).next().unwrap_or_default();
    line.trim_end().to_owned()
}
