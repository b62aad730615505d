//! `piton sessions export`: a session as one file.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use piton_core::Code;
use piton_core::id::SessionId;
use piton_store::bundle::{self, BundleFile, Contents, Settings};
use piton_store::{Error as StoreError, Store};
use serde_json::json;

use crate::context::Context;
use crate::error::{Error, Exit, Result};
use crate::secret::NewPassphraseArgs;
use crate::ui::Ui;

const EXAMPLES: &str = "\
Examples:
  piton sessions export sess_0199                           Into sess_0199.piton
  piton sessions export sess_0199 --to /backup/a.piton --encrypt
  piton sessions export sess_0199 --to - --passphrase-env BUNDLE | ssh there piton sessions import -

Without a passphrase the bundle is in the clear: anyone who has it can read it, and could forge one \
that verifies. docs/reference/bundle.md describes the format.

JSON: one object: session, file, records, last_seq, encrypted, digest (BLAKE3 of the file).";

/// Write a session into a bundle, from which it can be imported elsewhere
///
/// The session stays as it is; it may be at work meanwhile.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The session's id, or its beginning
    session: String,
    /// The file, or - for stdout [default: SESSION.piton in this folder]
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    /// Replace a file that is there
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    passphrase: NewPassphraseArgs,
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    let to_stdout = args.to.as_deref() == Some(Path::new("-"));
    if to_stdout && ui.json {
        return Err(Error::usage("Stdout is for the bundle: leave out --json"));
    }
    if to_stdout && io::stdout().is_terminal() {
        return Err(Error::usage("A bundle is not for a terminal: name a file, or use a pipe"));
    }
    let (view, id) = cx.view_of(&args.session).await?;
    let path = args.to.unwrap_or_else(|| format!("{id}.piton").into());
    if !to_stdout && !args.force && path.symlink_metadata().is_ok() {
        let message = format!("There is a file {} already", path.display());
        return Err(Error::new(Code::FileExists, message)
            .with_hint("Choose another name with --to, or replace it with --force."));
    }
    let settings = Settings::new(args.passphrase.given()?);
    let encrypted = settings.passphrase.is_some();
    if to_stdout {
        let Contents { records, .. } = to_pipe(&**view.store(), &id, &settings).await?;
        ui.note(&format!("Session {id} is written, with {records} records."))?;
    } else {
        let written = bundle::write_file(&**view.store(), &id, &path, &settings).await;
        let about = |error| Error::from(error).about(&path.display().to_string());
        let written = written.map_err(about)?;
        print(ui, &written, encrypted)?;
    }
    if !encrypted {
        ui.warn("The bundle is in the clear: anyone who has it can read it.")?;
    }
    Ok(Exit::Good)
}

fn print(ui: &mut Ui, written: &BundleFile, encrypted: bool) -> Result<()> {
    let BundleFile { path, contents, digest } = written;
    let Contents { session, last_seq, records, .. } = contents;
    if ui.json {
        return ui.json_line(&json!({
            "session": session,
            "file": path,
            "records": records,
            "last_seq": last_seq,
            "encrypted": encrypted,
            "digest": digest.to_hex().as_str(),
        }));
    }
    ui.line(format_args!("Session {session} is in {}, with {records} records.", path.display()))
}

async fn to_pipe(store: &dyn Store, id: &SessionId, settings: &Settings) -> Result<Contents> {
    let mut to = io::BufWriter::new(io::stdout());
    match bundle::export(store, id, &mut to, settings).await {
        Err(StoreError::Bundle(bundle::Error::Io { source, .. }))
            if source.kind() == io::ErrorKind::BrokenPipe =>
        {
            Err(io::Error::from(io::ErrorKind::BrokenPipe).into())
        }
        written => {
            let written = written?;
            io::Write::flush(&mut to)?;
            Ok(written)
        }
    }
}
