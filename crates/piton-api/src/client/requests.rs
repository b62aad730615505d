//! One method for each operation of the API.

use bytes::Bytes;
use hyper::Method;
use piton_core::id::{AccessTokenId, MessageId, SessionId, TaskId, WaitId};

use super::http::{IdempotentResponse, encoded, with_query};
use super::{Client, Result};
use crate::SessionStatus;
use crate::access::{AccessTokenIssued, AccessTokenList, NewAccessToken};
use crate::agent::{AgentList, ExecutionList};
use crate::agent_view::{
    AgentChoice, AgentSessionPage, AgentSessionQuery, AgentView, ForkRequest, LoginRequest,
};
use crate::queue::{
    PromptAccepted, PromptRequest, Queue, QueueChanged, QueueEdit, QueueRemoval, QueueRequest,
    QueuedPrompt,
};
use crate::record::{
    BootstrapQuery, MessagePage, MessageQuery, RecordPage, RecordQuery, SessionBootstrap,
    Verification,
};
use crate::rewind::{
    FilesDiff, FilesDiffQuery, RewindRequest, RewindResult, TurnCheckpointList, UndoRequest,
};
use crate::session::{
    AbandonRequest, AgentRequest, ArchiveRequest, CloseRequest, DeleteQuery, NewSession,
    RedactRequest, Redaction, RenameRequest, ResumeRequest, RunRequest, SessionArchived,
    SessionCreated, SessionDeleted, SessionPage, SessionQuery, SessionRun, StartRequest,
};
use crate::status::Wait;
use crate::store::{PruneReport, PruneRequest, StoreVerification, VerifyQuery};
use crate::task::{
    NewTask, Task, TaskChanged, TaskCreated, TaskDeleteQuery, TaskPage, TaskQuery, TaskUpdate,
};
use crate::wait::{
    AnswerAccepted, AnswerRequest, Empty, NewResumeToken, ResumeTokenCreated, TokenAnswerRequest,
    WaitList,
};
use crate::workspace::{FileList, FileQuery, FolderQuery, GitStatus, ShellList, WorkspaceTruth};
use crate::worktree::{CleanupQuery, Worktree, WorktreeCleanup};

pub(super) fn of_session(session: &SessionId, rest: &str) -> String {
    format!("/api/v1/sessions/{session}{rest}")
}

impl Client {
    /// Whether the server answers. Needs no token.
    pub async fn health(&self) -> Result<crate::server::Health> {
        self.get("/health").await
    }

    /// Whether the server takes work. Needs no token.
    pub async fn ready(&self) -> Result<crate::server::Health> {
        self.get("/ready").await
    }

    pub async fn create_session(&self, new: &NewSession) -> Result<SessionCreated> {
        self.post("/api/v1/sessions", new).await
    }

    pub async fn sessions(&self, query: &SessionQuery) -> Result<SessionPage> {
        self.get(&with_query("/api/v1/sessions", query)).await
    }

    pub async fn session(&self, session: &SessionId) -> Result<SessionStatus> {
        self.get(&of_session(session, "")).await
    }

    /// Says that a user looks at the session: its agent may be started, if the settings want that.
    pub async fn open_session(&self, session: &SessionId) -> Result<SessionStatus> {
        self.post(&of_session(session, "/open"), &Empty {}).await
    }

    pub async fn prompt(
        &self,
        session: &SessionId,
        prompt: &PromptRequest,
    ) -> Result<PromptAccepted> {
        self.post(&of_session(session, "/messages"), prompt).await
    }

    /// The prompts that wait for the run to end.
    pub async fn queue(&self, session: &SessionId) -> Result<Queue> {
        self.get(&of_session(session, "/queue")).await
    }

    /// One queued prompt, with all of its content.
    pub async fn queued_prompt(
        &self,
        session: &SessionId,
        message: &MessageId,
    ) -> Result<QueuedPrompt> {
        self.get(&of_session(session, &format!("/queue/{message}"))).await
    }

    /// Queues a prompt while a run is open; otherwise the prompt starts a run.
    pub async fn queue_prompt(
        &self,
        session: &SessionId,
        prompt: &QueueRequest,
    ) -> Result<PromptAccepted> {
        self.post(&of_session(session, "/queue"), prompt).await
    }

    /// Changes what a queued prompt says, or its place.
    pub async fn edit_queued(
        &self,
        session: &SessionId,
        message: &MessageId,
        edit: &QueueEdit,
    ) -> Result<QueueChanged> {
        let path = of_session(session, &format!("/queue/{message}"));
        self.json(Method::PATCH, &path, Some(self.encode(edit)?)).await
    }

    pub async fn remove_queued(
        &self,
        session: &SessionId,
        message: &MessageId,
        removal: &QueueRemoval,
    ) -> Result<QueueChanged> {
        let path = of_session(session, &format!("/queue/{message}"));
        self.json(Method::DELETE, &with_query(&path, removal), None).await
    }

    /// Delivers the prompts that an interruption, a failure or a cancellation held.
    pub async fn release_queue(&self, session: &SessionId) -> Result<QueueChanged> {
        self.post(&of_session(session, "/queue/release"), &Empty {}).await
    }

    pub async fn start(&self, session: &SessionId, request: &StartRequest) -> Result<SessionRun> {
        self.post(&of_session(session, "/start"), request).await
    }

    pub async fn resume(&self, session: &SessionId) -> Result<SessionRun> {
        self.post(&of_session(session, "/resume"), &Empty {}).await
    }

    /// Resumes and continues, or in another context than the agent's own.
    pub async fn resume_with(
        &self,
        session: &SessionId,
        request: &ResumeRequest,
    ) -> Result<SessionRun> {
        self.post(&of_session(session, "/resume"), request).await
    }

    pub async fn pause(&self, session: &SessionId, run: &RunRequest) -> Result<SessionRun> {
        self.post(&of_session(session, "/pause"), run).await
    }

    pub async fn cancel(&self, session: &SessionId, run: &RunRequest) -> Result<SessionRun> {
        self.post(&of_session(session, "/cancel"), run).await
    }

    pub async fn dismiss(&self, session: &SessionId, run: &RunRequest) -> Result<SessionRun> {
        self.post(&of_session(session, "/dismiss"), run).await
    }

    /// What the session's agent offers, and said about itself.
    pub async fn agent(&self, session: &SessionId) -> Result<AgentView> {
        self.get(&of_session(session, "/agent")).await
    }

    /// Chooses how the session's agent works.
    pub async fn configure_agent(
        &self,
        session: &SessionId,
        choice: &AgentChoice,
    ) -> Result<SessionRun> {
        self.post(&of_session(session, "/agent"), choice).await
    }

    /// Logs the session's agent in; starts it if it does not run.
    pub async fn log_in(&self, session: &SessionId, login: &LoginRequest) -> Result<SessionRun> {
        self.post(&of_session(session, "/login"), login).await
    }

    /// A session whose agent begins with a copy of this one's conversation.
    pub async fn fork(&self, session: &SessionId, fork: &ForkRequest) -> Result<SessionCreated> {
        self.post(&of_session(session, "/fork"), fork).await
    }

    /// The conversations that an agent has. An agent of that profile must run.
    pub async fn agent_sessions(
        &self,
        agent: &str,
        query: &AgentSessionQuery,
    ) -> Result<AgentSessionPage> {
        let path = format!("/api/v1/agents/{}/sessions", encoded(agent));
        self.get(&with_query(&path, query)).await
    }

    /// Has an agent close a conversation that no open session has.
    pub async fn close_agent_session(&self, agent: &str, id: &str) -> Result<()> {
        let path = format!("/api/v1/agents/{}/sessions/{}/close", encoded(agent), encoded(id));
        self.json(Method::POST, &path, None).await
    }

    /// Has an agent delete a conversation that no open session has. Needs the scope `admin`.
    pub async fn delete_agent_session(&self, agent: &str, id: &str) -> Result<()> {
        let path = format!("/api/v1/agents/{}/sessions/{}", encoded(agent), encoded(id));
        self.json(Method::DELETE, &path, None).await
    }

    /// Gives an executor up that does not respond; its run is interrupted.
    pub async fn abandon(
        &self,
        session: &SessionId,
        abandon: &AbandonRequest,
    ) -> Result<SessionRun> {
        self.post(&of_session(session, "/abandon"), abandon).await
    }

    /// Ends the session's agent; the session stays, and its next prompt starts the agent again.
    pub async fn stop_agent(&self, session: &SessionId) -> Result<SessionRun> {
        self.post(&of_session(session, "/stop"), &Empty {}).await
    }

    pub async fn close(&self, session: &SessionId, close: &CloseRequest) -> Result<SessionRun> {
        self.post(&of_session(session, "/close"), close).await
    }

    /// Renames a session, also a closed one.
    pub async fn rename_session(
        &self,
        session: &SessionId,
        rename: &RenameRequest,
    ) -> Result<SessionRun> {
        self.json(Method::PATCH, &of_session(session, ""), Some(self.encode(rename)?)).await
    }

    /// Gives an agent to a session whose log names none.
    pub async fn assign_agent(
        &self,
        session: &SessionId,
        agent: &AgentRequest,
    ) -> Result<SessionRun> {
        self.json(Method::PUT, &of_session(session, "/agent"), Some(self.encode(agent)?)).await
    }

    /// Takes contents out of a session's log. Needs the scope `admin`.
    pub async fn redact_session(
        &self,
        session: &SessionId,
        redact: &RedactRequest,
    ) -> Result<Redaction> {
        self.post(&of_session(session, "/redact"), redact).await
    }

    /// Moves a closed session into a bundle on the server. Needs the scope `admin`.
    pub async fn archive_session(
        &self,
        session: &SessionId,
        archive: &ArchiveRequest,
    ) -> Result<SessionArchived> {
        self.post(&of_session(session, "/archive"), archive).await
    }

    /// Deletes a session; of one with a worktree, says what became of that.
    pub async fn delete_session(
        &self,
        session: &SessionId,
        query: &DeleteQuery,
    ) -> Result<Option<SessionDeleted>> {
        self.json(Method::DELETE, &with_query(&of_session(session, ""), query), None).await
    }

    pub async fn records(&self, session: &SessionId, query: &RecordQuery) -> Result<RecordPage> {
        self.get(&with_query(&of_session(session, "/records"), query)).await
    }

    pub async fn messages(&self, session: &SessionId, query: &MessageQuery) -> Result<MessagePage> {
        self.get(&with_query(&of_session(session, "/messages"), query)).await
    }

    /// All that a screen needs to show a session, as of one record of its log.
    pub async fn bootstrap(
        &self,
        session: &SessionId,
        query: &BootstrapQuery,
    ) -> Result<SessionBootstrap> {
        self.get(&with_query(&of_session(session, "/bootstrap"), query)).await
    }

    pub async fn verify(&self, session: &SessionId) -> Result<Verification> {
        self.get(&of_session(session, "/verify")).await
    }

    pub async fn clean_up_worktree(
        &self,
        session: &SessionId,
        query: &CleanupQuery,
    ) -> Result<WorktreeCleanup> {
        self.json(Method::DELETE, &with_query(&of_session(session, "/worktree"), query), None).await
    }

    /// The checkpoints of a session's turns, newest first.
    pub async fn turn_checkpoints(&self, session: &SessionId) -> Result<TurnCheckpointList> {
        self.get(&of_session(session, "/turn-checkpoints")).await
    }

    /// Goes back to a checkpoint.
    pub async fn rewind(
        &self,
        session: &SessionId,
        request: &RewindRequest,
    ) -> Result<RewindResult> {
        self.post(&of_session(session, "/rewind"), request).await
    }

    /// Takes the last rewind back.
    pub async fn undo(&self, session: &SessionId, request: &UndoRequest) -> Result<RewindResult> {
        self.post(&of_session(session, "/undo"), request).await
    }

    /// How the files differ between two checkpoints, or between a checkpoint and now.
    pub async fn diff_files(
        &self,
        session: &SessionId,
        query: &FilesDiffQuery,
    ) -> Result<FilesDiff> {
        self.get(&with_query(&of_session(session, "/diff"), query)).await
    }

    pub async fn repair_worktree(&self, session: &SessionId) -> Result<Worktree> {
        self.json(Method::POST, &of_session(session, "/worktree"), None).await
    }

    pub async fn waits(&self) -> Result<WaitList> {
        self.get("/api/v1/waits").await
    }

    /// Returns one open wait with its whole question.
    pub async fn wait(&self, wait: &WaitId) -> Result<Wait> {
        self.get(&format!("/api/v1/waits/{wait}")).await
    }

    pub async fn answer(&self, wait: &WaitId, answer: &AnswerRequest) -> Result<AnswerAccepted> {
        self.post(&format!("/api/v1/waits/{wait}/answer"), answer).await
    }

    /// A new resume token for a wait; the old one is revoked.
    pub async fn rotate_resume_token(&self, wait: &WaitId) -> Result<ResumeTokenCreated> {
        self.post(&format!("/api/v1/waits/{wait}/token"), &Empty {}).await
    }

    /// A resume token for the session's interrupted run.
    pub async fn create_resume_token(
        &self,
        session: &SessionId,
        new: &NewResumeToken,
    ) -> Result<ResumeTokenCreated> {
        self.post(&of_session(session, "/token"), new).await
    }

    /// Answers with a resume token; needs no access token.
    pub async fn answer_with_token(&self, answer: &TokenAnswerRequest) -> Result<AnswerAccepted> {
        let id = answer.token.split('.').next().unwrap_or_default();
        self.post(&format!("/api/v1/resume-tokens/{}", encoded(id)), answer).await
    }

    pub async fn create_task(&self, new: &NewTask) -> Result<TaskCreated> {
        self.post("/api/v1/tasks", new).await
    }

    pub async fn tasks(&self, query: &TaskQuery) -> Result<TaskPage> {
        self.get(&with_query("/api/v1/tasks", query)).await
    }

    pub async fn task(&self, task: &TaskId) -> Result<Task> {
        self.get(&format!("/api/v1/tasks/{task}")).await
    }

    /// Renames, closes or reopens a task.
    pub async fn update_task(&self, task: &TaskId, update: &TaskUpdate) -> Result<TaskChanged> {
        let path = format!("/api/v1/tasks/{task}");
        self.json(Method::PATCH, &path, Some(self.encode(update)?)).await
    }

    /// Deletes a task; its sessions stay. Needs the scope `admin`.
    pub async fn delete_task(&self, task: &TaskId, query: &TaskDeleteQuery) -> Result<()> {
        let path = with_query(&format!("/api/v1/tasks/{task}"), query);
        self.json(Method::DELETE, &path, None).await
    }

    pub async fn agents(&self) -> Result<AgentList> {
        self.get("/api/v1/agents").await
    }

    pub async fn executors(&self) -> Result<ExecutionList> {
        self.get("/api/v1/executors").await
    }

    /// Has the server read its settings again.
    pub async fn reload(&self) -> Result<crate::server::Reloaded> {
        self.post("/api/v1/reload", &serde_json::json!({})).await
    }

    pub async fn create_access_token(&self, new: &NewAccessToken) -> Result<AccessTokenIssued> {
        self.post("/api/v1/access-tokens", new).await
    }

    /// A link that signs a browser in once.
    pub async fn create_link(&self, new: &NewAccessToken) -> Result<AccessTokenIssued> {
        self.post("/api/v1/links", new).await
    }

    pub async fn access_tokens(&self) -> Result<AccessTokenList> {
        self.get("/api/v1/access-tokens").await
    }

    pub async fn revoke_access_token(&self, token: &AccessTokenId) -> Result<()> {
        self.json(Method::DELETE, &format!("/api/v1/access-tokens/{token}"), None).await
    }

    pub async fn files(&self, session: &SessionId, query: &FolderQuery) -> Result<FileList> {
        self.get(&with_query(&of_session(session, "/files"), query)).await
    }

    pub async fn read_file(&self, session: &SessionId, path: &str) -> Result<Bytes> {
        let query = FileQuery { path: path.to_owned() };
        let path = with_query(&of_session(session, "/files/content"), &query);
        Ok(self.whole(Method::GET, &path, None).await?.2)
    }

    pub async fn write_file(
        &self,
        session: &SessionId,
        path: &str,
        content: impl Into<Bytes>,
    ) -> Result<()> {
        let query = FileQuery { path: path.to_owned() };
        let path = with_query(&of_session(session, "/files/content"), &query);
        let content = (content.into(), "application/octet-stream");
        self.whole(Method::PUT, &path, Some(content)).await.map(drop)
    }

    pub async fn git_status(&self, session: &SessionId) -> Result<GitStatus> {
        self.get(&of_session(session, "/git/status")).await
    }

    pub async fn workspace_truth(&self, session: &SessionId) -> Result<WorkspaceTruth> {
        self.get(&of_session(session, "/workspace/truth")).await
    }

    pub async fn shells(&self, session: &SessionId) -> Result<ShellList> {
        self.get(&of_session(session, "/shells")).await
    }

    /// Checks the logs, a page of them, and the store as a whole with the last page. Needs the scope
    /// `admin`.
    pub async fn verify_store(&self, query: &VerifyQuery) -> Result<StoreVerification> {
        self.get(&with_query("/api/v1/verify", query)).await
    }

    /// Archives and deletes closed sessions that have been kept long enough. Needs the scope `admin`.
    pub async fn prune(&self, prune: &PruneRequest) -> Result<PruneReport> {
        self.post("/api/v1/prune", prune).await
    }

    /// A request that has no method here; `body` is JSON, or empty.
    pub async fn raw(&self, method: &str, path: &str, body: &str) -> Result<serde_json::Value> {
        let endpoint = self.endpoint()?;
        let method = method.parse().map_err(|error: hyper::http::method::InvalidMethod| {
            super::http::unreachable(&endpoint, error)
        })?;
        let body = Some(Bytes::from(body.to_owned())).filter(|body| !body.is_empty());
        let streams = path.ends_with("/events");
        if streams {
            // The beginning of the answer says enough.
            return self.head(&endpoint, method, path).await.map(|()| serde_json::Value::Null);
        }
        self.json(method, path, body).await
    }

    /// Creates a session and says whether it was created before under the same idempotency key.
    pub async fn create_session_once(
        &self,
        new: &NewSession,
    ) -> Result<IdempotentResponse<SessionCreated>> {
        self.reply(Method::POST, "/api/v1/sessions", Some(self.encode(new)?)).await
    }
}
