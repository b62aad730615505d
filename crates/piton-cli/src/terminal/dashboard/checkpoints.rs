//! What the timeline asks the server for, and what comes back. Also the graphs that sessions run, for
//! the list.

use piton_api::client::{Client, Error as ClientError};
use piton_api::graph::{
    CheckpointDiff, CheckpointQuery, CheckpointView, DiffQuery, GraphQuery, InspectQuery,
    ResumeGraphRequest,
};
use piton_api::rewind::{RewindRequest, UndoRequest};
use piton_core::id::SessionId;
use ratatui::crossterm::event::KeyEvent;
use serde_json::{Map, Value};

use super::timeline::{Checkpoints, Timeline, Wanted};
use super::{Done, Screen};
use crate::commands::sessions::rewind;
use crate::error::Error;
use crate::terminal::conversation::graph_title;
use crate::ui::Tone;

/// Checkpoints that are listed: more than are kept by default.
const CHECKPOINTS_MAX: usize = 1_000;

impl Screen<'_> {
    /// Reads the checkpoints of the chosen session, and opens their timeline.
    pub(super) fn open_timeline(&mut self) {
        let Some(chosen) = self.sessions.chosen() else { return };
        let (session, last_seq) = (chosen.session_id.clone(), chosen.last_seq);
        self.load_timeline(session, last_seq);
    }

    /// Reads them again when the session has changed.
    pub(super) fn refresh_timeline(&mut self) {
        let Some(timeline) = &self.timeline else { return };
        let Some(summary) = self.sessions.get(&timeline.session) else { return };
        if summary.last_seq != timeline.last_seq && !self.loading.timeline {
            let (session, last_seq) = (timeline.session.clone(), summary.last_seq);
            self.load_timeline(session, last_seq);
        }
    }

    fn load_timeline(&mut self, session: SessionId, last_seq: u64) {
        self.loading.timeline = true;
        let client = self.client.clone();
        self.spawn(async move {
            let found = checkpoints(&client, &session).await;
            Done::Timeline(session, last_seq, found)
        });
    }

    pub(super) fn timeline_loaded(
        &mut self,
        session: SessionId,
        last_seq: u64,
        found: Result<Checkpoints, ClientError>,
    ) {
        self.loading.timeline = false;
        match (found, &mut self.timeline) {
            (Ok(found), Some(timeline)) if timeline.session == session => {
                timeline.set(last_seq, found);
            }
            (Ok(found), _) => self.timeline = Some(Timeline::new(session, last_seq, found)),
            (Err(error), _) => self.say_error(&error.into()),
        }
    }

    pub(super) fn timeline_key(&mut self, key: KeyEvent) {
        let Some(timeline) = &mut self.timeline else { return };
        let session = timeline.session.clone();
        let client = self.client.clone();
        match timeline.key(key) {
            Wanted::Nothing => {}
            Wanted::Close => self.timeline = None,
            Wanted::Inspect(id) => self.spawn(async move {
                let query = InspectQuery { include_memory: Some(true) };
                Done::Inspected(client.checkpoint(&session, &id, &query).await.map(Box::new))
            }),
            Wanted::Diff { from, to } => self.spawn(async move {
                let query = DiffQuery { from, to: Some(to) };
                Done::Compared(client.diff_checkpoints(&session, &query).await.map(Box::new))
            }),
            Wanted::Resume { checkpoint, set } => self.resume_from(session, checkpoint, set),
            Wanted::Rewind { checkpoint } => self.spawn(async move {
                let checkpoint = Some(checkpoint);
                let request = RewindRequest { checkpoint, ..RewindRequest::default() };
                let done = client.rewind(&session, &request).await;
                Done::Travelled(done.map(|done| rewind::summary(&done)))
            }),
            Wanted::Undo => self.spawn(async move {
                let done = client.undo(&session, &UndoRequest::default()).await;
                Done::Travelled(done.map(|done| rewind::summary(&done)))
            }),
        }
    }

    fn resume_from(&self, session: SessionId, checkpoint: String, set: Map<String, Value>) {
        let client = self.client.clone();
        self.spawn(async move {
            let request = ResumeGraphRequest {
                checkpoint_id: Some(checkpoint),
                set,
                ..ResumeGraphRequest::default()
            };
            let resumed = client.resume_graph(&session, &request).await;
            Done::Travelled(resumed.map(|_| "The graph is resumed from the checkpoint.".to_owned()))
        });
    }

    pub(super) fn inspected(&mut self, found: Result<Box<CheckpointView>, ClientError>) {
        match (found, &mut self.timeline) {
            (Ok(found), Some(timeline)) => timeline.inspected(*found),
            (Ok(_), None) => {}
            (Err(error), _) => self.say_error(&error.into()),
        }
    }

    pub(super) fn compared(&mut self, found: Result<Box<CheckpointDiff>, ClientError>) {
        match (found, &mut self.timeline) {
            (Ok(found), Some(timeline)) => timeline.compared(&found),
            (Ok(_), None) => {}
            (Err(error), _) => self.say_error(&error.into()),
        }
    }

    pub(super) fn travelled(&mut self, done: Result<String, ClientError>) {
        match (done, &mut self.timeline) {
            (Ok(words), Some(timeline)) => {
                timeline.show_list();
                timeline.message = Some((Tone::Good, words));
            }
            (Ok(words), None) => self.sessions.message = Some((Tone::Quiet, words)),
            (Err(error), _) => self.say_error(&error.into()),
        }
    }

    pub(super) fn say_error(&mut self, error: &Error) {
        let lines = error.lines(&self.ui.call);
        let lines: Vec<String> =
            lines.into_iter().map(|(label, text)| format!("{label}: {text}")).collect();
        let message = Some((Tone::Bad, lines.join(" ")));
        match &mut self.timeline {
            Some(timeline) => timeline.message = message,
            None => self.sessions.message = message,
        }
    }

    /// Asks what graph a session runs that has neither an agent nor a title: one at a time.
    pub(super) fn load_graph_title(&mut self) {
        if self.loading.graph {
            return;
        }
        let Some(session) = self.sessions.without_title() else { return };
        self.loading.graph = true;
        let client = self.client.clone();
        self.spawn(async move {
            // A session that runs no graph has no title of one.
            let graph = client.graph(&session, &GraphQuery::default()).await.ok();
            let title = graph.map(|graph| graph_title(&graph.graph, graph.goal.as_deref()));
            Done::Graph(session, title)
        });
    }
}

async fn checkpoints(client: &Client, session: &SessionId) -> Result<Checkpoints, ClientError> {
    match client.graph(session, &GraphQuery::default()).await {
        Ok(graph) => {
            let query =
                CheckpointQuery { limit: Some(CHECKPOINTS_MAX), ..CheckpointQuery::default() };
            let page = client.checkpoints(session, &query).await?;
            Ok(Checkpoints::Graph(Box::new(graph), page.checkpoints))
        }
        Err(error) if error.is_transient() => Err(error),
        Err(_) => client.turn_checkpoints(session).await.map(Checkpoints::Turns),
    }
}
