use piton_agent::acp::Hello;
use piton_agent::profiles;
use piton_core::Code;
use piton_core::spool::{AgentInfo, AuthMethod, SessionCapabilities};

use super::*;
use crate::findings::Level;

fn heard() -> Heard {
    let agent = AgentInfo { name: "an agent".to_owned(), version: Some("1.2".to_owned()) };
    let capabilities =
        SessionCapabilities { load: true, resume: true, ..SessionCapabilities::default() };
    let hello = Hello { agent: Some(agent), capabilities, auth_methods: Vec::new() };
    Heard { hello, after: Duration::from_millis(7) }
}

/// An agent that is well.
fn well() -> Facts {
    Facts {
        program: ProgramFact::There("/bin/agent".into()),
        node: Some("v22.0.0".to_owned()),
        home: HomeFact::Good("/ada".into()),
        retention: RetentionFact::Set(false),
        answer: Some(Ok(heard())),
    }
}

fn failure(code: Code, wants_login: bool) -> Failure {
    let (message, last_words) = ("It failed".to_owned(), "a key is missing".to_owned());
    Failure { code, message, last_words, wants_login }
}

/// What is not well about an agent, as `check level`.
fn ill(id: &str, change: impl FnOnce(&mut Facts)) -> Vec<String> {
    let mut facts = well();
    change(&mut facts);
    let findings = judge(&profiles::find(id).unwrap(), &facts);
    for finding in &findings {
        let quiet = finding.level == Level::Ok;
        assert_eq!(finding.hint.is_none(), quiet, "what is not well says what to do: {finding:?}");
    }
    let ill = findings.iter().filter(|finding| finding.level != Level::Ok);
    ill.map(|finding| format!("{} {:?}", finding.check, finding.level).to_lowercase()).collect()
}

#[test]
fn an_agent_that_is_well_has_no_problem() {
    let findings = judge(&profiles::find("claude-code").unwrap(), &well());
    let said: Vec<_> = findings.iter().map(|found| (found.check, found.says.as_str())).collect();
    assert_eq!(
        said,
        [
            ("program", "/bin/agent"),
            ("node", "v22.0.0"),
            ("home", "/ada"),
            ("answer", "an agent 1.2; offers load, resume"),
            ("login", "it names no way to log in"),
        ]
    );
    assert!(findings::are_good(&findings));
}

#[test]
fn the_program_must_be_there_and_may_be_run() {
    let program = |fact: ProgramFact| {
        ill("codex", |facts| {
            facts.program = fact;
            facts.answer = None;
        })
    };
    assert_eq!(program(ProgramFact::Missing), ["program problem"]);
    assert_eq!(program(ProgramFact::NotExecutable("/bin/x".into())), ["program problem"]);
    let codex = profiles::find("codex").unwrap();
    let missing = judge_program(&codex, &ProgramFact::Missing);
    assert_eq!(missing.says, "codex-acp is not found");
    assert_eq!(missing.hint, Some(codex.install));
    let own = Profile::configured("mine", vec!["x".to_owned()]);
    let hint = judge_program(&own, &ProgramFact::Missing).hint.unwrap();
    assert!(hint.contains("agents.mine.command"), "{hint}");
}

#[test]
fn node_must_be_new_enough_for_those_who_need_it() {
    let node =
        |id: &str, version: Option<&str>| ill(id, |facts| facts.node = version.map(str::to_owned));
    assert_eq!(node("claude-code", Some("v21.9.9")), ["node problem"]);
    assert!(node("claude-code", Some("v100.1.0")).is_empty(), "numbers, not letters");
    assert_eq!(node("claude-code", None), ["node problem"]);
    assert_eq!(node("claude-code", Some("nonsense")), ["node warning"]);
    assert!(node("opencode", None).is_empty(), "it needs none");
}

#[test]
fn the_home_folder_must_be_there() {
    let home = |fact: HomeFact| ill("codex", |facts| facts.home = fact);
    assert_eq!(home(HomeFact::Unset), ["home problem"]);
    assert_eq!(home(HomeFact::Missing("/x".into())), ["home problem"]);
    assert_eq!(home(HomeFact::ReadOnly("/x".into())), ["home problem"]);
}

#[test]
fn it_must_answer_and_says_how_to_log_in() {
    let answer = |answer| ill("codex", |facts| facts.answer = Some(Err(answer)));
    assert_eq!(answer(failure(Code::AgentTimeout, false)), ["answer problem"]);
    assert_eq!(answer(failure(Code::AgentAuthRequired, true)), ["login problem"]);
    let found =
        judge_silence(&profiles::find("codex").unwrap(), &failure(Code::AgentClosed, false));
    assert_eq!(found.says, "It failed. It wrote: a key is missing");
    assert_eq!(found.hint.unwrap(), "Start it by hand to see what is wrong: codex-acp");
    let mut heard = heard();
    let (id, name) = ("key".to_owned(), "An API key".to_owned());
    heard.hello.auth_methods = vec![AuthMethod { id, name, description: None }];
    assert_eq!(judge_login(&heard).says, "if it wants one: key (An API key)");
}

/// A one-shot agent has no process to ask.
#[test]
fn what_does_not_speak_the_protocol_is_not_asked() {
    let facts = Facts { answer: None, ..well() };
    let findings = judge(&profiles::find("amp").unwrap(), &facts);
    let checks: Vec<_> = findings.iter().map(|finding| finding.check).collect();
    assert_eq!(checks, ["program", "home", "answer"]);
    assert!(findings::are_good(&findings));
}

#[test]
fn gemini_is_to_keep_its_conversations() {
    let found = |fact| ill("gemini", |facts| facts.retention = fact);
    assert_eq!(found(RetentionFact::Set(false)), [""; 0]);
    assert_eq!(found(RetentionFact::Set(true)), ["retention warning"]);
    assert_eq!(found(RetentionFact::Unset), ["retention warning"]);
    assert_eq!(found(RetentionFact::Unreadable("x".to_owned())), ["retention warning"]);
    assert_eq!(ill("codex", |facts| facts.retention = RetentionFact::Unset), [""; 0]);
}

#[test]
fn the_setting_is_read_from_the_agents_own_settings() {
    let setting = profiles::find("gemini").unwrap().quirks.retention.unwrap();
    let home = tempfile::tempdir().unwrap();
    let read = || read_retention(&setting, home.path());
    assert_eq!(read(), RetentionFact::Unset);
    std::fs::create_dir(home.path().join(".gemini")).unwrap();
    let write = |text: &str| std::fs::write(home.path().join(setting.file), text).unwrap();
    write(r#"{"general": {"sessionRetention": {"enabled": false}}}"#);
    assert_eq!(read(), RetentionFact::Set(false));
    write(r#"{"general": {}}"#);
    assert_eq!(read(), RetentionFact::Unset);
    write("{");
    assert!(matches!(read(), RetentionFact::Unreadable(_)));
}
