//! The facade: wiring and translation. It holds no persistence and derives nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use piton_core::decide::{self, Command, Create, Message, Refusal, Setup, Verdict};
use piton_core::event::WaitKind;
use piton_core::id::{BootId, RunId, SessionId, TaskId, WaitId};
use piton_core::mask::Masker;
use piton_core::status::{self, Status};
use piton_core::token::{NewToken, ResumeToken};
use piton_core::transcript::Item;
use piton_core::{Record, Seq, State};
use piton_store::{Cursor, Durability, Entropy, Liveness, Store, Tail};
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::coordinator::Coordinator;
use crate::counts::Counts;
use crate::env::Env;
use crate::error::Result;
use crate::interfaces::{
    Clock, Driver, Executors, Ids, NoDriver, NoExecutors, NoSessionFiles, NoTurnSnapshots,
    SessionFiles, SystemClock, TurnSnapshots,
};
use crate::offline::OfflineWriter;
use crate::permission_rules::PermissionRules;
use crate::session::{Ack, Work};
use crate::settings::Settings;
use crate::supervisor::{Recovered, Supervisors, Wake};
use crate::sweeper::Sweeper;
use crate::tokens::{Answered, TokenService};
use crate::view::{Listed, View};

/// How often deadlines and dead boots are looked for; a deadline that is known of is not waited for.
const SWEEP_EVERY: Duration = Duration::from_secs(30);
const SNAPSHOT_EVERY: u64 = 200;
/// The start stops waiting for the recovery when no session was settled for this long.
const RECOVERY_STALLED: Duration = Duration::from_secs(1);

/// What a service is made of. The defaults are the real clock and no agents ([`NoDriver`],
/// [`NoExecutors`]).
#[derive(Clone, Debug)]
pub struct Options {
    /// This life of this process; its lock is held by the caller for as long as the service runs.
    pub boot: BootId,
    pub store: Arc<dyn Store>,
    pub liveness: Arc<dyn Liveness>,
    pub entropy: Arc<dyn Entropy>,
    pub clock: Arc<dyn Clock>,
    pub driver: Arc<dyn Driver>,
    pub executors: Arc<dyn Executors>,
    pub files: Arc<dyn SessionFiles>,
    pub turns: Arc<dyn TurnSnapshots>,
    /// What must not reach the disk. By default the values of excluded keys; known secrets, such as
    /// those of the environment, are the caller's to add.
    pub masker: Arc<Masker>,
    pub sweep_every: Duration,
    /// What an operator can change; [`Handle::set_settings`] replaces them.
    pub settings: Settings,
    /// Records after which a snapshot saves replaying them.
    pub snapshot_every: u64,
    /// Permission requests that are answered without asking.
    pub rules: PermissionRules,
}

impl Options {
    pub fn new(
        boot: BootId,
        store: Arc<dyn Store>,
        liveness: Arc<dyn Liveness>,
        entropy: Arc<dyn Entropy>,
    ) -> Self {
        Self {
            boot,
            store,
            liveness,
            entropy,
            clock: Arc::new(SystemClock),
            driver: Arc::new(NoDriver),
            executors: Arc::new(NoExecutors),
            files: Arc::new(NoSessionFiles),
            turns: Arc::new(NoTurnSnapshots),
            masker: Arc::default(),
            sweep_every: SWEEP_EVERY,
            settings: Settings::default(),
            snapshot_every: SNAPSHOT_EVERY,
            rules: PermissionRules::default(),
        }
    }
}

/// A running service. Dropping it ends its work wherever it is, as a crash would; what was
/// acknowledged is durable all the same.
#[derive(Debug)]
pub struct Service {
    handle: Handle,
    working: Vec<JoinHandle<()>>,
}

/// What callers hold. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Handle {
    env: Arc<Env>,
    view: View,
    coordinator: Arc<Coordinator>,
    tokens: Arc<TokenService>,
    sweeper: Arc<Sweeper>,
}

impl Service {
    /// Recovers what earlier boots left, then runs. Calls `each` with every recovered session as
    /// soon as it is settled. A session whose executor does not answer must not delay the others:
    /// it is settled while the service runs, without a call of `each`.
    pub async fn start(options: Options, each: impl FnMut(Recovered)) -> Result<Self> {
        let mut service = Self::assemble(options);
        service.handle.recover_at_start(each).await?;
        service.work();
        Ok(service)
    }

    /// Runs at once, and recovers meanwhile: until a session is settled its status says that its
    /// executor is being asked.
    pub fn begin(options: Options) -> Self {
        let mut service = Self::assemble(options);
        let handle = service.handle();
        service.working.push(tokio::spawn(async move {
            if let Err(error) = handle.recover_because(Wake::Boot, |_| {}).await {
                // The sweeper tries it again.
                tracing::error!(code = %error.code(), "recovery failed");
            }
        }));
        service.work();
        service
    }

    fn assemble(options: Options) -> Self {
        let sweep_every = options.sweep_every;
        let env = Arc::new(Env::new(options));
        let coordinator = Arc::new(Coordinator::new(Arc::clone(&env)));
        let handle = Handle {
            tokens: Arc::new(TokenService::new(Arc::clone(&env), Arc::clone(&coordinator))),
            sweeper: Arc::new(Sweeper::new(
                Arc::clone(&env),
                Arc::clone(&coordinator),
                sweep_every,
            )),
            view: View::of(&env),
            env,
            coordinator,
        };
        handle.supervisors().attach(&handle);
        Self { handle, working: Vec::new() }
    }

    fn work(&mut self) {
        let handle = self.handle.clone();
        self.working.push(tokio::spawn(Arc::clone(&self.handle.sweeper).run(handle.clone())));
        self.working
            .push(tokio::spawn(async move { handle.supervisors().watch_leftovers().await }));
    }

    /// For a process that runs no sessions and changes a session that no process runs.
    pub fn offline_writer(options: Options) -> OfflineWriter {
        OfflineWriter::new(Env::new(options))
    }

    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Takes no further work and waits until the accepted is durable.
    pub async fn shut_down(self) {
        self.working.iter().for_each(JoinHandle::abort);
        self.handle.supervisors().detach();
        self.handle.coordinator.shut_down().await;
    }

    /// Ends all work at once, wherever it is.
    pub fn abort(&self) {
        self.working.iter().for_each(JoinHandle::abort);
        self.handle.supervisors().detach();
        self.handle.coordinator.abort();
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.abort();
    }
}

/// What to make a session with.
#[derive(Clone, Debug, Default)]
pub struct NewSession {
    pub id: Option<SessionId>,
    pub title: Option<String>,
    pub task_id: Option<TaskId>,
    pub working_dir: Option<String>,
    pub provider: Option<Value>,
    pub agent_profile_id: Option<String>,
}

/// What a run asks for.
#[derive(Clone, Debug)]
pub struct Question {
    pub run_id: RunId,
    /// The caller's own id, if asking again must change nothing.
    pub wait_id: Option<WaitId>,
    pub kind: WaitKind,
    /// `None`: the kind's default.
    pub timeout: Option<Duration>,
    pub question: Value,
}

/// A wait that was opened. The token is shown here and nowhere else.
#[derive(Clone, Debug)]
pub struct OpenedWait {
    pub wait_id: WaitId,
    /// `None` if the wait was open already: its token was shown then.
    pub token: Option<ResumeToken>,
}

impl Handle {
    pub fn ids(&self) -> &Ids {
        &self.env.ids
    }

    pub(crate) fn env(&self) -> &Env {
        &self.env
    }

    pub fn settings(&self) -> Settings {
        self.env.settings.get()
    }

    /// They count from now on; sessions whose agents wait for nothing but time look at them again.
    pub fn set_settings(&self, settings: Settings) {
        self.env.settings.set(settings);
        self.supervisors().wake_all();
    }

    /// Every session's supervisor.
    pub fn supervisors(&self) -> &Supervisors {
        &self.env.supervisors
    }

    pub(crate) fn coordinator(&self) -> &Coordinator {
        &self.coordinator
    }

    pub fn boot(&self) -> &BootId {
        &self.env.boot
    }

    /// Returns early when the recovery stalls: the remaining recoveries continue by themselves, and
    /// the sweep checks all sessions again.
    async fn recover_at_start(&self, mut each: impl FnMut(Recovered)) -> Result<()> {
        let settled = AtomicU64::new(0);
        let recovering = self.recover_because(Wake::Boot, |recovered| {
            settled.fetch_add(1, Ordering::Relaxed);
            each(recovered);
        });
        let mut recovering = std::pin::pin!(recovering);
        let mut before = None;
        loop {
            tokio::select! {
                biased;
                recovered = &mut recovering => return recovered,
                () = self.env.clock.sleep(RECOVERY_STALLED) => {}
            }
            let now = Some(settled.load(Ordering::Relaxed));
            if before == now {
                tracing::warn!(
                    "some sessions are not recovered yet: they wait for their executors"
                );
                return Ok(());
            }
            before = now;
        }
    }

    /// Decides a command, makes it durable and answers. Everything that writes goes through here.
    pub async fn execute(&self, session: &SessionId, command: Command) -> Result<Ack> {
        self.coordinator.execute(session, command, Durability::Synced).await
    }

    /// Like [`Self::execute`], for the session's supervisor.
    pub(crate) async fn execute_settled(
        &self,
        session: &SessionId,
        command: Command,
    ) -> Result<Ack> {
        self.coordinator.execute_settled(session, command).await
    }

    /// Delivers the queued prompt that is due, if one is.
    pub(crate) async fn deliver_due(&self, session: &SessionId) -> Result<Ack> {
        self.coordinator.ask(session, Work::Deliver).await
    }

    /// Like [`Self::execute`], for streams: may share its flush with what comes within 50 ms.
    pub async fn execute_buffered(&self, session: &SessionId, command: Command) -> Result<Ack> {
        self.coordinator.execute(session, command, Durability::Buffered).await
    }

    pub async fn create(&self, new: NewSession) -> Result<SessionId> {
        let session_id = match new.id {
            Some(id) => id,
            None => self.env.ids.session()?,
        };
        let create = Create {
            session_id: session_id.clone(),
            title: new.title,
            task_id: new.task_id,
            working_dir: new.working_dir,
            provider: new.provider,
            agent_profile_id: new.agent_profile_id,
            setup: Setup::default(),
        };
        self.execute(&session_id, Command::Create(create)).await?;
        Ok(session_id)
    }

    /// Starts a run with a message.
    pub async fn prompt(&self, session: &SessionId, content: &str) -> Result<RunId> {
        let run_id = self.env.ids.run()?;
        let message_id = self.env.ids.message()?;
        let message = Some(Message { message_id, content: content.into() });
        self.execute(session, Command::Start { run_id: run_id.clone(), message }).await?;
        Ok(run_id)
    }

    /// Opens a wait and mints its token.
    pub async fn ask(&self, session: &SessionId, question: Question) -> Result<OpenedWait> {
        let wait_id = match question.wait_id {
            Some(id) => id,
            None => self.env.ids.wait()?,
        };
        let timeout =
            question.timeout.unwrap_or_else(|| self.settings().limits.wait(question.kind));
        let token = self.tokens.mint()?;
        let wait = decide::Wait {
            run_id: question.run_id,
            wait_id: wait_id.clone(),
            kind: question.kind,
            deadline_at: self.env.clock.now().after(timeout),
            fresh: NewToken::from(&token),
            question: question.question,
        };
        let ack = self.execute(session, Command::Wait(wait)).await?;
        let minted = ack.verdict == Verdict::Asked;
        Ok(OpenedWait { wait_id, token: minted.then_some(token) })
    }

    /// Answers with a token; for parties without a login.
    pub async fn answer_with_token(
        &self,
        within: Option<&SessionId>,
        token: ResumeToken,
        answer: Value,
    ) -> Result<Answered> {
        if let Some((session, entry)) = self.env.store.token(&token.id).await?
            && token.secret.matches(&entry.hash)
            && let Some(wait_id) = &entry.wait_id
        {
            self.check_answer(&session, wait_id, &answer).await?;
        }
        self.tokens.answer(within, token, answer).await
    }

    /// Refuses an answer that an open wait's question does not offer: the agent could do nothing
    /// with it, and the client could not be notified any more.
    pub async fn check_answer(
        &self,
        session: &SessionId,
        wait_id: &WaitId,
        answer: &Value,
    ) -> Result<()> {
        let run = self.state(session).await?.facts.run;
        let Some(wait) = run.as_ref().and_then(|run| run.waits.get(wait_id)) else {
            // The decision refuses or recognises an answer to a wait that is not open.
            return Ok(());
        };
        let asked = self.records(session, wait.since_seq - 1, 1).await?;
        let question = asked.first().and_then(|record| record.content_field("question"));
        let Some(question) = question else { return Ok(()) };
        // The answer would be the value of a key that must not be written.
        let keys = piton_graph::checkpoints::excluded_keys(&question);
        if !keys.is_empty() {
            return Err(piton_graph::Error::ValuesRequired { keys }.into());
        }
        if !decide::fits(&question, answer) {
            return Err(Refusal::AnswerInvalid { wait: wait_id.clone() }.into());
        }
        Ok(())
    }

    /// Answers by the wait's id; for callers that may control the session.
    pub async fn answer_wait(
        &self,
        session: &SessionId,
        wait_id: WaitId,
        answer: Value,
    ) -> Result<Ack> {
        self.check_answer(session, &wait_id, &answer).await?;
        let fresh = NewToken::from(&self.tokens.mint()?);
        self.execute(session, Command::AnswerByWait { wait_id, fresh, answer }).await
    }

    /// A new token for an open wait; the old one is revoked. Shown here and nowhere else.
    pub async fn rotate_token(&self, session: &SessionId, wait_id: WaitId) -> Result<ResumeToken> {
        let token = self.tokens.mint()?;
        let fresh = NewToken::from(&token);
        self.execute(session, Command::RotateToken { wait_id, fresh }).await?;
        Ok(token)
    }

    /// A token with which the interrupted run can be resumed. Shown here and nowhere else.
    pub async fn interruption_token(
        &self,
        session: &SessionId,
        valid_for: Option<Duration>,
    ) -> Result<ResumeToken> {
        let token = self.tokens.mint()?;
        let expires_at = valid_for.map(|span| self.env.clock.now().after(span));
        let fresh = NewToken::from(&token);
        self.execute(session, Command::MintInterruption { fresh, expires_at }).await?;
        Ok(token)
    }

    /// Interruptions and resumes since this process began.
    pub fn counts(&self) -> Counts {
        self.env.run_counter.counts()
    }

    /// What can be read: states, statuses, lists, records.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The state that the durable records fold into.
    pub async fn state(&self, session: &SessionId) -> Result<State> {
        self.view.state(session).await
    }

    pub async fn status(&self, session: &SessionId) -> Result<Status> {
        Ok(self.view.status(&self.state(session).await?.facts))
    }

    /// A page of sessions with their statuses, last active first.
    pub async fn list(
        &self,
        task_id: Option<TaskId>,
        named: Option<status::Name>,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<(Vec<Listed>, Option<Cursor>)> {
        let wanted = |name| named.is_none_or(|named| named == name);
        self.view.list(task_id, wanted, after, limit).await
    }

    pub async fn records(
        &self,
        session: &SessionId,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<Record>> {
        self.view.records(session, after, limit).await
    }

    /// The conversation, with every tool call paired.
    pub async fn transcript(&self, session: &SessionId) -> Result<Vec<Item>> {
        self.view.transcript(session).await
    }

    /// Follows a session's log from after a position.
    pub fn tail(&self, session: &SessionId, after: Seq) -> Tail {
        self.view.tail(session, after)
    }

    /// Recovers again: what another boot left when it died while this one lived.
    pub async fn recover(&self, each: impl FnMut(Recovered)) -> Result<()> {
        self.recover_because(Wake::Sweep, each).await
    }

    pub(crate) async fn recover_because(
        &self,
        cause: Wake,
        each: impl FnMut(Recovered),
    ) -> Result<()> {
        self.supervisors().recover(self, cause, each).await
    }

    /// Settles the deadlines that have passed; says how many sessions changed.
    pub async fn sweep(&self) -> Result<usize> {
        self.sweeper.sweep().await
    }
}
