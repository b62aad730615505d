//! A small ACP agent without a model, for tests, demonstrations and the first minute. What it does
//! is written in the prompt, a directive on each line ([`Directive`]); a prompt without any is said
//! back word by word. It misbehaves on demand in every way that real agents were seen to.
//!
//! It runs commands and writes a file, as agents do. It builds its messages by hand, so that a mistake
//! in the client's types is not made twice.
//!
//! With `--print` it speaks no protocol: it reads a prompt, prints what it has to say, remembers it,
//! and ends ([`Print`]).
//!
//! It remembers its sessions in a file of its own, written at the end of each turn: like real
//! agents it loses the turn in which it is killed. The file is its owner's alone, and secrets are
//! masked in it by the rules that its client hands over with `initialize` ([`piton_core::mask::META`]).

mod agent;
mod args;
mod lines;
mod memory;
mod out;
mod print;
mod script;
mod tools;
mod turn;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

use agent::Agent;
use lines::Lines;
use out::{Out, Voice};

pub use args::ArgsError;
pub use script::{Directive, WORDS, Word};

/// The longest message that it reads.
const LINE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// How it behaves where no prompt can say it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub struct Options {
    /// Where it remembers its sessions; `None`: only as long as it runs.
    pub memory: Option<PathBuf>,
    /// Directives instead of the prompts', one part for each prompt, parted by lines of `---`.
    pub script: Option<PathBuf>,
    pub replay: Replay,
    pub crash_at: Option<Stage>,
    /// Answers `initialize` with this version of the protocol.
    pub protocol: Option<u64>,
    /// Knows no session it is asked for.
    pub refuse_session: bool,
    pub no_load: bool,
    pub no_resume: bool,
    /// Gives its messages no ids, as most agents do.
    pub no_message_ids: bool,
    /// Never answers `initialize`.
    pub no_answer: bool,
    pub exit_at_once: bool,
    pub no_fork: bool,
    /// Wants to be logged in in this way before it opens a session.
    pub auth: Option<String>,
    pub auth_answer: AuthAnswer,
    /// It speaks no protocol: reads a prompt, prints, and ends.
    pub print: Option<Print>,
}

/// One turn of an agent that speaks no protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Print {
    pub output: Output,
    /// The conversation to continue.
    pub resume: Option<String>,
    /// What came behind this message of it is forgotten.
    pub resume_at: Option<String>,
    /// A copy of that conversation instead.
    pub fork: bool,
    /// What a new conversation is called.
    pub session_id: Option<String>,
    /// Instead of what it would read.
    pub prompt: Option<String>,
}

/// What it prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Output {
    /// Its answer alone.
    #[default]
    Text,
    /// A message on each line, as `claude -p --output-format stream-json --verbose` does it.
    StreamJson,
}

/// How the agent answers `authenticate`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuthAnswer {
    #[default]
    Accept,
    Refuse,
    Never,
}

/// When `session/load` tells the history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replay {
    /// Before it is answered, as the protocol wants it.
    #[default]
    Before,
    /// Behind the answer.
    After,
    None,
}

/// What it can crash at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Initialize,
    New,
    Load,
    Prompt,
    Tool,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Its input ended.
    Eof,
    Exit(i32),
    Crash,
}

impl End {
    /// Ends the process in the same way.
    pub fn exit(self) -> ! {
        match self {
            Self::Eof => std::process::exit(0),
            Self::Exit(code) => std::process::exit(code),
            Self::Crash => std::process::abort(),
        }
    }
}

/// Speaks until its input ends or a directive ends it.
pub async fn serve<R, W>(reader: R, writer: W, options: Options) -> io::Result<End>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    if options.exit_at_once {
        return Ok(End::Exit(1));
    }
    if let Some(print) = options.print.clone() {
        return print::serve(reader, writer, options, print).await;
    }
    let (out, outgoing) = Out::new(Voice::Acp);
    let out = Arc::new(out);
    let agent = Agent::new(options, Arc::clone(&out))?;
    let (messages, incoming) = mpsc::channel(64);
    let reading = async {
        let mut lines = Lines::new(reader, LINE_BYTES_MAX);
        loop {
            let line = tokio::select! {
                line = lines.next() => line?,
                () = out.input_closed() => {
                    drop(lines);
                    close_stdin();
                    return std::future::pending().await;
                }
            };
            match line {
                Some(line) => {
                    // What it cannot read it ignores.
                    let Ok(message) = serde_json::from_slice(&line) else { continue };
                    if messages.send(message).await.is_err() {
                        return std::future::pending().await;
                    }
                }
                None => break,
            }
        }
        if out.is_deaf() {
            return std::future::pending().await;
        }
        io::Result::Ok(End::Eof)
    };
    let writing = out::write(writer, outgoing);
    let ended = tokio::select! {
        biased;
        end = agent.run(incoming) => return Ok(end),
        ended = reading => ended,
        ended = writing => ended.map(|()| End::Eof),
    };
    match ended {
        // The client closed the pipe.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(End::Eof),
        other => other,
    }
}

/// [`serve`] on this process's own input and output.
pub async fn stdio(options: Options) -> io::Result<End> {
    use tokio::net::unix::pipe::{Receiver, Sender};

    let stdin = std::fs::File::open("/dev/stdin").and_then(Receiver::from_file);
    let mut opening = std::fs::OpenOptions::new();
    let stdout = opening.write(true).open("/dev/stdout").and_then(Sender::from_file);
    match (stdin, stdout) {
        // Unlike the usual way, this one can let go of the pipe, and writes without a detour over
        // another thread, as agents do.
        (Ok(stdin), Ok(stdout)) => serve(stdin, stdout, options).await,
        (Ok(stdin), Err(_)) => serve(stdin, tokio::io::stdout(), options).await,
        (Err(_), _) => serve(tokio::io::stdin(), tokio::io::stdout(), options).await,
    }
}

/// The pipe that this process was given, besides the reader that was dropped. Where it serves
/// in-memory streams there is nothing to be closed.
fn close_stdin() {
    if let Ok(null) = std::fs::File::open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(null);
    }
}
