//! What a prompt can say.

use std::time::Duration;

/// One line of a prompt that does something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Directive {
    /// `say TEXT`
    Say(String),
    /// `think TEXT`
    Think(String),
    /// `pieces A|B|C`: one message in so many chunks.
    Pieces(Vec<String>),
    /// `stream N [MS]`: `chunk 1 `, `chunk 2 ` and so on, with a pause before each.
    Stream { count: u64, pause: Duration },
    /// `stream-now N [MS]`: the same, each chunk the moment at which it is said, in microseconds.
    StreamNow { count: u64, pause: Duration },
    /// `tool NAME`: a call that does nothing.
    Tool(String),
    /// `tool-now`: the same, named by the moment at which it is made, in microseconds.
    ToolNow,
    /// `shell COMMAND`: in a terminal of the client's, if it has any.
    Shell(String),
    /// `run COMMAND`: by itself.
    Run(String),
    /// `escape COMMAND`: in a session of its own, and never looked at again.
    Escape(String),
    /// `read PATH`: through the client.
    Read(String),
    /// `write PATH TEXT`: through the client.
    Write { path: String, text: String },
    /// `ask [QUESTION]`: for permission.
    Ask(String),
    /// `plan`
    Plan,
    /// `mode NAME`
    Mode(String),
    /// `wait MS`
    Wait(Duration),
    /// `crash`
    Crash,
    /// `exit CODE`
    Exit(i32),
    /// `hang`: for ever. From the beginning of its turn on the agent is deaf to cancellation and to
    /// the end of its input.
    Hang,
    /// `flood BYTES`: in many small chunks.
    Flood(u64),
    /// `huge BYTES`: in one.
    Huge(u64),
    /// `garbage`: what is no JSON, where only JSON belongs.
    Garbage,
    /// `raw LINE`: the line as it is.
    Raw(String),
    /// `stderr TEXT`
    Stderr(String),
    /// `ignore-term`: SIGTERM, from now on.
    IgnoreTerm,
    /// `close-stdin`
    CloseStdin,
    /// `remember KEY VALUE`
    Remember { key: String, value: String },
    /// `recall KEY`
    Recall(String),
    /// `recall`: how many earlier prompts it remembers.
    RecallPrompts,
    /// `forget`
    Forget,
    /// `id`: its own id of the session.
    Id,
}

impl Directive {
    /// `None`: an ordinary line.
    pub fn parse(line: &str) -> Option<Self> {
        let line = line.trim_end();
        let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
        let text = || Some(rest.to_owned()).filter(|rest| !rest.is_empty());
        let pair = || rest.split_once(' ').map(|(a, b)| (a.to_owned(), b.to_owned()));
        let alone = |directive| rest.is_empty().then_some(directive);
        let ms = |text: &str| text.parse().ok().map(Duration::from_millis);
        match name {
            "say" => text().map(Self::Say),
            "think" => text().map(Self::Think),
            "pieces" => {
                text().map(|text| Self::Pieces(text.split('|').map(str::to_owned).collect()))
            }
            "stream" | "stream-now" => {
                let (count, pause) = rest.split_once(' ').unwrap_or((rest, "0"));
                let (count, pause) = (count.parse().ok()?, ms(pause)?);
                Some(if name == "stream" {
                    Self::Stream { count, pause }
                } else {
                    Self::StreamNow { count, pause }
                })
            }
            "tool" => text().map(Self::Tool),
            "tool-now" => alone(Self::ToolNow),
            "shell" => text().map(Self::Shell),
            "run" => text().map(Self::Run),
            "escape" => text().map(Self::Escape),
            "read" => text().map(Self::Read),
            "write" => pair().map(|(path, text)| Self::Write { path, text }),
            "ask" => Some(Self::Ask(text().unwrap_or_else(|| "May I?".to_owned()))),
            "plan" => alone(Self::Plan),
            "mode" => text().map(Self::Mode),
            "wait" => ms(rest).map(Self::Wait),
            "crash" => alone(Self::Crash),
            "exit" => rest.parse().ok().map(Self::Exit),
            "hang" => alone(Self::Hang),
            "flood" => rest.parse().ok().map(Self::Flood),
            "huge" => rest.parse().ok().map(Self::Huge),
            "garbage" => alone(Self::Garbage),
            "raw" => text().map(Self::Raw),
            "stderr" => text().map(Self::Stderr),
            "ignore-term" => alone(Self::IgnoreTerm),
            "close-stdin" => alone(Self::CloseStdin),
            "remember" => pair().map(|(key, value)| Self::Remember { key, value }),
            "recall" => Some(text().map_or(Self::RecallPrompts, Self::Recall)),
            "forget" => alone(Self::Forget),
            "id" => alone(Self::Id),
            _ => None,
        }
    }
}

/// What to do with a prompt: directives, and lines to say as they are.
pub(super) fn steps(prompt: &str) -> Vec<Directive> {
    let lines: Vec<(&str, Option<Directive>)> =
        prompt.lines().map(|line| (line, Directive::parse(line))).collect();
    if lines.iter().all(|(_, directive)| directive.is_none()) {
        return vec![Directive::Pieces(prompt.split_inclusive(' ').map(str::to_owned).collect())];
    }
    let lines = lines.into_iter().filter(|(line, _)| !line.trim().is_empty());
    lines.map(|(line, step)| step.unwrap_or_else(|| Directive::Say(line.to_owned()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_without_directives_is_said_back_word_by_word() {
        let said: Vec<_> = ["hello ", "there\nyou"].map(str::to_owned).into();
        assert_eq!(steps("hello there\nyou"), [Directive::Pieces(said)]);
    }

    #[test]
    fn directives() {
        let stream = Directive::Stream { count: 3, pause: Duration::from_millis(5) };
        let prompt = "stream 3 5\n\nhello\nwrite a/b some text\nrecall\nwait x";
        let write = Directive::Write { path: "a/b".to_owned(), text: "some text".to_owned() };
        let say = |text: &str| Directive::Say(text.to_owned());
        let steps = steps(prompt);
        assert_eq!(steps, [stream, say("hello"), write, Directive::RecallPrompts, say("wait x")]);
        let now = Directive::StreamNow { count: 2, pause: Duration::ZERO };
        assert_eq!(Directive::parse("stream-now 2"), Some(now));
        assert_eq!(Directive::parse("crash now"), None);
        assert_eq!(Directive::parse("exit 3"), Some(Directive::Exit(3)));
    }
}
