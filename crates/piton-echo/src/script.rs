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
    /// `ask-run COMMAND`: for permission to run it, and then runs it.
    AskRun(String),
    /// `ask-write PATH TEXT`: for permission to write a file, and then writes it; `\n` in the text is
    /// the end of a line.
    AskWrite { path: String, text: String },
    /// `plan`
    Plan,
    /// `mode NAME`
    Mode(String),
    /// `commands`: which slash commands it has.
    Commands,
    /// `usage TOKENS`: how much of its context window is used.
    Usage(u64),
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
    /// `on-term REASON MS`: on SIGTERM the turn ends with this stop reason, and the agent exits with
    /// 143 so much later. From the beginning of its turn on it is deaf as with `hang`.
    OnTerm { stop_reason: &'static str, delay: Duration },
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

/// A word that begins a directive.
#[derive(Clone, Copy, Debug)]
pub struct Word {
    /// With what follows it: `say TEXT`.
    pub usage: &'static str,
    pub what: &'static str,
    /// Reads what follows it; `None` if that does not fit.
    read: fn(&str) -> Option<Directive>,
}

const fn word(
    usage: &'static str,
    what: &'static str,
    read: fn(&str) -> Option<Directive>,
) -> Word {
    Word { usage, what, read }
}

/// Everything that a prompt can say.
pub const WORDS: &[Word] = &[
    word("say TEXT", "Say it", |rest| text(rest).map(Directive::Say)),
    word("think TEXT", "Think it: said, but not as the answer", |rest| {
        text(rest).map(Directive::Think)
    }),
    word("pieces A|B|C", "Say it as one message in so many chunks", |rest| {
        Some(Directive::Pieces(text(rest)?.split('|').map(str::to_owned).collect()))
    }),
    word("stream N [MS]", "Say N chunks, with a pause before each", |rest| {
        times(rest).map(|(count, pause)| Directive::Stream { count, pause })
    }),
    word("stream-now N [MS]", "The same; each chunk is its moment in microseconds", |rest| {
        times(rest).map(|(count, pause)| Directive::StreamNow { count, pause })
    }),
    word("tool NAME", "Call a tool that does nothing", |rest| text(rest).map(Directive::Tool)),
    word("tool-now", "The same; its name is its moment in microseconds", |rest| {
        alone(rest, Directive::ToolNow)
    }),
    word("shell COMMAND", "Run it in a terminal of the client's", |rest| {
        text(rest).map(Directive::Shell)
    }),
    word("run COMMAND", "Run it by itself", |rest| text(rest).map(Directive::Run)),
    word("escape COMMAND", "Run it in a session of its own, and never look at it again", |rest| {
        text(rest).map(Directive::Escape)
    }),
    word("read PATH", "Read a file through the client", |rest| text(rest).map(Directive::Read)),
    word("write PATH TEXT", "Write a file through the client", |rest| {
        pair(rest).map(|(path, text)| Directive::Write { path, text })
    }),
    word("ask [QUESTION]", "Ask for permission", |rest| {
        Some(Directive::Ask(text(rest).unwrap_or_else(|| "May I?".to_owned())))
    }),
    word("ask-run COMMAND", "Ask for permission to run it, and run it", |rest| {
        text(rest).map(Directive::AskRun)
    }),
    word("ask-write PATH TEXT", "Ask for permission to write a file, and write it", |rest| {
        let lines = |text: String| text.replace("\\n", "\n");
        pair(rest).map(|(path, text)| Directive::AskWrite { path, text: lines(text) })
    }),
    word("plan", "Show a plan", |rest| alone(rest, Directive::Plan)),
    word("mode NAME", "Change to a mode", |rest| text(rest).map(Directive::Mode)),
    word("commands", "Name slash commands", |rest| alone(rest, Directive::Commands)),
    word("usage TOKENS", "Say how much of the context is used", |rest| {
        rest.parse().ok().map(Directive::Usage)
    }),
    word("wait MS", "Wait so many milliseconds", |rest| ms(rest).map(Directive::Wait)),
    word("crash", "Abort", |rest| alone(rest, Directive::Crash)),
    word("exit CODE", "Exit with it", |rest| rest.parse().ok().map(Directive::Exit)),
    word("hang", "Do nothing for ever, ignore all messages", |rest| alone(rest, Directive::Hang)),
    word("flood BYTES", "Say so much in many small chunks", |rest| {
        rest.parse().ok().map(Directive::Flood)
    }),
    word("huge BYTES", "Say so much in one chunk", |rest| rest.parse().ok().map(Directive::Huge)),
    word("garbage", "Write what is no JSON, where only JSON belongs", |rest| {
        alone(rest, Directive::Garbage)
    }),
    word("raw LINE", "Write the line as it is", |rest| text(rest).map(Directive::Raw)),
    word("stderr TEXT", "Write it to stderr", |rest| text(rest).map(Directive::Stderr)),
    word("ignore-term", "Ignore SIGTERM from now on", |rest| alone(rest, Directive::IgnoreTerm)),
    word("on-term REASON MS", "On SIGTERM end the turn with this reason, and exit later", |rest| {
        let (reason, delay) = rest.split_once(' ')?;
        let stop_reason = ["cancelled", "end_turn"].into_iter().find(|known| *known == reason)?;
        Some(Directive::OnTerm { stop_reason, delay: ms(delay)? })
    }),
    word("close-stdin", "Close its input", |rest| alone(rest, Directive::CloseStdin)),
    word("remember KEY VALUE", "Remember it", |rest| {
        pair(rest).map(|(key, value)| Directive::Remember { key, value })
    }),
    word("recall [KEY]", "Say what it remembers; how many earlier prompts, if no key", |rest| {
        Some(text(rest).map_or(Directive::RecallPrompts, Directive::Recall))
    }),
    word("forget", "Forget everything", |rest| alone(rest, Directive::Forget)),
    word("id", "Say its own id of the session", |rest| alone(rest, Directive::Id)),
];

fn text(rest: &str) -> Option<String> {
    Some(rest.to_owned()).filter(|rest| !rest.is_empty())
}

fn pair(rest: &str) -> Option<(String, String)> {
    rest.split_once(' ').map(|(a, b)| (a.to_owned(), b.to_owned()))
}

fn alone(rest: &str, directive: Directive) -> Option<Directive> {
    rest.is_empty().then_some(directive)
}

fn ms(text: &str) -> Option<Duration> {
    text.parse().ok().map(Duration::from_millis)
}

/// How often, and with which pause.
fn times(rest: &str) -> Option<(u64, Duration)> {
    let (count, pause) = rest.split_once(' ').unwrap_or((rest, "0"));
    Some((count.parse().ok()?, ms(pause)?))
}

impl Word {
    fn name(&self) -> &'static str {
        self.usage.split_once(' ').map_or(self.usage, |(name, _)| name)
    }
}

impl Directive {
    /// `None`: an ordinary line.
    pub fn parse(line: &str) -> Option<Self> {
        let line = line.trim_end();
        let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
        let word = WORDS.iter().find(|word| word.name() == name)?;
        (word.read)(rest)
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

    #[test]
    fn every_word_is_read_as_its_usage_says() {
        for word in WORDS {
            let number = |part: &str| matches!(part, "N" | "MS" | "CODE" | "BYTES" | "TOKENS");
            let part = |part: &str| {
                let part = part.trim_matches(['[', ']']).to_owned();
                match part.as_str() {
                    "REASON" => "cancelled".to_owned(),
                    name if number(name) => "7".to_owned(),
                    _ => part,
                }
            };
            let line: Vec<String> = word.usage.split(' ').map(part).collect();
            assert!(Directive::parse(&line.join(" ")).is_some(), "{}", word.usage);
            let is_it = |other: &&Word| other.name() == word.name();
            assert_eq!(WORDS.iter().filter(is_it).count(), 1, "{}", word.usage);
        }
    }
}
