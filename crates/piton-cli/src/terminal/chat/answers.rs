//! The agent's open questions: which of them is on the screen, and what becomes of an answer.

use piton_api::wait::AnswerRequest;
use piton_core::id::WaitId;
use serde_json::Value;

use super::requests::Done;
use super::{Chat, Purpose};
use crate::error::Error;
use crate::terminal::asking::Asking;
use crate::terminal::human;
use crate::ui::Tone;

impl Chat<'_> {
    /// Puts the oldest open question on the screen, and takes an answered one away.
    pub(super) fn ask_next(&mut self) {
        let open = &self.conversation.questions;
        let is_open = |wait: &str| open.iter().any(|question| question.wait_id == wait);
        if self.asking.as_ref().is_some_and(|asking| !is_open(&asking.question.wait_id)) {
            self.asking = None;
        }
        if let Some(asking) = &self.asking
            && let Some(now) = open.iter().find(|now| now.wait_id == asking.question.wait_id)
            && now.request != asking.question.request
        {
            // Shown again from its beginning; keys count a moment later.
            let has_draft = asking.is_typing() || !self.editor.is_empty();
            self.asking = Some(Asking::new(now.clone(), has_draft));
        }
        if let Purpose::Rejection { wait_id, .. } | Purpose::Answer { wait_id } = &self.purpose
            && !is_open(wait_id)
        {
            let reason = self.editor.take();
            self.restore_prompt();
            let kept = if reason.is_empty() { "" } else { " What you typed is in the prompt." };
            self.add_to_prompt(&reason);
            let text = format!("The request was answered elsewhere.{kept}");
            self.message = Some((Tone::Attention, text));
        }
        if self.asking.is_none() && self.purpose == Purpose::Prompt {
            let has_draft = !self.editor.is_empty();
            let first = self.conversation.questions.first().cloned();
            self.asking = first.map(|question| Asking::new(question, has_draft));
        }
    }

    /// Answers with one of the options.
    pub(super) fn choose_option(
        &mut self,
        wait_id: String,
        option_id: &str,
        message: Option<String>,
    ) {
        let open = &self.conversation.questions;
        let Some(question) = open.iter().find(|question| question.wait_id == wait_id) else {
            return;
        };
        let answer = human::answer_of(question, option_id);
        self.answer(wait_id, answer, message);
    }

    /// Answers; `kept` is what was typed for it.
    pub(super) fn answer(&mut self, wait_id: String, answer: Value, kept: Option<String>) {
        let open = &mut self.conversation.questions;
        let Some(at) = open.iter().position(|question| question.wait_id == wait_id) else { return };
        let question = open.remove(at);
        self.asking = None;
        self.hold(kept.as_deref().unwrap_or_default());
        let client = self.client.clone();
        self.spawn(async move {
            // A text is the answer itself, not said beside one.
            let message = kept.clone().filter(|_| !answer.is_string());
            let answer = AnswerRequest { answer, message };
            let result = match wait_id.parse::<WaitId>() {
                Ok(wait) => client.answer(&wait, &answer).await.map(drop).map_err(Error::from),
                Err(error) => Err(Error::from(error)),
            };
            Done::Answered(Box::new(question), kept, result)
        });
        self.ask_next();
    }
}
