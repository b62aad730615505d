//! Commands are done once. Their ids are in the spool before anything is done about them, and a
//! repeat, which comes when a reply was lost, gets what came of the first.
//!
//! The results are in memory only: if agentctl dies the agent dies with it, and no command can be
//! repeated.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use piton_core::Code;
use piton_core::planted::{self, Bug};
use piton_core::spool::{Fact, Note};
use piton_exec::protocol::{Act, Command, Problem, Reply};
use serde_json::Value;
use tokio::sync::watch;

use crate::problem::problem;
use crate::spool::Spool;

/// So many ids are known. Beyond it the oldest that are settled are forgotten: a repeat of one of
/// those would be done again, long after any client has stopped repeating it.
const KNOWN_MAX: usize = 4_096;
const ID_BYTES_MAX: usize = 128;

type Outcome = Option<Result<Value, Problem>>;

#[derive(Debug)]
struct Known {
    /// Of what it said.
    digest: blake3::Hash,
    outcome: watch::Receiver<Outcome>,
}

impl Known {
    fn is_settled(&self) -> bool {
        self.outcome.borrow().is_some() || self.outcome.has_changed().is_err()
    }
}

#[derive(Debug, Default)]
struct Book {
    known: HashMap<String, Known>,
    /// Oldest first.
    order: VecDeque<String>,
    /// Ids that may not be accepted any more, oldest first.
    withdrawn: VecDeque<String>,
}

#[derive(Debug)]
pub(crate) struct Commands {
    book: Arc<Mutex<Book>>,
    spool: Spool,
    known_max: usize,
}

impl Commands {
    pub(crate) fn new(spool: Spool) -> Self {
        Self { book: Arc::default(), spool, known_max: KNOWN_MAX }
    }

    /// Carries a command out. If it was carried out already or is under way, waits for its result.
    /// Continues if the caller stops waiting. A command that `admit` refuses is neither remembered
    /// nor in the spool, so that it can be tried again.
    pub(crate) async fn run<A, F>(
        &self,
        command: Command,
        admit: impl FnOnce(Act) -> A,
        act: impl FnOnce(Act) -> F,
    ) -> Result<Reply, Problem>
    where
        A: Future<Output = Result<(), Problem>> + Send + 'static,
        F: Future<Output = Result<Value, Problem>> + Send + 'static,
    {
        let Command { id, act: what } = command;
        if id.is_empty() || id.len() > ID_BYTES_MAX {
            let message = format!("A command's id has 1 to {ID_BYTES_MAX} bytes");
            return Err(problem(Code::RequestInvalid, message));
        }
        let said = serde_json::to_vec(&what);
        let said = said.map_err(|e| problem(Code::RequestInvalid, e.to_string()))?;
        let digest = blake3::hash(&said);
        let (mut outcome, replayed) = match self.known(&id, digest)? {
            Seen::Before(outcome) => (outcome, true),
            Seen::Never(settle, outcome) => {
                let spool = self.spool.clone();
                let fact = Fact::CommandAccepted {
                    command_id: id.clone(),
                    command: what.name().to_owned(),
                };
                let run_id = match &what {
                    Act::Prompt { run_id, .. } | Act::Cancel { run_id } => Some(run_id.clone()),
                    _ => None,
                };
                let (admitting, doing) = (admit(what.clone()), act(what));
                let (book, id) = (Arc::clone(&self.book), id.clone());
                tokio::spawn(async move {
                    if let Err(problem) = admitting.await {
                        book.lock().unwrap_or_else(PoisonError::into_inner).forget(&id);
                        settle.send_replace(Some(Err(problem)));
                        return;
                    }
                    let kept =
                        spool.keep_now(vec![Note { run_id, fact, raw: None, at: None }]).await;
                    let result = if kept.is_ok() {
                        doing.await
                    } else {
                        // What is not in the spool was not accepted.
                        book.lock().unwrap_or_else(PoisonError::into_inner).forget(&id);
                        Err(problem(Code::AgentctlClosing, "agentctl is about to end"))
                    };
                    settle.send_replace(Some(result));
                });
                (outcome, false)
            }
        };
        let settled = outcome.wait_for(Option::is_some).await;
        let result = settled.ok().and_then(|result| result.clone());
        let interrupted = || Err(problem(Code::CommandInterrupted, "It was begun and not ended"));
        let result = result.unwrap_or_else(interrupted)?;
        Ok(Reply { id, replayed, result })
    }

    /// Makes sure that a command is accepted now or never; whether it was accepted. One that is being
    /// looked at is waited for.
    pub(crate) async fn withdraw(&self, id: &str) -> bool {
        loop {
            let mut outcome = {
                let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
                match book.known.get(id) {
                    // Had it been refused for now, it would have been forgotten.
                    Some(known) if known.is_settled() => return true,
                    Some(known) => known.outcome.clone(),
                    None => {
                        book.withdraw(id, self.known_max);
                        return false;
                    }
                }
            };
            // An error means that it was cut off, which settles it, too.
            let _ = outcome.wait_for(Option::is_some).await;
        }
    }

    fn known(&self, id: &str, digest: blake3::Hash) -> Result<Seen, Problem> {
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = book.known.get(id) {
            if known.digest != digest {
                let message = format!("The command {id} was another one when it came first");
                return Err(problem(Code::CommandMismatch, message));
            }
            return Ok(Seen::Before(known.outcome.clone()));
        }
        if book.withdrawn.iter().any(|withdrawn| withdrawn == id) {
            let message = format!("The command {id} was withdrawn");
            return Err(problem(Code::CommandWithdrawn, message));
        }
        if book.known.len() >= self.known_max {
            book.forget_one();
        }
        if book.known.len() >= self.known_max {
            let message = format!("{} commands are under way", self.known_max);
            return Err(problem(Code::LimitReached, message));
        }
        let (settle, outcome) = watch::channel(None);
        book.known.insert(id.to_owned(), Known { digest, outcome: outcome.clone() });
        book.order.push_back(id.to_owned());
        Ok(Seen::Never(settle, outcome))
    }
}

enum Seen {
    Before(watch::Receiver<Outcome>),
    Never(watch::Sender<Outcome>, watch::Receiver<Outcome>),
}

impl Book {
    fn withdraw(&mut self, id: &str, max: usize) {
        if self.withdrawn.iter().any(|withdrawn| withdrawn == id) {
            return;
        }
        if self.withdrawn.len() >= max {
            self.withdrawn.pop_front();
        }
        self.withdrawn.push_back(id.to_owned());
    }

    fn forget(&mut self, id: &str) {
        self.known.remove(id);
        self.order.retain(|known| known != id);
    }

    fn forget_one(&mut self) {
        let is_settled = |id: &String| {
            self.known
                .get(id)
                .is_none_or(|known| known.is_settled() || planted::is(Bug::CommandForgotten))
        };
        if let Some(index) = self.order.iter().position(is_settled)
            && let Some(id) = self.order.remove(index)
        {
            self.known.remove(&id);
        }
    }
}

/// How many commands are known; for tests.
#[cfg(test)]
impl Commands {
    fn count(&self) -> usize {
        self.book.lock().unwrap().known.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use piton_exec::spool::SpoolReader;
    use serde_json::json;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn commands(folder: &std::path::Path) -> Commands {
        Commands::new(Spool::create(folder, &[1; 32], 1 << 20).unwrap())
    }

    async fn always(_: Act) -> Result<(), Problem> {
        Ok(())
    }

    /// A command that is refused for now leaves nothing behind, and can be tried again.
    #[tokio::test]
    async fn what_is_not_admitted_is_not_remembered() {
        let temp = tempfile::tempdir().unwrap();
        let commands = commands(temp.path());
        let never = |_| async { Err(problem(Code::AgentBusy, "Another turn is under way")) };
        let act = |_| async { Ok(json!("done")) };
        let refused = commands.run(stop("c1"), never, act).await.unwrap_err();
        assert_eq!((refused.code, commands.count()), (Code::AgentBusy.into(), 0));
        let done = commands.run(stop("c1"), always, act).await.unwrap();
        assert_eq!(done, Reply { id: "c1".into(), replayed: false, result: json!("done") });
        let reader = SpoolReader::open(temp.path(), &[1; 32]).unwrap();
        assert_eq!(reader.after(0).count(), 1);
    }

    fn stop(id: &str) -> Command {
        Command { id: id.to_owned(), act: Act::Stop {} }
    }

    #[tokio::test]
    async fn a_repeat_is_answered_as_the_first_was_and_done_once() {
        let temp = tempfile::tempdir().unwrap();
        let commands = commands(temp.path());
        let done = Arc::new(AtomicUsize::new(0));
        let act = |_| {
            let done = done.clone();
            async move { Ok(json!(done.fetch_add(1, Ordering::SeqCst))) }
        };
        let first = commands.run(stop("c1"), always, act).await.unwrap();
        assert_eq!(first, Reply { id: "c1".into(), replayed: false, result: json!(0) });
        let again = commands.run(stop("c1"), always, act).await.unwrap();
        assert_eq!(again, Reply { id: "c1".into(), replayed: true, result: json!(0) });
        let other = Command { id: "c1".into(), act: Act::Close {} };
        assert_eq!(commands.run(other, always, act).await.unwrap_err().code, Code::CommandMismatch);
        assert_eq!(done.load(Ordering::SeqCst), 1);
        let reader = SpoolReader::open(temp.path(), &[1; 32]).unwrap();
        let kept: Vec<_> = reader.after(0).map(|entry| entry.unwrap().fact).collect();
        let fact = Fact::CommandAccepted { command_id: "c1".into(), command: "stop".into() };
        assert_eq!(kept, [fact]);
    }

    /// Withdrawn is what was not accepted, for good; what was accepted is said to be.
    #[tokio::test]
    async fn a_command_is_withdrawn_unless_it_was_accepted() {
        let temp = tempfile::tempdir().unwrap();
        let commands = commands(temp.path());
        let done = |_| async { Ok(Value::Null) };
        commands.run(stop("c1"), always, done).await.unwrap();
        assert!(commands.withdraw("c1").await);
        // One that was refused for now is not accepted.
        let never = |_| async { Err(problem(Code::AgentBusy, "Another turn is under way")) };
        commands.run(stop("c2"), never, done).await.unwrap_err();
        assert!(!commands.withdraw("c2").await);
        assert!(!commands.withdraw("c2").await);
        let late = commands.run(stop("c2"), always, |_| async { panic!("withdrawn") }).await;
        assert_eq!(late.unwrap_err().code, Code::CommandWithdrawn);
        assert!(commands.run(stop("c1"), always, done).await.unwrap().replayed);
    }

    /// Whether a command that is being looked at will be accepted is waited for.
    #[tokio::test]
    async fn a_withdrawal_waits_for_a_command_under_way() {
        for is_admitted in [true, false] {
            let temp = tempfile::tempdir().unwrap();
            let commands = Arc::new(commands(temp.path()));
            let (go, gone) = tokio::sync::oneshot::channel::<()>();
            let running = Arc::clone(&commands);
            let first = tokio::spawn(async move {
                let admit = |_| async move {
                    gone.await.unwrap();
                    if is_admitted { Ok(()) } else { Err(problem(Code::AgentBusy, "Busy")) }
                };
                running.run(stop("c1"), admit, |_| async { Ok(Value::Null) }).await
            });
            while commands.count() == 0 {
                tokio::task::yield_now().await;
            }
            let withdrawing = Arc::clone(&commands);
            let withdrawal = tokio::spawn(async move { withdrawing.withdraw("c1").await });
            tokio::task::yield_now().await;
            go.send(()).unwrap();
            assert_eq!(withdrawal.await.unwrap(), is_admitted);
            assert_eq!(first.await.unwrap().is_ok(), is_admitted);
        }
    }

    /// A refusal is an outcome, too; and one that is asked for twice at once is given twice.
    #[tokio::test]
    async fn a_repeat_waits_for_the_first_one() {
        let temp = tempfile::tempdir().unwrap();
        let commands = Arc::new(commands(temp.path()));
        let (go, gone) = tokio::sync::oneshot::channel::<()>();
        let both = commands.clone();
        let first = tokio::spawn(async move {
            let act = |_| async move {
                gone.await.unwrap();
                Err(problem(Code::AgentRunning, "There is one"))
            };
            both.run(stop("c1"), always, act).await
        });
        while commands.count() == 0 {
            tokio::task::yield_now().await;
        }
        let both = commands.clone();
        let second = tokio::spawn(async move {
            both.run(stop("c1"), always, |_| async { panic!("done twice") }).await
        });
        tokio::task::yield_now().await;
        go.send(()).unwrap();
        assert_eq!(first.await.unwrap().unwrap_err().code, Code::AgentRunning);
        assert_eq!(second.await.unwrap().unwrap_err().code, Code::AgentRunning);
    }

    /// A command that is under way is known however many come after it: its repeat is not done.
    #[tokio::test]
    async fn what_is_under_way_is_never_forgotten() {
        let temp = tempfile::tempdir().unwrap();
        let commands = Arc::new(Commands { known_max: 3, ..commands(temp.path()) });
        let (go, gone) = tokio::sync::broadcast::channel::<()>(1);
        let mut under_way = Vec::new();
        for n in 0..3 {
            let (doing, mut gone) = (Arc::clone(&commands), gone.resubscribe());
            under_way.push(tokio::spawn(async move {
                let act = |_| async move {
                    gone.recv().await.unwrap();
                    Ok(json!(n))
                };
                doing.run(stop(&format!("c{n}")), always, act).await
            }));
            while commands.count() <= n {
                tokio::task::yield_now().await;
            }
        }
        let more = commands.run(stop("c3"), always, |_| async { panic!("too many") }).await;
        assert_eq!(more.unwrap_err().code, Code::LimitReached);
        let repeated = {
            let commands = Arc::clone(&commands);
            tokio::spawn(async move {
                commands.run(stop("c0"), always, |_| async { panic!("done twice") }).await
            })
        };
        tokio::task::yield_now().await;
        go.send(()).unwrap();
        assert!(repeated.await.unwrap().unwrap().replayed);
        for (n, one) in under_way.into_iter().enumerate() {
            assert_eq!(one.await.unwrap().unwrap().result, json!(n));
        }
        // Those are settled: the oldest of them makes room.
        let more = commands.run(stop("c3"), always, |_| async { Ok(Value::Null) }).await;
        assert!(!more.unwrap().replayed);
    }

    #[tokio::test]
    async fn the_oldest_settled_ids_are_forgotten() {
        let temp = tempfile::tempdir().unwrap();
        let commands = Commands { known_max: 20, ..commands(temp.path()) };
        for n in 0..30 {
            commands
                .run(stop(&format!("c{n}")), always, |_| async { Ok(Value::Null) })
                .await
                .unwrap();
        }
        assert_eq!(commands.count(), 20);
        let again = commands.run(stop("c29"), always, |_| async { Ok(Value::Null) }).await.unwrap();
        assert!(again.replayed);
        let oldest = commands.run(stop("c0"), always, |_| async { Ok(Value::Null) }).await.unwrap();
        assert!(!oldest.replayed);
    }
}
