//! What the server costs: a request that appends, events to many readers at once, a replay to all of
//! them after a restart, how lists and starts grow, and an agent that comes back. `cargo bench -p piton-cli --bench server`

#![expect(clippy::print_stdout, reason = "the table is what this program is for")]

mod many;
mod posts;
mod prompts;
mod readers;
mod resumes;
mod rig;
mod sizes;
#[expect(dead_code, reason = "the log's benchmarks need all of it")]
#[path = "../../../piton-testkit/benches/log/table.rs"]
mod table;

use self::table::Table;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(at) = arguments.iter().position(|argument| argument == "--read") {
        return readers::read(&arguments[at + 1..]);
    }
    let only = arguments.iter().position(|argument| argument == "--only");
    let only = only.and_then(|at| arguments.get(at + 1));
    let wanted = |name: char| only.is_none_or(|only| only.contains(name));
    let mut table = Table::default();
    if wanted('l') {
        posts::measure(&mut table)?;
    }
    if wanted('m') {
        readers::publish(&mut table)?;
    }
    if wanted('n') {
        readers::replay(&mut table)?;
    }
    if wanted('o') {
        sizes::measure(&mut table)?;
    }
    if wanted('p') {
        resumes::measure(&mut table)?;
    }
    if wanted('r') {
        prompts::measure(&mut table)?;
    }
    println!("{table}");
    Ok(())
}
