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

/// The command line that arguments ask for: a text, or a list of words. Several command lines are one line
/// each.
pub(super) fn of_arguments(arguments: &Value) -> Option<String> {
    let words = |value: &Value| -> Option<Vec<String>> {
        value.as_array()?.iter().map(|word| word.as_str().map(str::to_owned)).collect()
    };
    let command = ["command", "cmd", "script"].iter().find_map(|key| arguments.get(key));
    let Some(command) = command else {
        let lines = words(arguments.get("commands")?).filter(|lines| !lines.is_empty())?;
        return Some(lines.join("\n").trim().to_owned());
    };
    let rest = arguments.get("args").and_then(words).unwrap_or_default();
    match command {
        Value::String(text) if rest.is_empty() => Some(text.trim().to_owned()),
        Value::String(text) => Some(joined(&[vec![text.clone()], rest].concat())),
        list => {
            let list = [words(list)?, rest].concat();
            if let [shell, flag, script] = list.as_slice()
                && SHELLS.contains(&base_name(shell))
                && is_script_flag(flag)
            {
                return Some(script.trim().to_owned());
            }
            (!list.is_empty()).then(|| joined(&list))
        }
    }
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
pub(super) fn words(command: &str) -> impl Iterator<Item = &str> {
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
        ] {
            assert_eq!(of_arguments(&arguments).as_deref(), command, "{arguments}");
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
