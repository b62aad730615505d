//! `piton sessions import`: a session from a bundle.

use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use piton_core::Code;
use piton_runtime::Imported;
use piton_store::bundle;
use serde_json::json;

use crate::backend::StoreBackend;
use crate::context::Context;
use crate::error::{Error, Exit, Result};
use crate::secret::PassphraseArgs;
use crate::ui::Ui;

const EXAMPLES: &str = "\
Examples:
  piton sessions import SESSION.piton
  piton sessions import - --passphrase-file secret.txt < SESSION.piton

The whole bundle is verified and imported, or nothing is. It is imported as it was written:
masking does not apply to it. If the data folder has no store yet, one of the kind that the
setting `store` names is created.

JSON: one object: session_id, records, last_seq.";

/// Import a session from a bundle
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The bundle, or - for stdin
    #[arg(value_name = "FILE")]
    from: PathBuf,
    #[command(flatten)]
    passphrase: PassphraseArgs,
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    let name =
        if args.from == Path::new("-") { "stdin".into() } else { args.from.to_string_lossy() };
    let about = |error: Error| match error.code() {
        // What is wrong is the store, not the bundle.
        Some(Code::SessionExists) => error,
        _ => error.about(&name),
    };
    let unreadable = |source: io::Error| {
        let error = bundle::Error::Io { doing: "read", source: Arc::new(source) };
        about(piton_store::Error::from(error).into())
    };
    let mut from: Box<dyn Read + Send> = if args.from == Path::new("-") {
        Box::new(BufReader::new(io::stdin()))
    } else {
        Box::new(BufReader::new(File::open(&args.from).map_err(unreadable)?))
    };
    // Whether a passphrase is needed is asked before anything is made.
    let mut prefix = Vec::new();
    let length = bundle::PREFIX_BYTES as u64;
    from.by_ref().take(length).read_to_end(&mut prefix).map_err(unreadable)?;
    let is_encrypted = prefix.as_slice().try_into().is_ok_and(bundle::is_encrypted);
    let passphrase = if is_encrypted { args.passphrase.needed()? } else { None };
    let store = StoreBackend::open_or_create(cx)?;
    let whole = Cursor::new(prefix).chain(from);
    let Imported { session, last_seq, records } =
        store.import(whole, passphrase.as_ref()).await.map_err(about)?;
    if ui.json {
        ui.json_line(&json!({
            "session_id": session,
            "records": records,
            "verbatim_records": records,
            "last_seq": last_seq,
        }))?;
    } else {
        ui.line(format_args!(
            "Session {session} is imported, with {records} records, copied verbatim."
        ))?;
    }
    Ok(Exit::Good)
}
