//! The session service. The coordinator brings commands to sessions, a session decides, makes
//! durable and then acts, the recovery manager settles what dead boots left, the sweeper what
//! deadlines left, the token service lets strangers answer. [`Handle`] is what callers hold.
//!
//! Who runs no sessions reads with a [`View`], and changes what nobody runs as a [`Guest`].

mod coordinator;
mod env;
mod error;
mod executions;
mod guest;
mod messages;
mod recovery;
mod redaction;
mod registry;
mod removal;
mod resuming;
mod retention;
mod service;
mod session;
mod sweeper;
mod tally;
mod tokens;
mod view;
mod worktrees;
mod world;

pub use error::{Error, Result};
pub use executions::Executions;
pub use guest::Guest;
pub use recovery::{Outcome, Recovered};
pub use redaction::{Pattern, PatternInvalid, Redacted};
pub use registry::{Noted, Reserved};
pub use removal::{Archived, Imported};
pub use resuming::{Obstacle, Recipe, Recipes, Resumer};
pub use retention::{Due, Retention, due};
pub use service::{Asked, Handle, NewSession, Options, Question, Service};
pub use session::Ack;
pub use tally::{Counts, Doing};
pub use tokens::Answered;
pub use view::{Listed, View};
pub use worktrees::{Cleaned, Left, Worktrees};
pub use world::{
    Clock, Deed, Driver, Executors, Ids, NoDriver, NoExecutors, NoSessionFiles, SessionFiles,
    SystemClock,
};
