//! `piton sessions set`: chooses how the session's agent works.

use piton_api::agent_view::{AgentChoice, OptionValue};

use super::act;
use crate::backend;
use crate::context::Context;
use crate::error::{Error, Exit, Result};
use crate::ui::Ui;

const EXAMPLES: &str = "\
Examples:
  piton sessions set SESSION --mode plan
  piton sessions set SESSION --model large --option web=true
  piton sessions show SESSION          What the agent offers

JSON: one object: session_id, run_id (null), changed, last_seq, status.";

/// Set the mode, model or options of a session's agent
///
/// Applies to the running agent at once, and to every agent that the session starts later.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The session: its id, the beginning or end of it, or @last
    session: String,
    #[command(flatten)]
    choice: ChoiceArgs,
}

/// How an agent is to work.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct ChoiceArgs {
    /// The id of a mode
    #[arg(long, value_name = "MODE")]
    mode: Option<String>,
    /// The id of a model
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// A config option of the agent; `true` or `false` for a switch
    #[arg(long = "option", value_name = "ID=VALUE")]
    options: Vec<String>,
}

impl ChoiceArgs {
    /// The choice; `None` if nothing is chosen.
    pub(crate) fn choice(self) -> Result<Option<AgentChoice>> {
        let Self { mode, model, options } = self;
        let mut choice = AgentChoice { mode, model, ..AgentChoice::default() };
        for option in &options {
            let usage = || Error::usage(&format!("--option {option} is not ID=VALUE"));
            let (id, value) = option.split_once('=').ok_or_else(usage)?;
            let value = match value {
                "true" => OptionValue::Bool(true),
                "false" => OptionValue::Bool(false),
                text => OptionValue::Text(text.to_owned()),
            };
            choice.options.insert(id.to_owned(), value);
        }
        Ok(Some(choice).filter(|choice| *choice != AgentChoice::default()))
    }
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, args: Args) -> Result<Exit> {
    let nothing = || Error::usage("Name what to choose: --mode, --model or --option");
    let choice = args.choice.choice()?.ok_or_else(nothing)?;
    let (client, id) = backend::server_for(cx, &args.session).await?;
    act(ui, &client, &id, client.configure_agent(&id, &choice), "has the new choice").await
}
