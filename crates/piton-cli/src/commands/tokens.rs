//! `piton tokens …`: who may use the API.

use std::time::Duration;

use clap::Subcommand;
use piton_api::access::NewAccessToken;
use piton_api::client::Client;
use piton_core::access::Scope;
use serde_json::json;

use crate::context::Context;
use crate::error::{Exit, Result};
use crate::server;
use crate::table::{Column, Table};
use crate::times;
use crate::ui::{Tone, Ui};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    New(New),
    List(List),
    Revoke(Revoke),
}

const EXAMPLES: &str = "\
Examples:
  piton tokens new phone --scope read --scope control --expires-in 30d
  piton tokens new backup --scope admin

JSON: one object: access_token_id, token (the secret), expires_at.";

/// Create an access token for the API; it is shown once
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct New {
    /// A label: who uses it
    name: String,
    /// What the token allows: read, control, admin [default: read]
    #[arg(long = "scope", value_name = "SCOPE", value_parser = str::parse::<Scope>)]
    scopes: Vec<Scope>,
    /// How long the token is valid, such as 1h or 30d [default: for ever]
    #[arg(long, value_name = "SPAN", value_parser = times::parse_span)]
    expires_in: Option<Duration>,
}

/// List valid access tokens
#[derive(Debug, clap::Args)]
#[command(
    after_help = "JSON: an object per line: access_token_id, name, scopes, created_at, expires_at."
)]
pub(crate) struct List {}

/// Revoke an access token
#[derive(Debug, clap::Args)]
#[command(after_help = "JSON: one object: access_token_id, revoked.")]
pub(crate) struct Revoke {
    /// The token's id; `piton tokens list` shows them
    id: String,
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, command: Command) -> Result<Exit> {
    let client = server::required(&cx.settings.data.value)?;
    match command {
        Command::New(new) => make(ui, &client, new).await,
        Command::List(_) => list(ui, &client).await,
        Command::Revoke(revoke) => {
            let id: piton_core::id::AccessTokenId = revoke.id.parse()?;
            client.revoke_access_token(&id).await?;
            if ui.json {
                ui.json_line(&json!({"access_token_id": id, "revoked": true}))?;
            } else {
                ui.line(format_args!("{id} opens nothing any more."))?;
            }
            Ok(Exit::Good)
        }
    }
}

async fn make(ui: &mut Ui, client: &Client, new: New) -> Result<Exit> {
    let scopes = if new.scopes.is_empty() { vec![Scope::Read] } else { new.scopes };
    let made = client
        .create_access_token(&NewAccessToken {
            name: new.name,
            scopes: scopes.iter().copied().map(Into::into).collect(),
            expires_in_s: new.expires_in.map(|span| span.as_secs()),
        })
        .await?;
    if ui.json {
        ui.json_line(&made)?;
    } else {
        ui.line(made.token)?;
    }
    let names: Vec<&str> = scopes.iter().map(|scope| scope.as_str()).collect();
    ui.warn(&format!("This token is shown once. Anyone who has it may {}.", names.join(", ")))?;
    Ok(Exit::Good)
}

async fn list(ui: &mut Ui, client: &Client) -> Result<Exit> {
    let found = client.access_tokens().await?.access;
    if ui.json {
        for access in &found {
            ui.json_line(access)?;
        }
        return Ok(Exit::Good);
    }
    if found.is_empty() {
        ui.note("There are no tokens; the data folder's owner needs none.")?;
        return Ok(Exit::Good);
    }
    let columns =
        [Column::Whole("ID"), Column::Cut("NAME"), Column::Whole("MAY"), Column::Whole("UNTIL")];
    let mut table = Table::new(columns);
    for access in &found {
        let scopes: Vec<&str> = access.scopes.iter().map(piton_api::WireEnum::as_str).collect();
        table.row([
            (Tone::Title, access.access_token_id.to_string()),
            (Tone::Plain, access.name.clone()),
            (Tone::Plain, scopes.join(", ")),
            (Tone::Quiet, access.expires_at.map(|at| at.to_string()).unwrap_or_default()),
        ]);
    }
    table.print(ui)?;
    Ok(Exit::Good)
}
