//! `piton sessions export`: a session as one file.

use std::io::{self, IsTerminal};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use piton_core::Code;
use piton_core::id::SessionId;
use piton_store::bundle::{self, BundleFile, Contents, Settings};
use piton_store::{Error as StoreError, Store};
use serde_json::json;

use super::export_text;
use super::list::summary;
use crate::context::Context;
use crate::error::{Error, Exit, Result};
use crate::secret::NewPassphraseArgs;
use crate::terminal::conversation::Conversation;
use crate::ui::Ui;

const EXAMPLES: &str = "\
Examples:
  piton sessions export SESSION                             A bundle, SESSION.piton
  piton sessions export SESSION --markdown --to -           The conversation, to read
  piton sessions export SESSION --html                      The same as one file for a browser
  piton sessions export SESSION --to /backup/a.piton --encrypt
  piton sessions export SESSION --to - --passphrase-env BUNDLE | ssh there piton sessions import -

Without a passphrase the bundle is in the clear: anyone who has it can read it, and could forge
one that verifies. docs/reference/bundle.md describes the format.

JSON: one object: session_id, file, records, last_seq, encrypted, digest (BLAKE3 of the file); of a
text: session_id, file, format (md or html), records, last_seq.";

/// Records read at a time.
const PAGE: usize = 1_000;

/// Export a session: as a bundle for `piton sessions import`, or as a text to read
///
/// The session does not change; it may be running.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The session: its id, the beginning or end of it, or @last
    session: String,
    /// Write the conversation as Markdown instead of a bundle
    #[arg(long, conflicts_with_all = ["html", "encrypt", "passphrase_file", "passphrase_env"])]
    markdown: bool,
    /// Write the conversation as one HTML file instead of a bundle
    #[arg(long, conflicts_with_all = ["encrypt", "passphrase_file", "passphrase_env"])]
    html: bool,
    /// The file, or - for stdout [default: SESSION.piton, .md or .html in this folder]
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    /// Replace an existing file
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    passphrase: NewPassphraseArgs,
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    if args.markdown || args.html {
        return to_text(ui, cx, args).await;
    }
    let to_stdout = args.to.as_deref() == Some(Path::new("-"));
    if to_stdout && ui.json {
        return Err(Error::usage("Stdout is for the bundle: leave out --json"));
    }
    if to_stdout && io::stdout().is_terminal() {
        return Err(Error::usage("A bundle is not for a terminal: name a file, or use a pipe"));
    }
    let (view, id) = cx.view_of(&args.session).await?;
    let path = args.to.unwrap_or_else(|| format!("{id}.piton").into());
    if !to_stdout {
        check_free(&path, args.force)?;
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

fn check_free(path: &Path, force: bool) -> Result<()> {
    if force || path.symlink_metadata().is_err() {
        return Ok(());
    }
    let message = format!("There is a file {} already", path.display());
    Err(Error::new(Code::FileExists, message)
        .with_hint("Choose another name with --to, or replace it with --force."))
}

/// The conversation for people.
async fn to_text(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    let to_stdout = args.to.as_deref() == Some(Path::new("-"));
    if to_stdout && ui.json {
        return Err(Error::usage("Stdout is for the text: leave out --json"));
    }
    let (view, id) = cx.view_of(&args.session).await?;
    let ending = if args.html { "html" } else { "md" };
    let path = args.to.unwrap_or_else(|| format!("{id}.{ending}").into());
    if !to_stdout {
        check_free(&path, args.force)?;
    }
    let Some(listed) = view.listed(&id).await? else {
        return Err(cx.no_store(&id.as_str().parse()?));
    };
    let mut conversation = Conversation::default();
    let (mut after, mut records) = (0, 0);
    loop {
        let page = view.records(&id, after, PAGE).await?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        records += page.len();
        for record in &page {
            conversation.apply(&serde_json::Value::Object(record.to_flat()?));
        }
    }
    let (session, now) = (summary(&listed), view.now());
    let text = if args.html {
        export_text::html(&session, &conversation.items, now)
    } else {
        export_text::markdown(&session, &conversation.items, now)
    };
    if to_stdout {
        ui.text(&text)?;
        return Ok(Exit::Good);
    }
    let written = io::Write::write_all(&mut new_file(&path)?, text.as_bytes());
    written.map_err(|error| unwritable(&path, &error))?;
    if ui.json {
        ui.json_line(&json!({
            "session_id": id, "file": path, "format": ending, "records": records, "last_seq": after,
        }))?;
    } else {
        ui.line(format_args!("Session {id} is in {}.", path.display()))?;
    }
    Ok(Exit::Good)
}

/// Its owner's alone: a conversation may contain anything.
fn new_file(path: &Path) -> Result<std::fs::File> {
    let mut options = std::fs::File::options();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.open(path).map_err(|error| unwritable(path, &error))
}

fn unwritable(path: &Path, error: &io::Error) -> Error {
    let message = format!("{} cannot be written", path.display());
    Error::new(Code::StoreReadOnly, message)
        .because(error)
        .with_hint("Choose another file with --to.")
}

fn print(ui: &mut Ui, written: &BundleFile, encrypted: bool) -> Result<()> {
    let BundleFile { path, contents, digest } = written;
    let Contents { session, last_seq, records, .. } = contents;
    if ui.json {
        return ui.json_line(&json!({
            "session_id": session,
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
