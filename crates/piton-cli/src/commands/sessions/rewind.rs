//! `piton sessions rewind` and `undo`: files and conversation of an agent's session, back to a turn.

use piton_api::rewind::{RewindRequest, RewindResult, SkippedPath, UndoRequest};

use crate::backend;
use crate::context::Context;
use crate::error::{Exit, Result};
use crate::text::one_line;
use crate::ui::{Tone, Ui};

const EXAMPLES: &str = "\
Examples:
  piton sessions rewind SESSION                   Before the newest turn: files and conversation
  piton sessions rewind SESSION --turns 2 --dry-run
  piton sessions rewind SESSION --files src/      Only these files
  piton sessions rewind SESSION --to 20a1 --conversation
  piton sessions undo SESSION                     Take the rewind back

JSON: one object: session_id, checkpoint_id, dry_run, files {changes, changes_total, foreign,
safety_snapshot, skipped [{path, reason}], skipped_total, kept_checkpoint}, conversation {lineage,
context}.";

/// Files that are printed.
const PRINTED_MAX: usize = 50;
/// Paths that no snapshot holds and that are printed.
const SKIPPED_PRINTED_MAX: usize = 10;

/// Go back to before an agent's turn: files, conversation, or both
///
/// The files are saved first; `piton sessions undo` takes the rewind back. Files that changed and that this
/// session did not change are listed, and the rewind is refused. Your git repository is not touched: no
/// commit, branch, stash or index changes. What was said after the checkpoint stays in the log; the agent
/// gets a fresh start with the history up to there.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub(crate) struct Args {
    /// The session: its id, the beginning or end of it, or @last
    session: String,
    /// Only these files, and what is below these folders; the conversation stays as it is
    #[arg(value_name = "PATH")]
    paths: Vec<String>,
    /// The checkpoint: its id, or the beginning or end of it
    #[arg(long, value_name = "CHECKPOINT", conflicts_with = "turns")]
    to: Option<String>,
    /// Go back so many turns [default: 1]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    turns: Option<u32>,
    /// Only the files
    #[arg(long, conflicts_with_all = ["conversation", "both"])]
    files: bool,
    /// Only the conversation
    #[arg(long, conflicts_with_all = ["paths", "both"])]
    conversation: bool,
    /// Files and conversation [the default without paths]
    #[arg(long, conflicts_with = "paths")]
    both: bool,
    /// Print what would happen, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Overwrite changes that this session did not make
    #[arg(long)]
    force: bool,
    /// Cancel a run that is open
    #[arg(long)]
    cancel: bool,
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    let (client, id) = backend::server_for(cx, &args.session).await?;
    let request = RewindRequest {
        checkpoint: args.to,
        turns: args.turns,
        files: Some(!args.conversation),
        conversation: Some(!args.files && args.paths.is_empty()),
        paths: args.paths,
        dry_run: Some(args.dry_run),
        force: Some(args.force),
        cancel: Some(args.cancel),
    };
    let done = client.rewind(&id, &request).await?;
    print(ui, &done, "sessions undo")
}

const UNDO_EXAMPLES: &str = "\
Examples:
  piton sessions undo SESSION
  piton sessions undo SESSION --dry-run

JSON: as `piton sessions rewind`.";

/// Take the last rewind back, if no turn has begun since
///
/// A second undo restores the rewind.
#[derive(Debug, clap::Args)]
#[command(after_help = UNDO_EXAMPLES)]
pub(crate) struct UndoArgs {
    /// The session: its id, the beginning or end of it, or @last
    session: String,
    /// Print what would happen, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Overwrite changes that were made since the rewind
    #[arg(long)]
    force: bool,
}

pub(crate) async fn undo(ui: &mut Ui, cx: &Context, args: UndoArgs) -> Result<Exit> {
    let (client, id) = backend::server_for(cx, &args.session).await?;
    let request = UndoRequest { dry_run: Some(args.dry_run), force: Some(args.force) };
    let done = client.undo(&id, &request).await?;
    print(ui, &done, "sessions undo")
}

fn print(ui: &mut Ui, done: &RewindResult, undo: &str) -> Result<Exit> {
    if ui.json {
        ui.json_line(done)?;
        return Ok(Exit::Good);
    }
    if let Some(files) = &done.files {
        for change in files.changes.iter().take(PRINTED_MAX) {
            let (tone, mark) = mark(change.change.as_str());
            let foreign = if files.foreign.contains(&change.path) {
                "  (not changed by this session)"
            } else {
                ""
            };
            let path = one_line(&change.path);
            ui.line(format_args!("  {} {path}{foreign}", ui.paint(tone, mark)))?;
        }
        let more = files.changes_total.saturating_sub(PRINTED_MAX as u64);
        if more > 0 {
            ui.line(format_args!("  (and {more} more files)"))?;
        }
        note_skipped(ui, &files.skipped, files.skipped_total)?;
    }
    ui.line(summary(done))?;
    if let Some(kept) = done.files.as_ref().and_then(|files| files.kept_checkpoint.as_ref()) {
        ui.note(&format!(
            "Files were edited after a crash in the middle of the rewind. Checkpoint {kept} has them: \
             {} sessions rewind {} --to {kept} --files",
            ui.call, done.session_id
        ))?;
    }
    if !done.dry_run {
        ui.note(&format!("Undo it with: {} {undo} {}", ui.call, done.session_id))?;
    }
    Ok(Exit::Good)
}

/// Names what snapshots do not hold.
pub(super) fn note_skipped(ui: &mut Ui, skipped: &[SkippedPath], total: u64) -> Result<()> {
    if total == 0 {
        return Ok(());
    }
    let named = skipped.iter().take(SKIPPED_PRINTED_MAX).map(|skipped| {
        let why = match skipped.reason.as_str() {
            "too_large" => "too large",
            "nested_repository" => "a repository of its own",
            "not_a_file" => "not a file",
            _ => "not readable",
        };
        format!("{} ({why})", one_line(&skipped.path))
    });
    let named: Vec<String> = named.collect();
    let more = total.saturating_sub(named.len() as u64);
    let more = if more == 0 { String::new() } else { format!(", and {more} more") };
    ui.note(&format!("Not in snapshots, and left as it is: {}{more}", named.join(", ")))?;
    Ok(())
}

pub(crate) fn mark(change: &str) -> (Tone, &'static str) {
    match change {
        "added" => (Tone::Good, "+"),
        "removed" => (Tone::Bad, "-"),
        _ => (Tone::Attention, "~"),
    }
}

/// One sentence for each part.
pub(crate) fn summary(done: &RewindResult) -> String {
    let mut parts = Vec::new();
    if let Some(files) = &done.files {
        let count = files.changes_total;
        let noun = if count == 1 { "file" } else { "files" };
        let verb = match (done.dry_run, count) {
            (true, _) => "would be restored",
            (false, 1) => "is restored",
            (false, _) => "are restored",
        };
        parts.push(format!("{count} {noun} {verb}."));
    }
    if let Some(conversation) = &done.conversation {
        let verb = if done.dry_run { "would continue" } else { "continues" };
        let knows = match conversation.context.as_str() {
            "injected" => "the agent starts fresh and gets the history with the next prompt",
            "lost" => "the agent starts fresh and knows nothing of what was said",
            _ => "nothing was said before it",
        };
        parts.push(format!("The conversation {verb} at {}; {knows}.", done.checkpoint_id));
    }
    parts.join(" ")
}
