//! What was typed and is not accepted yet: kept for the next terminal, and brought back if it is refused.

use super::{Chat, Purpose};
use crate::ui::Tone;

impl Chat<'_> {
    /// What is typed and what is not accepted yet outlives this process.
    pub(super) fn save_draft(&mut self) {
        let typed = match &self.search {
            // What was found is in the history already.
            Some(search) => search.typed.clone(),
            None if self.is_untouched() => String::new(),
            None => self.editor.text(),
        };
        let unsent = self.outbox.iter().map(|out| out.text.as_str());
        let unaccepted = self.unaccepted.iter().map(String::as_str);
        let text: Vec<&str> = unsent
            .chain(unaccepted)
            .chain([self.stashed.as_str(), typed.as_str()])
            .filter(|text| !text.is_empty())
            .collect();
        let text = text.join("\n");
        if let Some(draft) = &mut self.draft
            && let Err(error) = draft.save(&text)
        {
            // Said once: the disk may be full, and typing continues.
            self.draft = None;
            self.message = Some((Tone::Bad, format!("What you type is not kept: {error}")));
        }
    }

    /// A queued prompt that is being edited is as it was: the queue has it.
    fn is_untouched(&self) -> bool {
        let Purpose::QueueEdit { message_id, .. } = &self.purpose else { return false };
        let queued = self.queue.iter().find(|prompt| prompt.message_id == *message_id);
        queued.is_some_and(|prompt| prompt.text == self.editor.text())
    }

    /// A text that is on its way to the server, and stays in the draft until then.
    pub(super) fn hold(&mut self, text: &str) {
        if !text.is_empty() {
            self.unaccepted.push(text.to_owned());
        }
    }

    /// The server has accepted or refused it.
    pub(super) fn release(&mut self, text: &str) {
        if let Some(at) = self.unaccepted.iter().position(|held| held == text) {
            self.unaccepted.remove(at);
        }
    }

    /// Text that the server refused: behind what is being typed, whatever that is for.
    pub(super) fn bring_back(&mut self, text: &str) {
        if let Some(search) = &mut self.search {
            let parts = [search.typed.as_str(), text].into_iter().filter(|part| !part.is_empty());
            search.typed = parts.collect::<Vec<_>>().join("\n");
        } else if self.purpose == Purpose::Prompt {
            self.add_to_prompt(text);
        } else if self.stashed.is_empty() {
            text.clone_into(&mut self.stashed);
        } else if !text.is_empty() {
            self.stashed = format!("{}\n{text}", self.stashed);
        }
    }

    /// Text that is not sent, behind what is being typed: nothing that was typed is lost.
    pub(super) fn add_to_prompt(&mut self, text: &str) {
        let typed = self.editor.text();
        let parts = [typed.as_str(), text].into_iter().filter(|part| !part.is_empty());
        let both = parts.collect::<Vec<_>>().join("\n");
        if both != typed {
            self.editor.set(&both);
        }
    }

    pub(super) fn restore_prompt(&mut self) {
        self.purpose = Purpose::Prompt;
        let stashed = std::mem::take(&mut self.stashed);
        self.editor.set(&stashed);
    }
}
