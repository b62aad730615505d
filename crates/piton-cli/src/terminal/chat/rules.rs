//! A standing rule of Piton's own for requests like the open one: shown first, and written to the config
//! file when its key is pressed again.

use super::Chat;
use super::acting::Done;
use crate::config;
use crate::error::Error;
use crate::ui::Tone;

impl Chat<'_> {
    pub(super) fn rule_key(&mut self) {
        let Some(asking) = &self.asking else { return };
        let wait = asking.question.wait_id.clone();
        match self.rule_shown.take() {
            Some((of, rule)) if of == wait => self.write_rule(rule),
            _ => self.show_rule(wait),
        }
    }

    fn show_rule(&mut self, wait: String) {
        let Some(asking) = &self.asking else { return };
        let request = &asking.question.request;
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
            let text = "This request names no command, path or tool that a rule could match.";
            self.message = Some((Tone::Attention, text.to_owned()));
            return;
        }
        if let Some(folder) = &self.folder {
            lines.push(format!("folder = {}", quoted(&folder.display().to_string())));
        }
        let rule = lines.join("\n");
        let file = self.cx.settings.file.display();
        let text = format!(
            "This rule would allow the same request of any agent in this folder. Press r again to add it to {file}:\n{rule}"
        );
        self.conversation.note(Tone::Plain, text);
        self.rule_shown = Some((wait, rule));
    }

    fn write_rule(&mut self, rule: String) {
        let (file, client) = (self.cx.settings.file.clone(), self.client.clone());
        self.spawn(async move {
            if let Err(error) = config::append(&file, &rule) {
                return Done::Rule(Err(error));
            }
            let words =
                format!("The rule is in {} and counts from the next request on.", file.display());
            Done::Rule(client.reload().await.map(|_| words).map_err(Error::from))
        });
    }
}
