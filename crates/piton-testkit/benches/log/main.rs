//! What the log costs, each figure beside what the same disk and processor do without it, measured
//! in turns in one run. `cargo bench -p piton-testkit --bench log -- [--full] [--only a,b,c,d,e,f,g,j,k]`

#![expect(clippy::print_stdout, reason = "the table is what this program is for")]

mod agents;
mod append;
mod files;
mod recovery;
mod rig;
mod store_size;
mod table;
mod tails;
mod verify;

use self::rig::{Result, Rig};
use self::table::Table;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    // A measurement that needs a process of its own runs this program again.
    if let Some(at) = args.iter().position(|arg| arg == "--child") {
        return child(args.get(at + 1..).unwrap_or_default());
    }
    let full = args.iter().any(|arg| arg == "--full");
    let only = args.iter().position(|arg| arg == "--only").and_then(|at| args.get(at + 1));
    let wanted = |name: &str| only.is_none_or(|only| only.split(',').any(|one| one == name));

    let rig = Rig::new()?;
    println!("{}\n", rig.machine()?);
    let mut table = Table::default();
    if wanted("a") {
        append::one_writer(&rig, &mut table)?;
    }
    if wanted("b") {
        append::many_writers(&rig, &mut table)?;
    }
    if wanted("c") {
        recovery::after_a_kill(&rig, &mut table)?;
    }
    if wanted("d") {
        store_size::measure(&rig, full, &mut table)?;
    }
    if wanted("e") {
        tails::fan_out(&rig, &mut table)?;
        tails::reconnect(&rig, &mut table)?;
    }
    if wanted("f") {
        files::one_writer(&rig, &mut table)?;
    }
    if wanted("g") {
        verify::measure(&rig, &mut table)?;
    }
    if wanted("j") {
        agents::messages(&rig, &mut table)?;
        agents::text(&rig, &mut table)?;
    }
    if wanted("k") {
        agents::many(&rig, &mut table)?;
    }
    println!("{table}");
    Ok(())
}

fn child(args: &[String]) -> Result<()> {
    match args {
        [mode, folder] if mode == "crash" => recovery::build_and_wait(folder.as_ref()),
        [mode, folder] if mode == "open" => store_size::open_and_report(folder.as_ref()),
        _ => Err(format!("no such child: {args:?}").into()),
    }
}
