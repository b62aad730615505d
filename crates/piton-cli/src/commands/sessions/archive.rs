//! `piton sessions archive`: moves closed sessions out of the store, each into a bundle.

use std::path::PathBuf;

use piton_api::session::SessionArchived;
use piton_core::Code;
use piton_core::id::SessionId;
use piton_store::SecretText;
use serde_json::json;

use crate::backend::SessionBackend;
use crate::context::Context;
use crate::error::{Error, Exit, Result};
use crate::secret::NewPassphraseArgs;
use crate::ui::Ui;

const EXAMPLES: &str = "\
Examples:
  piton sessions archive SESSION
  piton sessions archive SESSION OTHER --to /backup/sessions --encrypt
  piton sessions import /backup/sessions/SESSION.piton        Back again

The bundle is written, flushed and read back before the session is deleted. Without a passphrase
it is in the clear: anyone who has it can read it.

JSON: one object per session and line: session_id, bundle, last_seq, encrypted.";

/// Move closed sessions into bundle files
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The sessions: their ids, or the beginning or end of each
    #[arg(required = true)]
    sessions: Vec<String>,
    /// The folder for the bundles [default: archive in the data folder]
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
    #[command(flatten)]
    passphrase: NewPassphraseArgs,
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    let archive = Archive::new(cx, args.to, args.passphrase.given()?);
    let (backend, ids) = SessionBackend::for_sessions(cx, &args.sessions).await?;
    let mut exit = Exit::Good;
    for id in &ids {
        if let Err(error) = archive.add(ui, &backend, id).await {
            // What keeps one from being archived does not keep the others.
            exit = ui.report(&error.about(id.as_str()));
        }
    }
    Ok(exit)
}

/// Where bundles go, and how they are closed.
#[derive(Debug)]
pub(super) struct Archive {
    folder: PathBuf,
    passphrase: Option<SecretText>,
}

impl Archive {
    pub(super) fn new(cx: &Context, to: Option<PathBuf>, passphrase: Option<SecretText>) -> Self {
        let folder = to.unwrap_or_else(|| cx.settings.data.value.join("archive"));
        Self { folder, passphrase }
    }

    pub(super) async fn add(
        &self,
        ui: &mut Ui,
        backend: &SessionBackend,
        id: &SessionId,
    ) -> Result<()> {
        let archived = backend.archive(id, &self.folder, self.passphrase.as_ref()).await;
        let SessionArchived { session_id, bundle, last_seq, encrypted } =
            archived.map_err(elsewhere)?;
        if ui.json {
            return ui.json_line(&json!({
                "session_id": session_id,
                "bundle": bundle,
                "last_seq": last_seq,
                "encrypted": encrypted,
            }));
        }
        ui.line(format_args!("Session {session_id} is archived in {bundle}."))
    }
}

/// An older bundle of that name may be all that is left of another session.
fn elsewhere(error: Error) -> Error {
    match error.code() {
        Some(Code::FileExists) => error.with_hint(
            "Move it away, or archive into another folder with --to; nothing was changed.",
        ),
        _ => error,
    }
}
