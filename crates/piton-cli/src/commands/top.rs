//! `piton top`: the sessions on the whole screen, live.

use crate::background;
use crate::commands::chat;
use crate::context::Context;
use crate::error::{Error, Exit, Result};
use crate::terminal;
use crate::terminal::dashboard::{self, Chosen};
use crate::ui::Ui;

const EXAMPLES: &str = "\
Examples:
  piton top
  piton                                The same, on a terminal

What needs you is first. Enter attaches; leaving the session returns here. a shows a permission
request whole and answers it, r resumes, f forks, d dismisses an interruption, / searches, ? lists
all keys, q leaves.";

/// Show all sessions on the whole screen: watch, answer, resume, attach, fork
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, _args: Args) -> Result<Exit> {
    if !terminal::is_possible(ui) {
        return Err(Error::usage(
            "`piton top` draws on a terminal; `piton sessions list` prints the sessions",
        ));
    }
    let client = background::ensure(cx).await?;
    loop {
        match dashboard::run(ui, cx, &client, None).await? {
            Chosen::Leave => return Ok(Exit::Good),
            Chosen::Attach(session) => chat::attach_to(ui, cx, client.clone(), session).await?,
            Chosen::New => chat::begin(ui, cx, client.clone()).await?,
        };
    }
}
