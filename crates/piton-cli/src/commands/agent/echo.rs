//! `piton agent echo`: an agent that does what its prompt says, without a model.

use piton_echo::{self as echo, Options, WORDS};

use crate::error::{Error, Exit, Result};

/// Speak the Agent Client Protocol on standard input and output, and do what the prompts say
///
/// It has no model: each line of a prompt is a directive, and what is none is said as it is.
#[derive(Debug, clap::Args)]
#[command(after_long_help = words())]
pub(crate) struct Args {
    /// How it behaves where no prompt can say it, such as `--memory FILE`
    #[arg(value_name = "OPTION", trailing_var_arg = true, allow_hyphen_values = true)]
    options: Vec<String>,
}

/// What a prompt can say.
fn words() -> String {
    let words = WORDS.iter().map(|word| format!("  {:<18}  {}", word.usage, word.what));
    let title = "What a line of a prompt can say:".to_owned();
    [title].into_iter().chain(words).collect::<Vec<_>>().join("\n")
}

pub(crate) async fn run(args: Args) -> Result<Exit> {
    let options = Options::parse(args.options).map_err(|e| Error::usage(&e.to_string()))?;
    echo::stdio(options).await?.exit()
}
