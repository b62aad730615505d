//! Shell commands, as far as a rule must understand them.

use serde_json::Value;

/// Words that run another command.
const WRAPPERS: &[&str] =
    &["sudo", "env", "nohup", "time", "command", "exec", "builtin", "nice", "xargs", "then", "do"];
const SHELLS: &[&str] = &["sh", "bash", "dash", "zsh", "ksh", "fish"];

/// Whether a character can make two commands of one, or a command that is not the one that is
/// written: operators, substitutions, redirections, line ends. Quotes are not understood, so such a
/// character within quotes counts, too.
pub(super) fn is_operator(c: char) -> bool {
    c.is_control() && c != '\t' || matches!(c, '&' | ';' | '|' | '<' | '>' | '(' | ')' | '$' | '`')
}

/// Arguments that say a command: a text or a list of words; `commands` has a list of command lines.
const KEYS: [&str; 4] = ["command", "cmd", "script", "commands"];
/// Folders whose shells are taken for what their name says.
const SHELL_FOLDERS: [&str; 4] = ["/bin/", "/usr/bin/", "/usr/local/bin/", "/opt/homebrew/bin/"];

/// The command that arguments ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    /// The first that they say.
    pub(super) line: Option<String>,
    /// Those that differ from it.
    pub(super) others: Vec<String>,
    /// They say several that differ, or one that cannot be read.
    pub(super) is_ambiguous: bool,
}

/// The command line that arguments ask for. Which of several arguments a tool would run is not known.
pub(super) fn of_arguments(arguments: &Value) -> Asked {
    let is_said = |key: &&&str| arguments.get(**key).is_some_and(is_said);
    let lines: Vec<_> =
        KEYS.iter().filter(is_said).map(|key| of_argument(arguments, key)).collect();
    let line = lines.iter().flatten().next().cloned();
    let is_ambiguous = line.is_some() && lines.iter().any(|other| *other != line);
    let others = lines.into_iter().filter(|other| *other != line).flatten().collect();
    Asked { line, others, is_ambiguous }
}

fn is_said(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        _ => true,
    }
}

/// The command line that one of the arguments says, with the words that are beside it.
pub(super) fn of_argument(arguments: &Value, key: &str) -> Option<String> {
    if !KEYS.contains(&key) {
        return None;
    }
    let rest = match arguments.get("args").filter(|rest| is_said(rest)) {
        Some(rest) => words(rest)?,
        None => Vec::new(),
    };
    match arguments.get(key)? {
        lines if key == "commands" => {
            let lines = words(lines).filter(|lines| !lines.is_empty() && rest.is_empty())?;
            Some(lines.join("\n").trim().to_owned())
        }
        Value::String(text) if rest.is_empty() => Some(text.trim().to_owned()),
        Value::String(text) => Some(joined(&[vec![text.clone()], rest].concat())),
        list => {
            let list = [words(list)?, rest].concat();
            if let [shell, flag, script] = list.as_slice()
                && is_known_shell(shell)
                && is_script_flag(flag)
            {
                return Some(script.trim().to_owned());
            }
            (!list.is_empty()).then(|| joined(&list))
        }
    }
}

fn words(value: &Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(|word| word.as_str().map(str::to_owned)).collect()
}

/// A program of that name elsewhere may be anything.
fn is_known_shell(program: &str) -> bool {
    let name = base_name(program);
    let folder = &program[..program.len() - name.len()];
    SHELLS.contains(&name) && (folder.is_empty() || SHELL_FOLDERS.contains(&folder))
}

fn base_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

fn is_script_flag(flag: &str) -> bool {
    flag.starts_with('-') && !flag.starts_with("--") && flag.ends_with('c')
}

/// Words as one line that a shell would read as the same words.
fn joined(words: &[String]) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    let quoted = words.iter().map(|word| {
        if !word.is_empty() && word.chars().all(is_plain) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// The command and all commands that may be part of it: between operators, behind assignments and
/// behind words that run another command. A rule that forbids looks at each of them.
pub(super) fn parts(command: &str) -> Vec<String> {
    let mut parts = vec![command.trim().to_owned()];
    for part in command.split(is_operator) {
        let mut words: Vec<&str> = part.split_whitespace().map(unquoted).collect();
        loop {
            if !words.is_empty() {
                parts.push(words.join(" "));
            }
            let Some((first, rest)) = words.split_first() else { break };
            let is_shell = SHELLS.contains(&base_name(first))
                && rest.first().is_some_and(|flag| is_script_flag(flag));
            let is_wrapper = WRAPPERS.contains(&base_name(first));
            let is_assignment = first.split_once('=').is_some_and(|(name, _)| {
                !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            });
            if !(is_shell || is_wrapper || is_assignment) {
                // By its name, wherever it lies.
                if base_name(first) != *first {
                    parts.push([&[base_name(first)], rest].concat().join(" "));
                }
                break;
            }
            let flags = rest.iter().take_while(|word| word.starts_with('-')).count();
            words = rest[flags..].to_vec();
        }
    }
    parts
}

/// The words of a command that may be paths.
pub(super) fn path_words(command: &str) -> impl Iterator<Item = &str> {
    let ends = |c: char| c.is_whitespace() || is_operator(c) || matches!(c, '=' | '"' | '\'');
    command.split(ends).filter(|word| !word.is_empty())
}

fn unquoted(word: &str) -> &str {
    word.trim_matches(|c| matches!(c, '"' | '\''))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_command_is_a_text_or_a_list_of_words_or_several_lines() {
        for (arguments, command) in [
            (json!({"command": " git status "}), Some("git status")),
            (json!({"command": ["bash", "-lc", "a && b"]}), Some("a && b")),
            (json!({"command": ["git", "commit", "-m", "a b"]}), Some("git commit -m 'a b'")),
            (json!({"command": "git", "args": ["log", "; rm"]}), Some("git log '; rm'")),
            (json!({"cmd": "ls"}), Some("ls")),
            (json!({"command": ["git", 1]}), None),
            (json!({"command": []}), None),
            (json!({"commands": ["git status"]}), Some("git status")),
            (json!({"commands": ["a", "b c"]}), Some("a\nb c")),
            (json!({"commands": ["a"], "command": "a"}), Some("a")),
            (json!({"commands": [{"command": "a"}]}), None),
            (json!({"commands": []}), None),
            (json!({"path": "x"}), None),
            (json!({"command": ["/bin/sh", "-c", "a"]}), Some("a")),
            (json!({"command": ["./sh", "-c", "a"]}), Some("./sh -c a")),
            (json!({"command": null, "cmd": "a", "script": "a "}), Some("a")),
        ] {
            let line = command.map(str::to_owned);
            let asked = Asked { line, ..Asked::default() };
            assert_eq!(of_arguments(&arguments), asked, "{arguments}");
        }
    }

    #[test]
    fn several_commands_that_differ_are_ambiguous() {
        for arguments in [
            json!({"command": "git status", "script": "rm -rf ~"}),
            json!({"command": "git status", "cmd": ["rm", "x"]}),
            json!({"command": "git status", "commands": ["git status", "rm x"]}),
            json!({"command": "git status", "script": {"run": "rm x"}}),
            json!({"command": "git status", "cmd": ["rm", 1]}),
        ] {
            let Asked { line, is_ambiguous, .. } = of_arguments(&arguments);
            assert_eq!((line.as_deref(), is_ambiguous), (Some("git status"), true), "{arguments}");
        }
        // What words there are is not known.
        for arguments in [
            json!({"command": "git", "args": "push"}),
            json!({"command": "git", "args": [1]}),
            json!({"commands": ["git"], "args": ["push"]}),
        ] {
            assert_eq!(of_arguments(&arguments).line, None, "{arguments}");
        }
    }

    #[test]
    fn the_parts_of_a_command_are_found() {
        for command in [
            "rm -rf x",
            "cd y && rm -rf x",
            "echo $(rm -rf x)",
            "true\nrm -rf x",
            "A=1 sudo -n rm -rf x",
            "bash -c 'rm -rf x'",
            "/bin/rm -rf x",
            "find . | xargs rm -rf x",
        ] {
            assert!(parts(command).contains(&"rm -rf x".to_owned()), "{:?}", parts(command));
        }
        assert!(!parts("git commit -m rm").contains(&"rm".to_owned()));
    }
}
