//! The built-in agent as a program of its own, for tests that need a real process.

use piton_echo::{self as echo, Options};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::parse(std::env::args().skip(1))?;
    echo::stdio(options).await?.exit()
}
