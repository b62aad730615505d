//! Standing rules: which permission requests are answered without asking, and how.
//!
//! `deny` counts before `ask`, `ask` before `allow`, whatever their order in the settings; what no
//! rule matches is asked. A rule that forbids or asks matches generously, a rule that allows matches
//! only what it can see whole.

use serde::{Deserialize, Serialize};

use super::PermissionRequest;
use super::command;
use super::glob::{matches, matches_path, normal_path};

/// Rules in one set.
const RULES_MAX: usize = 256;
/// A pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 1024;
/// Longer commands are never allowed by a rule.
const COMMAND_BYTES_MAX: usize = 8 * 1024;
const ALLOW_ONCE: &str = "allow_once";
const REJECT_ONCE: &str = "reject_once";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    Allow,
    Ask,
    Deny,
}

impl Action {
    pub const ALL: [Self; 3] = [Self::Allow, Self::Ask, Self::Deny];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

/// One rule. What it does not name may be anything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// What it is called in records; without a name by its number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub action: Action,
    /// A pattern of the tool's name or kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// A pattern of the whole command. Of an `allow`, `*` and `?` never stand for what could make
    /// another command of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// A pattern of paths; a relative one counts from the session's folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// A pattern of the agent's profile id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// A pattern of the session's folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
}

/// Why a rule cannot be one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRule {
    #[error("there are more than {RULES_MAX} permission rules")]
    TooMany,
    #[error("permission rule {number} names neither tool, command nor path")]
    Boundless { number: usize },
    #[error(
        "the {field} of permission rule {number} is empty or longer than {PATTERN_BYTES_MAX} bytes"
    )]
    Pattern { number: usize, field: &'static str },
    #[error("the folder of permission rule {number} is not an absolute path")]
    Folder { number: usize },
}

/// Rules that were checked, in the order of the settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules(Vec<Rule>);

/// What a rule is about: a request, and whose it is.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    pub request: &'a PermissionRequest,
    pub agent: Option<&'a str>,
    /// The session's folder.
    pub folder: Option<&'a str>,
}

/// Why a request is asked though a rule would allow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AskReason {
    /// A part of the request is missing.
    Truncated,
    /// The command, or where a path lies, cannot be told for sure.
    Unreadable,
    /// The command consists of several, or of more than its words.
    Compound,
    /// The agent offers no option that counts once.
    NoOption,
}

impl AskReason {
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Truncated => "a part of the request is missing",
            Self::Unreadable => "the command or a path of the request cannot be told for sure",
            Self::Compound => {
                "the command contains operators, substitutions or redirections that the rule does \
                 not spell out"
            }
            Self::NoOption => "the agent offers no option that counts once",
        }
    }
}

/// What the rules say of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleDecision {
    pub action: Action,
    /// Which rule decided, counted from 1; `None`: none matches.
    pub number: Option<usize>,
    /// Why this rule did not allow it.
    pub unsure: Option<AskReason>,
    /// The option that answers the request; `None`: it is asked.
    pub option_id: Option<String>,
}

impl Rules {
    pub fn new(rules: Vec<Rule>) -> Result<Self, InvalidRule> {
        if rules.len() > RULES_MAX {
            return Err(InvalidRule::TooMany);
        }
        for (at, rule) in rules.iter().enumerate() {
            let number = at + 1;
            if rule.tool.is_none() && rule.command.is_none() && rule.path.is_none() {
                return Err(InvalidRule::Boundless { number });
            }
            let fields = [
                ("name", &rule.name),
                ("tool", &rule.tool),
                ("command", &rule.command),
                ("path", &rule.path),
                ("agent", &rule.agent),
                ("folder", &rule.folder),
            ];
            for (field, value) in fields {
                let is_wrong = |text: &String| text.is_empty() || text.len() > PATTERN_BYTES_MAX;
                if value.as_ref().is_some_and(is_wrong) {
                    return Err(InvalidRule::Pattern { number, field });
                }
            }
            if rule.folder.as_ref().is_some_and(|folder| !folder.starts_with('/')) {
                return Err(InvalidRule::Folder { number });
            }
        }
        Ok(Self(rules))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.0.iter()
    }

    /// What a rule is called: its name, or its number.
    pub fn name(&self, number: usize) -> String {
        let rule = number.checked_sub(1).and_then(|at| self.0.get(at));
        rule.and_then(|rule| rule.name.clone()).unwrap_or_else(|| format!("rule {number}"))
    }

    /// What a rule is for.
    pub fn action(&self, number: usize) -> Option<Action> {
        number.checked_sub(1).and_then(|at| self.0.get(at)).map(|rule| rule.action)
    }

    /// Decides about a request. Pure: the same rules and the same request give the same ruling.
    pub fn decide(&self, subject: &Subject<'_>) -> RuleDecision {
        let applies = |rule: &&(usize, &Rule)| rule.1.applies_to(subject);
        let numbered: Vec<(usize, &Rule)> =
            self.0.iter().enumerate().map(|(at, rule)| (at + 1, rule)).collect();
        let relevant: Vec<_> = numbered.iter().filter(applies).collect();
        for action in [Action::Deny, Action::Ask] {
            let of_action = relevant.iter().filter(|(_, rule)| rule.action == action);
            if let Some((number, _)) =
                of_action.into_iter().find(|(_, rule)| rule.matches_some(subject))
            {
                return RuleDecision::by(*number, action, None).with_option(subject.request);
            }
        }
        let mut held = None;
        for (number, rule) in relevant.iter().filter(|(_, rule)| rule.action == Action::Allow) {
            match rule.matches_all(subject) {
                Ok(true) => {
                    return RuleDecision::by(*number, Action::Allow, None)
                        .with_option(subject.request);
                }
                Ok(false) => {}
                Err(unsure) => {
                    held.get_or_insert(RuleDecision::by(*number, Action::Ask, Some(unsure)));
                }
            }
        }
        let asked =
            RuleDecision { action: Action::Ask, number: None, unsure: None, option_id: None };
        held.unwrap_or(asked)
    }
}

impl RuleDecision {
    fn by(number: usize, action: Action, unsure: Option<AskReason>) -> Self {
        Self { action, number: Some(number), unsure, option_id: None }
    }

    /// A decision without an option that counts once is none.
    fn with_option(mut self, request: &PermissionRequest) -> Self {
        let kind = match self.action {
            Action::Allow => ALLOW_ONCE,
            Action::Deny => REJECT_ONCE,
            Action::Ask => return self,
        };
        if let Some(option) = request.once(kind) {
            self.option_id = Some(option.option_id.clone());
        } else {
            self.action = Action::Ask;
            self.unsure = Some(AskReason::NoOption);
        }
        self
    }
}

impl Rule {
    /// Whether it is about this agent in this folder.
    fn applies_to(&self, subject: &Subject<'_>) -> bool {
        let is_agent = self.agent.as_ref().is_none_or(|pattern| {
            subject.agent.is_some_and(|agent| matches(pattern, agent, |_| true))
        });
        let is_folder = self.folder.as_ref().is_none_or(|pattern| {
            let folder = subject.folder.and_then(|folder| normal_path(folder, None));
            folder.is_some_and(|folder| matches_path(pattern, &folder))
        });
        is_agent && is_folder
    }

    fn is_tool(&self, request: &PermissionRequest) -> bool {
        let Some(pattern) = &self.tool else { return true };
        let pattern = pattern.to_lowercase();
        let names = [request.tool.as_deref(), request.kind.as_deref()];
        names.into_iter().flatten().any(|name| matches(&pattern, &name.to_lowercase(), |_| true))
    }

    /// For `deny` and `ask`: whether any part of the request is meant.
    fn matches_some(&self, subject: &Subject<'_>) -> bool {
        let request = subject.request;
        let is_command = self.command.as_ref().is_none_or(|pattern| {
            // Agents that say no command say it in the title.
            let title = Some(&request.title).filter(|_| request.executes());
            let commands = request.command.iter().chain(&request.other_commands).chain(title);
            let mut parts = commands.flat_map(|command| command::parts(command));
            parts.any(|part| matches(pattern, &part, |_| true))
        });
        let is_path = self.path.as_ref().is_none_or(|pattern| {
            let mut paths = request.paths();
            let commands = request.command.iter().chain(&request.other_commands);
            paths.extend(commands.flat_map(|line| command::path_words(line)).map(str::to_owned));
            paths.iter().any(|path| {
                let normal = normal_path(path, subject.folder);
                is_meant(pattern, normal.as_deref().unwrap_or(path), subject.folder)
            })
        });
        self.is_tool(request) && is_command && is_path
    }

    /// For `allow`: whether the whole request is meant; an error if that cannot be told, or the
    /// request cannot be trusted to be what it seems.
    fn matches_all(&self, subject: &Subject<'_>) -> Result<bool, AskReason> {
        let request = subject.request;
        if !self.is_tool(request) {
            return Ok(false);
        }
        // What a command touches is not known from its paths.
        let vouches = self.command.is_some() || self.tool.is_some() && self.path.is_none();
        if request.executes() && !vouches {
            return Ok(false);
        }
        let mut is_readable = request.is_readable();
        if let Some(pattern) = &self.command {
            let Some(command) = &request.command else { return Ok(false) };
            if command.len() > COMMAND_BYTES_MAX {
                return Err(AskReason::Unreadable);
            }
            if !matches(pattern, command, |c| !command::is_operator(c)) {
                let seems = matches(pattern, command, |_| true);
                return if seems { Err(AskReason::Compound) } else { Ok(false) };
            }
        }
        if let Some(pattern) = &self.path {
            let paths = request.paths();
            let normal: Vec<_> =
                paths.iter().map(|path| normal_path(path, subject.folder)).collect();
            let is_meant = |path: &String| is_meant(pattern, path, subject.folder);
            if paths.is_empty() || !normal.iter().flatten().all(is_meant) {
                return Ok(false);
            }
            is_readable &= normal.iter().all(Option::is_some);
        }
        match (request.missing_bytes, is_readable) {
            (0, true) => Ok(true),
            (0, false) => Err(AskReason::Unreadable),
            _ => Err(AskReason::Truncated),
        }
    }
}

/// Whether a normal path is meant by a pattern; a relative pattern counts from the folder. A session
/// without a folder has nothing that a relative pattern could mean.
fn is_meant(pattern: &str, path: &str, folder: Option<&str>) -> bool {
    if pattern.starts_with('/') {
        return matches_path(pattern, path);
    }
    let Some(folder) = folder.and_then(|folder| normal_path(folder, None)) else { return false };
    let below = path
        .strip_prefix(&folder)
        .filter(|rest| rest.is_empty() || rest.starts_with('/') || folder.ends_with('/'));
    let pattern = pattern.strip_prefix("./").unwrap_or(pattern);
    below.is_some_and(|below| matches_path(pattern, below))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn rule(action: Action) -> Rule {
        Rule {
            name: None,
            action,
            tool: None,
            command: None,
            path: None,
            agent: None,
            folder: None,
        }
    }

    fn command(action: Action, pattern: &str) -> Rule {
        Rule { command: Some(pattern.to_owned()), ..rule(action) }
    }

    fn path(action: Action, tool: &str, pattern: &str) -> Rule {
        let (tool, path) = (Some(tool.to_owned()), Some(pattern.to_owned()));
        Rule { tool, path, ..rule(action) }
    }

    fn request(call: &Value) -> PermissionRequest {
        let options = json!([
            {"optionId": "always", "kind": "allow_always"},
            {"optionId": "once", "kind": "allow_once"},
            {"optionId": "never", "kind": "reject_always"},
            {"optionId": "no", "kind": "reject_once"},
        ]);
        PermissionRequest::new(&json!({"toolCall": call, "options": options}), [])
    }

    fn runs(line: &str) -> PermissionRequest {
        request(&json!({"title": "Run", "kind": "execute", "rawInput": {"command": line}}))
    }

    fn ruling(rules: &[Rule], request: &PermissionRequest) -> RuleDecision {
        let rules = Rules::new(rules.to_vec()).unwrap();
        rules.decide(&Subject { request, agent: Some("codex"), folder: Some("/w") })
    }

    fn action(rules: &[Rule], request: &PermissionRequest) -> Action {
        ruling(rules, request).action
    }

    /// The list of things that a glob which matches the beginning must not let through.
    #[test]
    fn a_compound_command_is_not_allowed_by_its_beginning() {
        let rules = [command(Action::Allow, "git status*"), command(Action::Allow, "git *")];
        for line in ["git status", "git status --short", "git log  -n 3"] {
            assert_eq!(action(&rules, &runs(line)), Action::Allow, "{line}");
        }
        for line in [
            "git status && rm -rf /",
            "git status; rm -rf /",
            "git status | sh",
            "git status || rm x",
            "git status & rm x",
            "git status $(rm x)",
            "git status ${IFS}x",
            "git status `rm x`",
            "git status\nrm x",
            "git status\r\nrm x",
            "git status > /etc/passwd",
            "git log < /etc/shadow",
            "git status <(rm x)",
            "git log '$(quoted, and not understood)'",
        ] {
            let ruling = ruling(&rules, &runs(line));
            assert_eq!(
                (ruling.action, ruling.unsure),
                (Action::Ask, Some(AskReason::Compound)),
                "{line}"
            );
            assert_eq!(ruling.option_id, None);
        }
        for line in ["rm x", "gitx status", "A=1 git status", "sudo git status"] {
            assert_eq!(action(&rules, &runs(line)), Action::Ask, "{line}");
        }
        // What the rule spells out is meant.
        let rules = [command(Action::Allow, "cargo test * 2>&1 | tail -n ?")];
        assert_eq!(action(&rules, &runs("cargo test -p x 2>&1 | tail -n 5")), Action::Allow);
        assert_eq!(action(&rules, &runs("cargo test; x 2>&1 | tail -n 5")), Action::Ask);
    }

    #[test]
    fn deny_counts_before_ask_and_ask_before_allow_in_any_order() {
        let allow = Rule { tool: Some("*".to_owned()), ..rule(Action::Allow) };
        let ask = command(Action::Ask, "git push*");
        let deny = command(Action::Deny, "rm *");
        for rules in [[allow.clone(), ask.clone(), deny.clone()], [deny, ask, allow]] {
            assert_eq!(action(&rules, &runs("ls")), Action::Allow);
            assert_eq!(action(&rules, &runs("git push --force")), Action::Ask);
            for line in ["rm x", "ls && rm x", "sudo rm x", "sh -c 'rm x'", "git push; /bin/rm x"] {
                let ruling = ruling(&rules, &runs(line));
                assert_eq!(
                    (ruling.action, ruling.option_id.as_deref()),
                    (Action::Deny, Some("no"))
                );
            }
        }
    }

    #[test]
    fn only_options_that_count_once_are_chosen() {
        let allow = [command(Action::Allow, "ls")];
        assert_eq!(ruling(&allow, &runs("ls")).option_id.as_deref(), Some("once"));
        let mut always = runs("ls");
        always.options.retain(|option| option.kind.as_deref() == Some("allow_always"));
        let held = ruling(&allow, &always);
        assert_eq!((held.action, held.unsure), (Action::Ask, Some(AskReason::NoOption)));
        let held = ruling(&[command(Action::Deny, "ls")], &always);
        assert_eq!((held.action, held.unsure), (Action::Ask, Some(AskReason::NoOption)));
    }

    #[test]
    fn paths_are_judged_by_where_they_lead() {
        let rules = [path(Action::Allow, "edit", "src/**"), path(Action::Deny, "*", "/**/.env")];
        let edits = |path: &str| {
            request(&json!({"title": "Edit", "kind": "edit", "locations": [{"path": path}]}))
        };
        for (path, wanted) in [
            ("src/a.rs", Action::Allow),
            ("/w/src/x/../a.rs", Action::Allow),
            ("/w/src/../../etc/passwd", Action::Ask),
            ("src/../a.rs", Action::Ask),
            ("/wsrc/a", Action::Ask),
            ("~/src/a", Action::Ask),
            ("src/.env", Action::Deny),
            ("x/../.env", Action::Deny),
        ] {
            assert_eq!(action(&rules, &edits(path)), wanted, "{path}");
        }
        let both = json!({"kind": "edit", "locations": [{"path": "src/a"}],
            "rawInput": {"file_path": "/etc/passwd"}});
        assert_eq!(action(&rules, &request(&both)), Action::Ask, "every path counts");
        assert_eq!(
            action(&rules, &request(&json!({"kind": "edit"}))),
            Action::Ask,
            "no path is none"
        );
        assert_eq!(action(&rules, &runs("cat .env")), Action::Deny);
        let rules = Rules::new(vec![path(Action::Allow, "edit", "**")]).unwrap();
        let request = edits("/anywhere");
        let nowhere = Subject { request: &request, agent: None, folder: None };
        assert_eq!(rules.decide(&nowhere).action, Action::Ask);
    }

    /// Which of two commands a tool would run is not known.
    #[test]
    fn a_command_beside_another_one_is_not_allowed() {
        let rules = [command(Action::Allow, "git *"), command(Action::Allow, "git")];
        let two = |call: &Value, asked: &Value| {
            let options = json!([{"optionId": "once", "kind": "allow_once"}]);
            let call = json!({"name": "run", "kind": "execute", "rawInput": call});
            let asked = json!({"toolCall": {"rawInput": asked}, "call": call, "options": options});
            ruling(&rules, &PermissionRequest::new(&asked, []))
        };
        let git = json!({"command": "git status"});
        assert_eq!(two(&git, &git).action, Action::Allow);
        for (call, asked) in [
            (&Value::Null, json!({"command": "git status", "script": "rm -rf ~"})),
            (&git, json!({"cmd": "rm -rf ~"})),
            (&git, json!({"cmd": "git log"})),
            (&json!({"script": "rm -rf ~"}), git.clone()),
            (&json!({"command": "git"}), json!({"args": ["-c", "core.pager=rm"]})),
        ] {
            assert_eq!(two(call, &asked).action, Action::Ask, "{call} {asked}");
        }
        let beside = json!({"command": "git status", "script": "rm -rf ~"});
        assert_eq!(two(&Value::Null, &beside).unsure, Some(AskReason::Unreadable));
        // What forbids looks at each of them.
        let other = json!({"command": "git status", "script": "rm -rf ~"});
        let other = request(&json!({"kind": "execute", "rawInput": other}));
        assert_eq!(action(&[command(Action::Deny, "rm *")], &other), Action::Deny);
        let program = json!({"command": ["/srv/bash", "-c", "git status"]});
        assert_eq!(two(&Value::Null, &program).action, Action::Ask);
    }

    /// A rule about paths says nothing about what a command does.
    #[test]
    fn a_path_does_not_vouch_for_a_command() {
        let line = json!({"kind": "execute", "locations": [{"path": "src"}],
            "rawInput": {"command": "rm -rf /"}});
        let anything = Rule { path: Some("src/**".to_owned()), ..rule(Action::Allow) };
        for rule in [anything, path(Action::Allow, "execute", "src/**")] {
            assert_eq!(action(&[rule], &request(&line)), Action::Ask);
        }
    }

    #[test]
    fn what_is_not_seen_whole_is_asked_and_still_denied() {
        let allow = Rule { tool: Some("*".to_owned()), ..rule(Action::Allow) };
        let deny = command(Action::Deny, "rm *");
        let rules = [allow, deny];
        let mut cut = runs("ls");
        cut.missing_bytes = 1;
        assert_eq!(ruling(&rules, &cut).unsure, Some(AskReason::Truncated));
        let unseen = request(&json!({"kind": "execute", "title": "ls"}));
        assert_eq!(ruling(&rules, &unseen).unsure, Some(AskReason::Unreadable));
        let titled = request(&json!({"kind": "execute", "title": "`rm x`"}));
        assert_eq!(action(&rules, &titled), Action::Deny);
        let mut cut = runs("rm x");
        cut.missing_bytes = 1;
        assert_eq!(action(&rules, &cut), Action::Deny);
        let long = format!("ls {}", "x".repeat(COMMAND_BYTES_MAX));
        assert_eq!(action(&[command(Action::Allow, "ls *")], &runs(&long)), Action::Ask);
    }

    #[test]
    fn rules_are_about_an_agent_and_a_folder() {
        let allow = command(Action::Allow, "ls");
        let of = |agent: Option<&str>, folder: Option<&str>| Rule {
            agent: agent.map(str::to_owned),
            folder: folder.map(str::to_owned),
            ..allow.clone()
        };
        for (rule, wanted) in [
            (of(Some("codex"), None), Action::Allow),
            (of(Some("co*"), Some("/w/**")), Action::Allow),
            (of(None, Some("/w")), Action::Allow),
            (of(Some("claude"), None), Action::Ask),
            (of(None, Some("/x/**")), Action::Ask),
        ] {
            assert_eq!(action(std::slice::from_ref(&rule), &runs("ls")), wanted, "{rule:?}");
        }
    }

    #[test]
    fn a_rule_must_say_what_it_is_about() {
        assert_eq!(Rules::new(vec![rule(Action::Deny)]), Err(InvalidRule::Boundless { number: 1 }));
        let empty = command(Action::Allow, "");
        let wrong = InvalidRule::Pattern { number: 1, field: "command" };
        assert_eq!(Rules::new(vec![empty]), Err(wrong));
        let relative = Rule { folder: Some("w".to_owned()), ..command(Action::Allow, "ls") };
        assert_eq!(Rules::new(vec![relative]), Err(InvalidRule::Folder { number: 1 }));
        let many = vec![command(Action::Allow, "ls"); RULES_MAX + 1];
        assert_eq!(Rules::new(many), Err(InvalidRule::TooMany));
        let named = Rule { name: Some("list".to_owned()), ..command(Action::Allow, "ls") };
        let rules = Rules::new(vec![named, command(Action::Allow, "ls")]).unwrap();
        assert_eq!((rules.name(1), rules.name(2)), ("list".to_owned(), "rule 2".to_owned()));
    }
}
