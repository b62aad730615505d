//! `piton sessions artifacts`: the files that a graph's nodes left.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use piton_core::Code;
use piton_graph::checkpoints::{self, ArtifactSummary};
use serde_json::json;

use crate::context::Context;
use crate::error::{Error, Exit, Result};
use crate::ui::{Tone, Ui};

const EXAMPLES: &str = "\
Examples:
  piton sessions artifacts SESSION
  piton sessions artifacts SESSION --node publish --export out/

A file of the same name that is in the folder already is not replaced without --force.

JSON: one object per line: name, node, bytes, is_masked, seq; with --export also file.";

/// List or export the files that a graph's nodes left
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The session: its id, the beginning or end of it, or @last
    session: String,
    /// Only the files of this node, or of the nodes in its subgraph
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    /// Write the files to this folder
    #[arg(long, value_name = "DIR")]
    export: Option<PathBuf>,
    /// Replace existing files
    #[arg(long, requires = "export")]
    force: bool,
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    let (view, id) = cx.view_of(&args.session).await?;
    let store = view.store();
    let listed = checkpoints::artifacts(store, &id, None, args.node.as_deref()).await?;
    if let Some(folder) = &args.export {
        std::fs::create_dir_all(folder).map_err(|error| io(folder, &error))?;
    }
    for one in &listed {
        let Some(folder) = &args.export else {
            print(ui, one)?;
            continue;
        };
        let bytes = checkpoints::artifact(store, &id, &one.name).await?;
        // Its name is a file's name and nothing else: it was checked when it was kept.
        let path = folder.join(&one.name);
        write(&path, &bytes, args.force)?;
        if ui.json {
            let mut line = serde_json::to_value(one).unwrap_or_default();
            line["file"] = json!(path);
            ui.json_line(&line)?;
        } else {
            ui.line(format_args!("{}", path.display()))?;
        }
    }
    if listed.is_empty() && !ui.json {
        ui.note("The session has no artifacts.")?;
    }
    Ok(Exit::Good)
}

fn print(ui: &mut Ui, one: &ArtifactSummary) -> Result<()> {
    if ui.json {
        return ui.json_line(one);
    }
    let masked = if one.is_masked { "  masked in parts" } else { "" };
    let about = format!("{:>12} bytes  {}{masked}", one.bytes, one.node);
    ui.line(format_args!("{:<32}{}", one.name, ui.paint(Tone::Quiet, &about)))
}

fn write(path: &Path, bytes: &[u8], force: bool) -> Result<()> {
    let mut options = OpenOptions::new();
    options.write(true);
    if force {
        options.create(true).truncate(true)
    } else {
        options.create_new(true)
    };
    let written = options.open(path).and_then(|mut file| file.write_all(bytes));
    written.map_err(|error| io(path, &error))
}

fn io(path: &Path, error: &std::io::Error) -> Error {
    if error.kind() == std::io::ErrorKind::AlreadyExists {
        let message = format!("{} exists", path.display());
        return Error::new(Code::FileExists, message).with_hint("Pass --force to replace it.");
    }
    Error::new(Code::FileIo, format!("{} cannot be written", path.display())).because(error)
}
