//! How a conversation begins, is left, and comes back to a server.

use std::time::Instant;

use piton_api::client::{Error as ClientError, Records};

use super::requests::Done;
use super::{Chat, Left, RECONNECT_EVERY};
use crate::error::Result;
use crate::terminal::conversation::Item;
use crate::terminal::display::write;
use crate::ui::Tone;
use crate::{background, server};

impl Chat<'_> {
    /// A server that ran in the background and was killed is started again; one that a person started
    /// is waited for.
    pub(super) async fn reconnect(&mut self, records: &mut Records) -> Result<()> {
        self.retry_at = None;
        self.is_dirty = true;
        if server::was_background_killed(&self.cx.settings.data.value) {
            self.conversation.note(
                Tone::Quiet,
                "The server was killed. The agent keeps running, and a new server is started.",
            );
            self.draw()?;
            background::ensure(self.cx).await?;
        }
        match records.connect().await {
            Ok(()) => {
                self.away_since = None;
                self.conversation.stale.queue = true;
                self.conversation.stale.agent = true;
                self.send_next();
            }
            Err(error) if error.is_transient() => {
                self.retry_at = Some(Instant::now() + RECONNECT_EVERY);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Starts the agent of a session that can be resumed, while the conversation is on the screen already.
    /// Only the agent: whether an interrupted run continues is for the person to say.
    pub(super) fn start_agent(&mut self, last_seq: u64) {
        (self.awaits_agent, self.awaits_since) = (true, last_seq);
        let (client, session) = (self.client.clone(), self.session.clone());
        self.spawn(async move { Done::Opened(client.open_session(&session).await.map(drop)) });
    }

    pub(super) fn agent_started(&mut self, result: Result<(), ClientError>) {
        self.awaits_agent = false;
        match result {
            Ok(()) => self.conversation.stale.agent = true,
            // The records' connection says when there is a server again.
            Err(error) if error.is_transient() => {}
            // What was said is shown all the same, and a prompt tries again.
            Err(error) => self.report(&error.into()),
        }
        self.send_next();
    }

    pub(super) fn greet(&mut self, has_agent: bool) {
        let text = match (&self.title, has_agent) {
            (Some(title), _) => format!("{title} · {} · {}", self.status.agent, self.session),
            (None, true) => format!("New session · {} · {}", self.status.agent, self.session),
            // What it runs is said by its records.
            (None, false) => format!("Session {}", self.session),
        };
        self.conversation.items.insert(0, Item::Note { tone: Tone::Quiet, text });
        if self.first_seq > 0 {
            let text = "Older messages: Ctrl-T".to_owned();
            self.conversation.items.insert(1, Item::Note { tone: Tone::Quiet, text });
        }
    }

    /// The terminal as it was before, with all that was said.
    pub(super) fn restore_terminal(&mut self) -> Result<()> {
        // First: the terminal may be gone.
        self.save_draft();
        if self.transcript.is_some() {
            self.close_transcript()?;
        }
        self.print_rest()?;
        let end = self.inline.leave();
        write(&end)?;
        self.raw = None;
        Ok(())
    }

    /// The terminal as it was, and how to come back.
    pub(super) fn leave(&mut self, left: &Left) -> Result<()> {
        self.restore_terminal()?;
        if matches!(left, Left::Quit) {
            let (call, session) = (&self.ui.call, &self.session);
            let text = format!("The agent keeps running. Come back with: {call} attach {session}");
            let text = self.ui.paint(Tone::Quiet, &text);
            self.ui.line(text)?;
            self.ui.flush()?;
        }
        Ok(())
    }
}
