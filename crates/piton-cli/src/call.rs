//! How this program was called: a command that a hint names must do what it says when it is pasted
//! into the same folder, so it names the same program, config file and data folder.

use std::fmt;
use std::path::Path;

use crate::config::{Origin, Settings};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call(String);

impl Default for Call {
    fn default() -> Self {
        Self("piton".to_owned())
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Call {
    pub(crate) fn of(settings: &Settings) -> Self {
        let file = &settings.file;
        let config = std::path::absolute(file).unwrap_or_else(|_| file.clone());
        let data = &settings.data;
        // What the config file says counts again when the same file is read.
        let data = match data.origin {
            Origin::Option { .. } | Origin::Environment { .. } => Some(data.value.as_path()),
            Origin::Default | Origin::File { .. } => None,
        };
        let config = settings.file_is_named.then_some(config.as_path());
        Self::new(&program(), config, data)
    }

    /// The same for another data folder, where no settings count.
    pub(crate) fn on(data: &Path) -> Self {
        Self::new(&program(), None, Some(data))
    }

    /// A program that is named by a path need not be found by its name.
    fn new(program: &str, config: Option<&Path>, data: Option<&Path>) -> Self {
        let program = if program.contains('/') { program } else { "piton" };
        let option =
            |name: &str, path: &Path| [name.to_owned(), quoted(&path.display().to_string())];
        let config = config.map(|path| option("--config", path));
        let data = data.map(|path| option("--data", path));
        let options = config.into_iter().chain(data).flatten();
        let words: Vec<String> = [quoted(program)].into_iter().chain(options).collect();
        Self(words.join(" "))
    }

    /// A text with its commands, which stand in backticks, as they can be called.
    pub(crate) fn spelled(&self, text: &str) -> String {
        text.replace("`piton ", &format!("`{self} "))
    }
}

fn program() -> String {
    let program = std::env::args_os().next().unwrap_or_default();
    program.to_string_lossy().into_owned()
}

/// As a shell reads it as one word.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(program: &str, config: Option<&str>, data: Option<&str>) -> String {
        Call::new(program, config.map(Path::new), data.map(Path::new)).to_string()
    }

    #[test]
    fn a_command_names_what_was_named() {
        assert_eq!(call("piton", None, None), "piton");
        assert_eq!(call("", None, None), Call::default().to_string());
        assert_eq!(call("target/debug/piton", None, None), "target/debug/piton");
        assert_eq!(call("piton", None, Some("/srv/d")), "piton --data /srv/d");
        assert_eq!(
            call("./piton", Some("/c.toml"), Some("/d")),
            "./piton --config /c.toml --data /d"
        );
    }

    #[test]
    fn what_a_shell_would_take_apart_is_quoted() {
        assert_eq!(call("piton", None, Some("/my data/$x")), "piton --data '/my data/$x'");
        assert_eq!(call("piton", None, Some("/it's")), r"piton --data '/it'\''s'");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("~/x"), "'~/x'");
    }

    #[test]
    fn commands_in_a_text_are_spelled_out() {
        let call = Call::new("./piton", None, Some(Path::new("/d")));
        let text = "`piton verify` shows it; Piton, `piton` and piton serve stay.";
        let spelled = "`./piton --data /d verify` shows it; Piton, `piton` and piton serve stay.";
        assert_eq!(call.spelled(text), spelled);
        assert_eq!(Call::default().spelled(text), text);
    }
}
