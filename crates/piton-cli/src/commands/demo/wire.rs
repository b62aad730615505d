//! What the demo and its worker say to each other: one JSON object per line.

use piton_core::Seq;
use piton_core::id::{RunId, SessionId, WaitId};
use serde::{Deserialize, Serialize};

/// What the worker says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Said {
    /// It lives, and has settled what an earlier life left.
    Ready {
        recovered: usize,
    },
    Started {
        session: SessionId,
        run: RunId,
    },
    /// A record was acknowledged: from now on it must never be lost.
    Acked {
        seq: Seq,
    },
    Asked {
        wait: WaitId,
        token: Option<String>,
    },
    /// What an order came to.
    Token {
        token: String,
    },
    Resumed {
        seq: Seq,
        replayed: bool,
    },
    Refused {
        code: String,
    },
    Finished,
}

/// A command for the worker.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Order {
    /// Begin a session and work on it.
    Work,
    /// Make a token for the interrupted run.
    MintToken { session: SessionId },
    /// Present a token with an answer.
    Present { session: SessionId, token: String, answer: String },
    /// Continue the resumed run up to the question.
    GoOn { session: SessionId, run: RunId },
    /// The question was answered: finish.
    Finish { session: SessionId, run: RunId },
}
