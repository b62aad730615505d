//! `piton agent echo [ARGS]`.

use super::{AuthAnswer, Options, Output, Print, Replay, Stage};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgsError {
    #[error("Unknown argument {name:?}")]
    Unknown { name: String },
    #[error("{name} needs a value")]
    Missing { name: String },
    #[error("{value:?} is no value for {name}")]
    Value { name: String, value: String },
}

impl Options {
    /// `--name value`, `--name=value`, and `crash_at=STAGE`.
    pub fn parse(args: impl IntoIterator<Item = String>) -> Result<Self, ArgsError> {
        let mut options = Self::default();
        let mut args = args.into_iter();
        while let Some(arg) = args.next() {
            let (name, given) = match arg.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None => (arg, None),
            };
            let mut value = || {
                let missing = || ArgsError::Missing { name: name.clone() };
                given.clone().or_else(|| args.next()).ok_or_else(missing)
            };
            let wrong = |value: String| ArgsError::Value { name: name.clone(), value };
            match name.as_str() {
                "--memory" => options.memory = Some(value()?.into()),
                "--script" => options.script = Some(value()?.into()),
                "--protocol" => {
                    let text = value()?;
                    options.protocol = Some(text.parse().map_err(|_| wrong(text))?);
                }
                "--crash-at" | "crash_at" => {
                    let text = value()?;
                    options.crash_at = Some(stage(&text).ok_or_else(|| wrong(text))?);
                }
                "--replay" => {
                    options.replay = match given.as_deref() {
                        None | Some("before") => Replay::Before,
                        Some("after") => Replay::After,
                        Some("none") => Replay::None,
                        Some(other) => return Err(wrong(other.to_owned())),
                    };
                }
                "--refuse-session" => options.refuse_session = true,
                "--no-load" => options.no_load = true,
                "--no-resume" => options.no_resume = true,
                "--no-message-ids" => options.no_message_ids = true,
                "--no-answer" => options.no_answer = true,
                "--no-fork" => options.no_fork = true,
                "--auth" => options.auth = Some(value()?),
                "--auth-answer" => {
                    let text = value()?;
                    options.auth_answer = match text.as_str() {
                        "accept" => AuthAnswer::Accept,
                        "refuse" => AuthAnswer::Refuse,
                        "never" => AuthAnswer::Never,
                        _ => return Err(wrong(text)),
                    };
                }
                "--exit-at-once" => options.exit_at_once = true,
                "--print" | "-p" => {
                    options.print.get_or_insert_default();
                }
                "--output" => {
                    let text = value()?;
                    print(&mut options).output = match text.as_str() {
                        "text" => Output::Text,
                        "stream-json" => Output::StreamJson,
                        _ => return Err(wrong(text)),
                    };
                }
                "--resume" => print(&mut options).resume = Some(value()?),
                "--resume-session-at" => print(&mut options).resume_at = Some(value()?),
                "--fork-session" => print(&mut options).fork = true,
                "--session-id" => print(&mut options).session_id = Some(value()?),
                "--prompt" => print(&mut options).prompt = Some(value()?),
                _ => return Err(ArgsError::Unknown { name }),
            }
        }
        Ok(options)
    }
}

/// These have a meaning there alone.
fn print(options: &mut Options) -> &mut Print {
    options.print.get_or_insert_default()
}

fn stage(text: &str) -> Option<Stage> {
    Some(match text {
        "initialize" => Stage::Initialize,
        "new" => Stage::New,
        "load" => Stage::Load,
        "prompt" => Stage::Prompt,
        "tool" => Stage::Tool,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &str) -> Result<Options, ArgsError> {
        Options::parse(args.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn arguments() {
        let options = Options {
            memory: Some("m.json".into()),
            protocol: Some(2),
            crash_at: Some(Stage::Tool),
            replay: Replay::After,
            no_load: true,
            ..Options::default()
        };
        let given = "--memory m.json --protocol=2 crash_at=tool --replay=after --no-load";
        assert_eq!(parse(given), Ok(options));
        assert_eq!(parse(""), Ok(Options::default()));
        let print = Print {
            output: Output::StreamJson,
            resume: Some("s1".to_owned()),
            resume_at: Some("m1".to_owned()),
            ..Print::default()
        };
        let printed = Options { print: Some(print), ..Options::default() };
        let given = "--print --output stream-json --resume s1 --resume-session-at m1";
        assert_eq!(parse(given), Ok(printed));
        assert_eq!(parse("--memory"), Err(ArgsError::Missing { name: "--memory".to_owned() }));
        assert_eq!(parse("--what"), Err(ArgsError::Unknown { name: "--what".to_owned() }));
        let wrong = ArgsError::Value { name: "--protocol".to_owned(), value: "x".to_owned() };
        assert_eq!(parse("--protocol x"), Err(wrong));
    }
}
