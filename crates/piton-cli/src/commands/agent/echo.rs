//! `piton agent echo`: an agent that does what its prompt says, without a model.

use piton_agent::echo::{self, Options};

use crate::error::{Error, Exit, Result};

/// Speak the Agent Client Protocol on standard input and output, and do what the prompts say
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How it behaves where no prompt can say it, such as `--memory FILE`
    #[arg(value_name = "OPTION", trailing_var_arg = true, allow_hyphen_values = true)]
    options: Vec<String>,
}

pub(crate) async fn run(args: Args) -> Result<Exit> {
    let options = Options::parse(args.options).map_err(|e| Error::usage(&e.to_string()))?;
    echo::stdio(options).await?.exit()
}
