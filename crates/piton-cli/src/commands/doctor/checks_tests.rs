use std::path::PathBuf;

use super::*;
use crate::findings::Level;

/// A machine on which all is well.
fn well() -> Facts {
    Facts {
        data: PathBuf::from("/data"),
        folder: Folder::There { mode: 0o700, own: true },
        filesystem: FileSystem { kind: Some("ext4".to_owned()), refused: None },
        free_bytes: Some(50_000 * MIB),
        store: StoreFact::Opens { kind: "sqlite" },
        key: KeyFact {
            setting: "auto",
            file_mode: Some(0o600),
            in_environment: false,
            is_needed: true,
        },
        server: ServerFact::None,
        own_version: "0.1.0".to_owned(),
        socket_bytes: (60, 60),
        git: Some("git version 2.47.3".to_owned()),
        agents: Vec::new(),
        executions: Executions::default(),
        systemd: None,
        container: None,
        first_process: Some("systemd".to_owned()),
        now: Timestamp::from_millis(CLOCK_MIN_MS),
        written_at: None,
        open_files_max: Some(1_048_576),
    }
}

/// What is not well, as `check level`.
fn ill(change: impl FnOnce(&mut Facts)) -> Vec<String> {
    let mut facts = well();
    change(&mut facts);
    let findings = all(&facts);
    for finding in &findings {
        let quiet = finding.level == Level::Ok;
        assert_eq!(finding.hint.is_none(), quiet, "what is not well says what to do: {finding:?}");
    }
    let ill = findings.iter().filter(|finding| finding.level != Level::Ok);
    ill.map(|finding| format!("{} {}", finding.check, finding.level.as_str())).collect()
}

#[test]
fn a_machine_on_which_all_is_well_gets_a_good_report() {
    assert_eq!(ill(|_| {}), Vec::<String>::new());
    let checks: Vec<_> = all(&well()).iter().map(|finding| finding.check).collect();
    assert_eq!(
        checks,
        [
            "data folder",
            "file system",
            "free space",
            "store",
            "key",
            "server",
            "sockets",
            "git",
            "agents",
            "executions",
            "systemd",
            "container",
            "clock",
            "open files"
        ]
    );
}

#[test]
fn the_data_folder_is_its_owners_alone() {
    let mode = |mode: u32| ill(|facts| facts.folder = Folder::There { mode, own: true });
    assert_eq!(mode(0o755), ["data folder warning"]);
    assert_eq!(mode(0o770), ["data folder problem"]);
    let folder = |folder: Folder| ill(|facts| facts.folder = folder);
    assert_eq!(folder(Folder::There { mode: 0o700, own: false }), ["data folder problem"]);
    assert_eq!(folder(Folder::Other), ["data folder problem"]);
    assert_eq!(folder(Folder::Unreadable { why: "denied".into() }), ["data folder problem"]);
    assert!(folder(Folder::Missing).is_empty());
}

#[test]
fn a_disk_is_local_and_has_room() {
    let refused = Some("/data is on a network file system (nfs)".to_owned());
    let filesystem = |kind: &str, refused| {
        ill(|facts| facts.filesystem = FileSystem { kind: Some(kind.to_owned()), refused })
    };
    assert_eq!(filesystem("nfs4", refused), ["file system problem"]);
    assert_eq!(filesystem("tmpfs", None), ["file system warning"]);
    let free = |bytes| ill(|facts| facts.free_bytes = bytes);
    assert_eq!(free(Some(99 * MIB)), ["free space problem"]);
    assert_eq!(free(Some(100 * MIB)), ["free space warning"]);
    assert!(free(Some(1024 * MIB)).is_empty());
    assert_eq!(free(None), ["free space warning"]);
}

#[test]
fn a_store_opens_and_its_key_is_safe() {
    let fails = |code| StoreFact::Fails { code: Some(code), why: "no".to_owned() };
    assert_eq!(ill(|facts| facts.store = fails(Code::StoreDamaged)), ["store problem"]);
    let in_use = |server: ServerFact| {
        ill(|facts| (facts.store, facts.server) = (fails(Code::StoreInUse), server))
    };
    assert_eq!(in_use(ServerFact::None), ["store problem"]);
    let runs = ServerFact::Answers { address: "a".into(), pid: 1, version: "0.1.0".into() };
    assert!(in_use(runs).is_empty());
    assert!(ill(|facts| facts.store = StoreFact::None { next: "sqlite" }).is_empty());
    assert_eq!(ill(|facts| facts.key.file_mode = Some(0o644)), ["key problem"]);
    let missing = ill(|facts| {
        facts.key.file_mode = None;
        facts.store = fails(Code::KeyMissing);
    });
    assert_eq!(missing, ["store problem", "key problem"]);
    assert!(ill(|facts| (facts.key.file_mode, facts.key.in_environment) = (None, true)).is_empty());
}

#[test]
fn a_server_answers_and_is_of_this_version() {
    let server = |server: ServerFact| ill(|facts| facts.server = server);
    let answers = |version: &str| ServerFact::Answers {
        address: "http://127.0.0.1:1".into(),
        pid: 7,
        version: version.to_owned(),
    };
    assert!(server(answers("0.1.0")).is_empty());
    assert_eq!(server(answers("0.0.9")), ["server warning"]);
    let silent = ServerFact::Silent { address: "a".into(), pid: 7, why: "refused".into() };
    assert_eq!(server(silent), ["server problem"]);
}

#[test]
fn sockets_git_and_agents_are_found() {
    assert!(ill(|facts| facts.socket_bytes = (99, 200)).is_empty());
    assert!(ill(|facts| facts.socket_bytes = (100, 99)).is_empty());
    assert_eq!(ill(|facts| facts.socket_bytes = (100, 100)), ["sockets problem"]);
    assert_eq!(ill(|facts| facts.git = None), ["git warning"]);
    let agent = |program: &str, found: Option<&str>| AgentFact {
        id: "mine".to_owned(),
        program: program.to_owned(),
        found: found.map(PathBuf::from),
        install: None,
    };
    let mut facts = well();
    let known = AgentFact { install: Some("Take it.".to_owned()), ..agent("npx", None) };
    facts.agents =
        vec![agent("npx", Some("/bin/npx")), agent("npx", None), agent("/x/y", None), known];
    let hints: Vec<_> = agents(&facts).into_iter().map(|f| (f.level, f.hint)).collect();
    let node = "Install Node.js, which brings npx; or correct the setting agents.mine.command.";
    let other = "Install it; or correct the setting agents.mine.command.";
    let known = "Take it; or correct the setting agents.mine.command.";
    assert_eq!(
        hints,
        [
            (Level::Ok, None),
            (Level::Ok, None),
            (Level::Warning, Some(node.to_owned())),
            (Level::Warning, Some(other.to_owned())),
            (Level::Warning, Some(known.to_owned())),
        ]
    );
}

#[test]
fn what_would_end_agents_is_named() {
    let alive = Executions { alive: 2, gone: 1, with_leftovers: 0 };
    assert_eq!(executions(alive, false).says, "2 running without a server; 1 ended");
    assert!(ill(|facts| facts.executions = alive).is_empty());
    let left = Executions { with_leftovers: 1, ..alive };
    assert_eq!(ill(|facts| facts.executions = left), ["executions warning"]);

    let systemd = |unit: Option<&str>, mode: Option<&str>, has_scopes, lingers| {
        let systemd = Systemd {
            unit: unit.map(str::to_owned),
            kill_mode: mode.map(str::to_owned),
            has_scopes,
            lingers,
            is_root: false,
        };
        ill(|facts| facts.systemd = Some(systemd))
    };
    let piton = Some("piton.service");
    assert_eq!(systemd(piton, Some("control-group"), true, Some(true)), ["systemd warning"]);
    assert_eq!(systemd(piton, Some("mixed"), false, Some(true)), ["systemd problem"]);
    assert!(systemd(piton, Some("process"), false, Some(true)).is_empty());
    assert_eq!(systemd(None, None, true, Some(false)), ["systemd warning"]);
    assert!(systemd(None, None, true, None).is_empty());

    let inside = |first: &str| {
        ill(|facts| {
            facts.container = Some("/.dockerenv".to_owned());
            facts.first_process = Some(first.to_owned());
        })
    };
    assert_eq!(inside("tini"), ["container warning"]);
    assert!(container(Some("x"), Some("piton")).hint.unwrap().contains("--init"));
    assert!(!container(Some("x"), Some("tini")).hint.unwrap().contains("--init"));
}

#[test]
fn the_clock_and_the_limits_make_sense() {
    let second = std::time::Duration::from_secs(1);
    assert_eq!(ill(|facts| facts.now = Timestamp::from_millis(0)), ["clock problem"]);
    let ahead =
        |seconds: u32| ill(|facts| facts.written_at = Some(facts.now.after(second * seconds)));
    assert!(ahead(60).is_empty());
    assert_eq!(ahead(61), ["clock warning"]);
    let files = |most| ill(|facts| facts.open_files_max = most);
    assert_eq!(files(Some(255)), ["open files problem"]);
    assert_eq!(files(Some(256)), ["open files warning"]);
    assert!(files(Some(1024)).is_empty() && files(None).is_empty());
}
