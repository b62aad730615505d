//! `piton tokens …`: who may use the API.

use std::time::Duration;

use clap::Subcommand;
use piton_core::access::Scope;
use serde_json::{Value, json};

use crate::client::Client;
use crate::context::Context;
use crate::error::{Exit, Result};
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

/// Make a token for the API; it is shown once and kept nowhere
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct New {
    /// For people: whose it is
    name: String,
    /// What it may do: read, control, admin [default: read]
    #[arg(long = "scope", value_name = "SCOPE", value_parser = str::parse::<Scope>)]
    scopes: Vec<Scope>,
    /// How long it is good, such as 1h or 30d [default: for ever]
    #[arg(long, value_name = "SPAN", value_parser = times::parse_span)]
    expires_in: Option<Duration>,
}

/// List the tokens that are good
#[derive(Debug, clap::Args)]
#[command(
    after_help = "JSON: an object per line: access_token_id, name, scopes, created_at, expires_at."
)]
pub(crate) struct List {}

/// Take a token back
#[derive(Debug, clap::Args)]
#[command(after_help = "JSON: one object: access_token_id, revoked.")]
pub(crate) struct Revoke {
    /// Its id, as `piton tokens list` shows it
    id: String,
}

pub(crate) async fn run(ui: &mut Ui, cx: &Context, command: Command) -> Result<Exit> {
    let client = Client::must(&cx.settings.data.value)?;
    match command {
        Command::New(new) => make(ui, &client, new).await,
        Command::List(_) => list(ui, &client).await,
        Command::Revoke(revoke) => {
            let id: piton_core::id::AccessTokenId = revoke.id.parse()?;
            client.delete(&format!("/api/v1/access-tokens/{id}")).await?;
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
    let body = json!({
        "name": new.name,
        "scopes": scopes,
        "expires_in_s": new.expires_in.map(|span| span.as_secs()),
    });
    let made = client.post("/api/v1/access-tokens", &body).await?;
    if ui.json {
        ui.json_line(&made)?;
    } else {
        ui.line(made["token"].as_str().unwrap_or_default())?;
    }
    let names: Vec<&str> = scopes.iter().map(|scope| scope.as_str()).collect();
    ui.warn(&format!("This is shown once. Whoever has it may {}.", names.join(", ")))?;
    Ok(Exit::Good)
}

async fn list(ui: &mut Ui, client: &Client) -> Result<Exit> {
    let found = client.get("/api/v1/access-tokens").await?;
    let found = found["access"].as_array().cloned().unwrap_or_default();
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
        let text = |name: &str| access[name].as_str().unwrap_or("").to_owned();
        let scopes = access["scopes"].as_array().into_iter().flatten();
        let scopes: Vec<&str> = scopes.filter_map(Value::as_str).collect();
        table.row([
            (Tone::Title, text("access_token_id")),
            (Tone::Plain, text("name")),
            (Tone::Plain, scopes.join(", ")),
            (Tone::Quiet, text("expires_at")),
        ]);
    }
    table.print(ui)?;
    Ok(Exit::Good)
}
