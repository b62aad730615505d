//! Waits, and the resume tokens that answer them without a login.

use std::time::Duration;

use piton_core::content::PromptContent;
use piton_core::decide::{Command, IfBusy, Message, Prompt, QueuePosition, Refusal};
use piton_core::id::{SessionId, TokenId, WaitId};
use piton_core::overview::OpenWait;
use piton_core::permission::normal_answer;
use piton_core::token::{NewToken, ResumeToken};
use piton_core::{Code, Seq, Timestamp};
use piton_store::{Cursor, Page, Query, Row, Select};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::queue::check as check_content;
use super::requests::{Request, value};
use super::{Caller, Engine, Fulfilled};
use crate::error::{Error, Result};
use crate::tokens::Answered;

/// Sessions that are read for open waits; those that are due first.
const SESSIONS_MAX: usize = 1_000;
/// Sessions that are searched for a request whose wait is over.
const SEARCHED_SESSIONS_MAX: usize = 256;

/// The open waits of all sessions, those with the earliest deadline first.
#[derive(Clone, Debug)]
pub struct OpenWaits {
    pub waits: Vec<(SessionId, OpenWait)>,
    /// There are more than are shown.
    pub truncated: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnsweredWait {
    pub session_id: SessionId,
}

/// A resume token, with the secret that is shown once.
#[derive(Clone, PartialEq, Eq, Deserialize)]
pub struct IssuedResumeToken {
    pub session_id: SessionId,
    pub token_id: TokenId,
    pub token: String,
}

impl std::fmt::Debug for IssuedResumeToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "IssuedResumeToken({} of {})", self.token_id, self.session_id)
    }
}

impl Engine {
    /// The open waits of all sessions.
    pub async fn waits(&self) -> Result<OpenWaits> {
        let page = self.waiting_sessions(None).await?;
        let mut waits = Vec::new();
        let mut truncated = page.next.is_some();
        for row in &page.rows {
            if waits.len() >= SESSIONS_MAX {
                truncated = true;
                break;
            }
            let open = self.view().open_waits(&row.session, &row.summary.facts).await;
            waits.extend(open.into_iter().map(|open| (row.session.clone(), open)));
        }
        Ok(OpenWaits { waits, truncated })
    }

    /// One open wait, whole.
    pub async fn wait(&self, wait_id: &WaitId) -> Result<(SessionId, OpenWait)> {
        let session = self.session_of_wait(wait_id).await?;
        let state = self.view().state(&session).await?;
        let open = self.view().whole_wait(&session, &state.facts, wait_id).await;
        let open = open.ok_or_else(|| Refusal::WaitNotFound { wait: wait_id.clone() })?;
        Ok((session, open))
    }

    /// Answers a wait, as a caller who may control the session.
    pub async fn answer(
        &self,
        caller: &Caller,
        wait_id: &WaitId,
        answer: Value,
    ) -> Result<Fulfilled<AnsweredWait>> {
        self.answer_with_message(caller, wait_id, answer, None).await
    }

    /// The same; `message` is the first prompt that the agent is given when its turn has ended, since
    /// an answer carries nothing but the option.
    pub async fn answer_with_message(
        &self,
        caller: &Caller,
        wait_id: &WaitId,
        answer: Value,
        message: Option<String>,
    ) -> Result<Fulfilled<AnsweredWait>> {
        let handle = &self.running()?.handle;
        let answer = normal_answer(answer);
        let content = message.map(PromptContent::from);
        if let Some(content) = &content {
            check_content(content)?;
        }
        let mut arguments = json!({"answer": answer});
        if let Some(content) = &content {
            arguments["message"] = value(content)?;
        }
        let request = Request::new(caller, "waits.answer", wait_id, &arguments)?;
        let session = match self.session_of_wait(wait_id).await {
            // Perhaps because it was answered, under this very key.
            Err(error) if request.has_key() => {
                let (session, seq) = self.fulfilled_in(&request).await?.ok_or(error)?;
                return self.replay(&session, seq).await;
            }
            session => session?,
        };
        let answer = self.graph_answer(&session, wait_id, answer).await?;
        handle.check_answer(&session, wait_id, &answer).await?;
        let fresh = NewToken::from(&self.ids().token()?);
        let answered = AnsweredWait { session_id: session.clone() };
        let wait_id = wait_id.clone();
        let command = match content {
            None => Command::AnswerByWait { wait_id, fresh, answer },
            Some(_) if self.view().state(&session).await?.facts.graph.is_some() => {
                return Err(Error::SessionIsGraph { session });
            }
            Some(content) => {
                let (run_id, message_id) = (self.ids().run()?, self.ids().message()?);
                let message = Message { message_id, content };
                let (if_busy, position) = (IfBusy::Queue, QueuePosition::First);
                let queue_max = self.settings().limits.queued_prompts;
                let prompt = Prompt { run_id, message, if_busy, position, queue_max };
                Command::AnswerWithMessage { wait_id, fresh, answer, prompt }
            }
        };
        let answered = self.execute(&session, &request, answered, command).await?;
        self.continue_answered(&session).await?;
        Ok(answered)
    }

    /// Answers with a resume token; for parties without a login. `within`: the session that the
    /// holder names.
    pub async fn answer_with_token(
        &self,
        within: Option<&SessionId>,
        token: ResumeToken,
        answer: Value,
    ) -> Result<Answered> {
        let handle = &self.running()?.handle;
        let mut answer = normal_answer(answer);
        let asked = self.graph_wait_of_token(&token.id).await?;
        if let Some((session, wait)) = &asked {
            answer = self.graph_answer(session, wait, answer).await?;
        }
        let answered = match handle.answer_with_token(within, token.clone(), answer.clone()).await {
            // The wait is over, perhaps by this very answer, of which the log has the option.
            Err(error) if asked.is_none() && error.code() == Code::ResumeTokenConsumed => {
                let Value::String(text) = answer else { return Err(error) };
                let option = json!({"option_id": text});
                let replayed = handle.answer_with_token(within, token, option).await;
                replayed.map_err(|_| error)?
            }
            answered => answered?,
        };
        self.continue_answered(&answered.session).await?;
        Ok(answered)
    }

    /// Makes a new resume token for a wait; the old one is revoked.
    pub async fn rotate_resume_token(
        &self,
        caller: &Caller,
        wait_id: &WaitId,
    ) -> Result<Fulfilled<IssuedResumeToken>> {
        let request = Request::new(caller, "waits.token", wait_id, &Value::Null)?;
        let session = match self.session_of_wait(wait_id).await {
            Err(error) if request.has_key() => {
                let (session, seq) = self.fulfilled_in(&request).await?.ok_or(error)?;
                return self.replay(&session, seq).await;
            }
            session => session?,
        };
        let token = self.ids().token()?;
        let command =
            Command::RotateToken { wait_id: wait_id.clone(), fresh: NewToken::from(&token) };
        self.execute_secret(&session, &request, issued(&session, &token), command).await
    }

    /// Makes a resume token with which the interrupted run can be continued.
    pub async fn create_resume_token(
        &self,
        caller: &Caller,
        session: &SessionId,
        valid_for: Option<Duration>,
    ) -> Result<Fulfilled<IssuedResumeToken>> {
        let arguments = json!({"valid_for_s": valid_for.map(|span| span.as_secs())});
        let request = Request::new(caller, "sessions.token", session, &arguments)?;
        let expires_at = valid_for.map(|span| self.view().now().after(span));
        let token = self.ids().token()?;
        let command = Command::MintInterruption { fresh: NewToken::from(&token), expires_at };
        self.execute_secret(session, &request, issued(session, &token), command).await
    }

    /// A page of the sessions that wait, those that are due first.
    async fn waiting_sessions(&self, after: Option<Cursor>) -> Result<Page> {
        let select = Select::DueBy(Timestamp::from_millis(i64::MAX));
        let query = Query { task_id: None, select, after, limit: SESSIONS_MAX };
        Ok(self.0.store.list(query).await?)
    }

    /// The session that a wait belongs to. Its cost follows the number of sessions that wait.
    pub async fn session_of_wait(&self, wait: &WaitId) -> Result<SessionId> {
        let mut after = None;
        loop {
            let page = self.waiting_sessions(after).await?;
            let waits = |row: &&Row| {
                let run = row.summary.facts.run.as_ref();
                run.is_some_and(|run| run.waits.contains_key(wait))
            };
            if let Some(row) = page.rows.iter().find(waits) {
                return Ok(row.session.clone());
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Err(Refusal::WaitNotFound { wait: wait.clone() }.into()),
            }
        }
    }

    /// The open wait of a graph that a token answers; `None`: the token is for something else, or what it
    /// was for is over.
    async fn graph_wait_of_token(&self, token: &TokenId) -> Result<Option<(SessionId, WaitId)>> {
        let mut after = None;
        loop {
            let page = self.waiting_sessions(after).await?;
            for row in page.rows.iter().filter(|row| row.summary.facts.graph.is_some()) {
                let waits = row.summary.facts.run.iter().flat_map(|run| &run.waits);
                let mut open = waits.filter(|(_, wait)| wait.token_id.as_ref() == Some(token));
                if let Some((wait, _)) = open.next() {
                    return Ok(Some((row.session.clone(), wait.clone())));
                }
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(None),
            }
        }
    }

    /// Where a request was fulfilled whose target does not say it: among the sessions that were
    /// active last, and within the time that keys are kept.
    async fn fulfilled_in(&self, request: &Request<'_>) -> Result<Option<(SessionId, Seq)>> {
        let (now, request) = (self.view().now(), request.logged(None));
        let kept_for = self.request_kept_for();
        let query =
            Query { task_id: None, select: Select::All, after: None, limit: SEARCHED_SESSIONS_MAX };
        let page = self.0.store.list(query).await?;
        let is_recent = |row: &&Row| now.since(row.summary.info.active_at) <= kept_for;
        for row in page.rows.iter().filter(is_recent) {
            let requests = self.view().state(&row.session).await?.requests;
            if let Some(seq) = requests.find(&request, now, kept_for)? {
                return Ok(Some((row.session.clone(), seq)));
            }
        }
        Ok(None)
    }
}

fn issued(session: &SessionId, token: &ResumeToken) -> IssuedResumeToken {
    let (session_id, token_id) = (session.clone(), token.id.clone());
    IssuedResumeToken { session_id, token_id, token: token.reveal() }
}
