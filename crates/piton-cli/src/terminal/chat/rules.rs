//! A standing rule of Piton's own for requests like the open one: shown first, and written to the config
//! file by a key that no text has.

use std::path::Path;

use piton_api::client::Client;
use piton_core::permission::PermissionRequest;

use super::Chat;
use super::requests::Done;
use crate::config;
use crate::error::{Error, Result};
use crate::ui::Tone;

pub(crate) const NO_RULE: &str =
    "This request names no command, path or tool that a rule could match.";
pub(crate) const CONFIRM: &str = "ctrl-s adds the rule · any other key does not";

/// The rule that would allow the same request in a folder.
pub(crate) fn rule_for(request: &PermissionRequest, folder: Option<&Path>) -> Option<String> {
    let mut lines = vec!["[[permissions.rules]]".to_owned(), "action = \"allow\"".to_owned()];
    // TOML's strings have the escapes of JSON's.
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    if let Some(command) = &request.command {
        lines.push(format!("command = {}", quoted(command)));
    } else if let Some(path) = request.paths().first() {
        lines.push(format!("path = {}", quoted(path)));
    } else if let Some(tool) = &request.tool {
        lines.push(format!("tool = {}", quoted(tool)));
    } else {
        return None;
    }
    if let Some(folder) = folder {
        lines.push(format!("folder = {}", quoted(&folder.display().to_string())));
    }
    Some(lines.join("\n"))
}

/// Writes a rule, and has the server read it.
pub(crate) async fn write_rule(file: &Path, rule: &str, client: &Client) -> Result<String> {
    config::append(file, rule)?;
    client.reload().await.map_err(Error::from)?;
    Ok(format!("The rule is in {} and counts from the next request on.", file.display()))
}

impl Chat<'_> {
    pub(super) fn show_rule(&mut self) {
        let Some(asking) = &self.asking else { return };
        let Some(rule) = rule_for(&asking.question.request, self.folder.as_deref()) else {
            self.message = Some((Tone::Attention, NO_RULE.to_owned()));
            return;
        };
        let file = self.cx.settings.file.display();
        let text = format!(
            "This rule would allow the same request of any agent in this folder. Ctrl-S adds it to {file}; any other key does not:\n{rule}"
        );
        self.conversation.note(Tone::Plain, text);
        self.message = Some((Tone::Attention, CONFIRM.to_owned()));
        self.rule_shown = Some(rule);
    }

    pub(super) fn add_rule(&mut self, rule: String) {
        let (file, client) = (self.cx.settings.file.clone(), self.client.clone());
        self.message = None;
        self.spawn(async move { Done::Rule(write_rule(&file, &rule, &client).await) });
    }
}
