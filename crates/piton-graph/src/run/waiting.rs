//! Nodes that wait for a person.

use std::time::Duration;

use piton_core::decide::{self, Command, Verdict};
use piton_core::event::WaitKind;
use piton_core::graph::{Answer, CheckpointType, GraphState};
use piton_core::id::{SessionId, WaitId};
use piton_core::limits;
use piton_core::token::NewToken;
use piton_core::{Code, Seq};
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::scheduler::{Live, LiveWait, Reply, Scheduler};
use super::{Decided, GivenAnswer, GivenCommand, Progress};
use crate::checkpoints;
use crate::error::{NodeError, Result};
use crate::spec::{NodeKind, NodeSpec, split, within};
use crate::store::{new_token, now};

/// What the log has in the place of an answer that must not be written.
const ANSWER_NOT_SAVED: &str = "(not saved)";

impl Scheduler {
    /// The id of a node's wait: the same for every attempt in a lineage, so that an answer is found
    /// again.
    fn wait_id(&self, lineage: u32, path: &str, visit: u32, number: &str, round: u32) -> WaitId {
        wait_id(&self.log.id, (lineage, path, visit), number, round)
    }

    /// Whether a node asked a person in this visit.
    pub(super) fn has_wait(&self, path: &str, visit: u32) -> bool {
        let run = self.log.folded.session.facts.run.as_ref();
        self.log.folded.lineages.ancestry(self.log.lineage()).into_iter().any(|lineage| {
            let id = self.wait_id(lineage, path, visit, "0", 0);
            self.log.folded.graph.answers.contains_key(&id)
                || run.is_some_and(|run| run.waits.contains_key(&id))
        })
    }

    /// The excluded keys that a node writes: what it is answered may be their value.
    fn excluded_writes(&self, path: &str) -> Vec<String> {
        let node = self.graph.node(path);
        let keys = node.into_iter().flat_map(|node| &node.writes);
        keys.filter(|key| self.excluded.matches(key)).cloned().collect()
    }

    /// The value that a user set on resume for the one key that a question is about.
    fn value_instead_of_answer(&self, path: &str, secret: &[String]) -> Option<Value> {
        let node = self.graph.node(path)?;
        let key = secret.first().filter(|_| matches!(node.kind, NodeKind::Human(_)))?;
        let key = within(split(path).0, key);
        let value = self.memory.get(&key).filter(|_| self.set_keys.contains(&key))?;
        Some((**value).clone())
    }

    pub(super) async fn wait(
        &mut self,
        path: &str,
        visit: u32,
        (number, mut question, deadline): (String, Value, Option<Duration>),
        reply: oneshot::Sender<Result<Value, NodeError>>,
        replies: &mut Vec<Reply>,
    ) -> Result<()> {
        let secret = self.excluded_writes(path);
        let lineage = self.log.lineage();
        let ancestry = self.log.folded.lineages.ancestry(lineage);
        let failed = self.log.folded.graph.node(path).and_then(|node| node.failed_seq);
        // A question whose answer must not be written and is not known any more is asked again under
        // another id. So is one whose time passed, once its node has failed for it.
        let mut found = None;
        for lineage in ancestry {
            let mut round = 0;
            found = loop {
                let id = self.wait_id(lineage, path, visit, &number, round);
                match self.log.folded.graph.answers.get(&id) {
                    Some(Answer::Given { seq }) if secret.is_empty() => {
                        let answer = self.log.field(*seq, "answer").await?;
                        replies.push((reply, Ok(answer.unwrap_or(Value::Null))));
                        return Ok(());
                    }
                    Some(Answer::Redacted) if secret.is_empty() => {
                        let key =
                            self.graph.node(path).and_then(NodeSpec::result_key).map(str::to_owned);
                        let set = self.value_instead_of_answer(path, key.as_slice());
                        replies.push((reply, set.ok_or_else(|| redacted(path))));
                        return Ok(());
                    }
                    Some(Answer::Expired { seq }) if failed.is_none_or(|failed| failed < *seq) => {
                        replies.push((reply, Err(expired())));
                        return Ok(());
                    }
                    Some(Answer::Given { .. } | Answer::Redacted) => {
                        match self.secret_answers.get(&id) {
                            Some(answer) => {
                                replies.push((reply, Ok(answer.clone())));
                                return Ok(());
                            }
                            None => round += 1,
                        }
                    }
                    Some(Answer::Cancelled | Answer::Expired { .. }) => round += 1,
                    None => break Some(id),
                }
            };
        }
        let Some(id) = found else { return Ok(()) };
        if let Some(value) = self.value_instead_of_answer(path, &secret) {
            let run = self.log.folded.session.facts.run.as_ref();
            if run.is_some_and(|run| run.waits.contains_key(&id)) {
                let fresh = NewToken::from(&new_token()?);
                let answer = ANSWER_NOT_SAVED.into();
                self.log.decide(Command::AnswerByWait { wait_id: id, fresh, answer })?;
            }
            replies.push((reply, Ok(value)));
            return Ok(());
        }
        if let (false, Value::Object(question)) = (secret.is_empty(), &mut question) {
            question.insert("excluded_keys".to_owned(), secret.into());
        }
        let run = self.log.folded.session.facts.run.as_ref();
        let open = run.and_then(|run| run.waits.get(&id));
        let deadline_at = match open {
            Some(wait) => wait.deadline_at,
            None => {
                let span = deadline.unwrap_or_else(|| limits::wait_default(WaitKind::Human));
                let deadline_at = now().after(span);
                if self.config.wants(CheckpointType::UserCheckpoint, 0) {
                    let description = format!("Before `{path}` waits for an answer");
                    let kind = CheckpointType::UserCheckpoint;
                    self.push_checkpoint(kind, path, None, &description)?;
                    self.push_pruned_over_maximum();
                }
                let fresh = NewToken::from(&new_token()?);
                let (run_id, wait_id) = (self.run_id.clone(), id.clone());
                let kind = WaitKind::Human;
                let wait = decide::Wait { run_id, wait_id, kind, deadline_at, fresh, question };
                let verdict = self.log.decide(Command::Wait(wait))?;
                debug_assert_eq!(verdict, Verdict::Asked, "the wait was not known");
                Some(deadline_at)
            }
        };
        let node = path.to_owned();
        self.report(Progress::NodeWaiting { node, wait_id: id.clone() });
        if let Some(live) = self.live.get_mut(path) {
            live.waits.push(LiveWait { id, deadline_at, reply });
        }
        Ok(())
    }

    /// The next moment at which something is due without anybody asking.
    pub(super) fn next_wake(&self, is_starting: bool) -> Option<Instant> {
        let retries = self.retries.values().copied().filter(|_| is_starting);
        let deadlines =
            self.live.values().flat_map(|live| &live.waits).filter_map(|wait| wait.deadline_at);
        let deadlines = deadlines.map(|at| Instant::now() + at.since(now()));
        retries.chain(deadlines).min()
    }

    /// Whether a node waits for an answer whose time has passed.
    pub(super) fn has_passed_wait(&self) -> bool {
        let now = now();
        let waits = self.live.values().flat_map(|live| &live.waits);
        let mut deadlines = waits.filter_map(|wait| wait.deadline_at);
        deadlines.any(|at| at <= now)
    }

    /// An answer that came while other nodes run. Returns who gave it, to hear when it is durable.
    pub(super) async fn answered(
        &mut self,
        given: GivenAnswer,
        replies: &mut Vec<Reply>,
    ) -> Result<Option<oneshot::Sender<Result<()>>>> {
        let GivenAnswer { wait_id, answer, reply } = given;
        let run = self.log.folded.session.facts.run.as_ref();
        let since = run.and_then(|run| run.waits.get(&wait_id)).map(|wait| wait.since_seq);
        let is_open = |live: &Live| live.waits.iter().any(|wait| wait.id == wait_id);
        let live = self.live.values_mut().find(|live| is_open(live));
        let (Some(since), Some(live)) = (since, live) else {
            // The giver may be gone.
            let _ = reply.send(Err(decide::Refusal::WaitNotFound { wait: wait_id }.into()));
            return Ok(None);
        };
        let question = self.log.field(since, "question").await?.unwrap_or(Value::Null);
        let answer = checkpoints::chosen(&question, answer);
        let secret = checkpoints::excluded_keys(&question);
        if !decide::fits(&question, &answer) {
            let _ = reply.send(Err(decide::Refusal::AnswerInvalid { wait: wait_id }.into()));
            return Ok(None);
        }
        let fresh = NewToken::from(&new_token()?);
        // What the node makes of it must not be written: then the answer is not, either.
        let written = if secret.is_empty() { answer.clone() } else { ANSWER_NOT_SAVED.into() };
        for key in &secret {
            self.log.teach(key, &answer)?;
        }
        if !secret.is_empty() {
            self.secret_answers.insert(wait_id.clone(), answer.clone());
        }
        let asked = live.waits.iter().position(|wait| wait.id == wait_id);
        let asked = asked.map(|at| live.waits.remove(at));
        self.log.decide(Command::AnswerByWait { wait_id, fresh, answer: written })?;
        replies.extend(asked.map(|wait| (wait.reply, Ok(answer))));
        Ok(Some(reply))
    }

    /// A command from elsewhere about this session: decided here, because this is its one writer.
    /// Returns who gave it, to hear when it is durable.
    pub(super) fn decide_given(
        &mut self,
        given: GivenCommand,
    ) -> Option<(oneshot::Sender<Result<Decided>>, Decided)> {
        let GivenCommand { command, reply } = given;
        let decided = if is_compatible(&command) {
            self.log.decide(command)
        } else {
            Err(decide::Refusal::RunInProgress { run: self.run_id.clone() }.into())
        };
        match decided {
            Ok(verdict) => {
                let last_seq = self.log.folded.session.last_seq;
                Some((reply, Decided { verdict, last_seq }))
            }
            Err(error) => {
                // The giver may be gone.
                let _ = reply.send(Err(error));
                None
            }
        }
    }

    /// Lets the nodes continue whose waits were answered by a command, which is durable.
    pub(super) async fn deliver_answers(&mut self) -> Result<()> {
        let answers = &self.log.folded.graph.answers;
        let mut answered: Vec<(LiveWait, Seq)> = Vec::new();
        for live in self.live.values_mut() {
            let seq = |wait: &LiveWait| match answers.get(&wait.id) {
                Some(Answer::Given { seq }) => Some(*seq),
                _ => None,
            };
            let given = live.waits.extract_if(.., |wait| seq(wait).is_some());
            answered.extend(given.filter_map(|wait| seq(&wait).map(|seq| (wait, seq))));
        }
        for (wait, seq) in answered {
            let answer = self.log.field(seq, "answer").await?.unwrap_or(Value::Null);
            // The node's task may have been ended.
            let _ = wait.reply.send(Ok(answer));
        }
        Ok(())
    }

    /// Waits whose time has passed end, and their nodes fail.
    pub(super) fn expire_waits(&mut self, replies: &mut Vec<Reply>) -> Result<()> {
        self.log.decide(Command::Sweep { live: true })?;
        for live in self.live.values_mut() {
            let answers = &self.log.folded.graph.answers;
            let is_over =
                |wait: &LiveWait| matches!(answers.get(&wait.id), Some(Answer::Expired { .. }));
            for wait in live.waits.extract_if(.., |wait| is_over(wait)) {
                replies.push((wait.reply, Err(expired())));
            }
        }
        Ok(())
    }
}

fn wait_id(
    session: &SessionId,
    (lineage, path, visit): (u32, &str, u32),
    number: &str,
    round: u32,
) -> WaitId {
    let name = format!("{session}/{lineage}/{path}/{visit}/{number}/{round}");
    let digest = piton_core::canonical::digest(&name.into());
    let text = format!("{}{}", WaitId::PREFIX, &digest[..32]);
    // Hex digits behind a prefix are an id.
    text.parse().unwrap_or_else(|_| WaitId::at(0))
}

/// The key that a node of a person writes, if what was answered in this visit was redacted: it has to
/// be set instead.
pub(super) fn redacted_answer<'a>(
    session: &SessionId,
    lineages: &[u32],
    state: &GraphState,
    (path, node): (&str, &'a NodeSpec),
) -> Option<&'a str> {
    let key = node.result_key().filter(|_| matches!(node.kind, NodeKind::Human(_)))?;
    let visit = state.visit(path);
    let is_redacted = lineages.iter().any(|lineage| {
        let id = |round| wait_id(session, (*lineage, path, visit), "0", round);
        let answers = (0..).map_while(|round| state.answers.get(&id(round)));
        answers.last() == Some(&Answer::Redacted)
    });
    is_redacted.then_some(key)
}

/// What a node fails with in whose middle an answer is missing: no key has its value.
fn redacted(path: &str) -> NodeError {
    NodeError::new(format!("An answer that `{path}` was given has been redacted"))
        .with_code(Code::MemoryValueRequired)
        .permanent()
}

/// What the node of a wait fails with whose time has passed.
fn expired() -> NodeError {
    NodeError::new("No answer came in time").with_code(Code::WaitExpired).permanent()
}

/// Whether a command leaves the run as it is, apart from what it waits for.
fn is_compatible(command: &Command) -> bool {
    match command {
        Command::Requested { command, .. } => is_compatible(command),
        Command::Nothing
        | Command::Rename { .. }
        | Command::AnswerByWait { .. }
        | Command::AnswerByToken(_)
        | Command::RotateToken { .. } => true,
        _ => false,
    }
}
