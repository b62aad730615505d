//! The metadata log: tasks, and who may use the API.

use piton_core::access::{AccessDenied, Bearer, Scope};
use piton_core::decide::{Refusal, Verdict};
use piton_core::event::AccessTokenCreated;
use piton_core::limits::REQUEST_KEPT_FOR;
use piton_core::registry::{Command, Registry};
use piton_core::request::{Key, Request};
use piton_core::{Record, Timestamp};
use serde_json::json;

#[derive(Default)]
struct Log {
    registry: Registry,
    records: Vec<Record>,
    now: i64,
}

impl Log {
    fn at(&self) -> Timestamp {
        Timestamp::from_millis(self.now)
    }

    fn ask(&mut self, request: Option<Request>, command: Command) -> Result<Verdict, Refusal> {
        let decision = self.registry.decide(self.at(), request, command, REQUEST_KEPT_FOR)?;
        for new in &decision.records {
            let record = new.at(self.registry.last_seq + 1);
            self.registry.apply_record(&record).expect("it was just made");
            self.records.push(record);
        }
        Ok(decision.outcome)
    }

    /// What is in the records is all there is.
    fn check(&self) {
        let mut again = Registry::default();
        for record in &self.records {
            again.apply_record(record).expect("it was just made");
        }
        assert_eq!(again, self.registry);
    }
}

fn bearer(name: &str) -> Bearer {
    let digits = blake3::hash(name.as_bytes()).to_hex();
    format!("{name}.{digits}").parse().expect("a token")
}

fn granted(
    name: &str,
    scopes: &[Scope],
    expires_at: Option<i64>,
    once: bool,
) -> AccessTokenCreated {
    let Bearer { id, secret } = bearer(name);
    AccessTokenCreated {
        access_token_id: id,
        name: name.into(),
        scopes: scopes.into(),
        hash: secret.hash(),
        expires_at: expires_at.map(Timestamp::from_millis),
        single_use: once,
    }
}

#[test]
fn a_secret_is_good_until_it_is_revoked() {
    let mut log = Log::default();
    log.ask(None, Command::Grant(granted("key_a", &[Scope::Read], None, false))).unwrap();
    let admit = |log: &Log, name: &str, scope| {
        log.registry.admit(&bearer(name), scope, log.at()).map(|access| access.name.clone())
    };
    assert_eq!(admit(&log, "key_a", Scope::Read), Ok("key_a".into()));
    let needed = Scope::Admin;
    assert_eq!(admit(&log, "key_a", needed), Err(AccessDenied::Scope { needed }));
    assert_eq!(admit(&log, "key_b", Scope::Read), Err(AccessDenied::Unknown));
    let access_token_id = bearer("key_a").id;
    log.ask(None, Command::Revoke { access_token_id: access_token_id.clone() }).unwrap();
    assert_eq!(admit(&log, "key_a", Scope::Read), Err(AccessDenied::Unknown));
    let again = log.ask(None, Command::Revoke { access_token_id: access_token_id.clone() });
    assert_eq!(again, Err(Refusal::AccessTokenNotFound { access: access_token_id }));
    log.check();
}

#[test]
fn a_link_is_exchanged_once_and_opens_nothing_itself() {
    let mut log = Log::default();
    log.ask(None, Command::Grant(granted("key_l", &[Scope::Read], Some(100), true))).unwrap();
    let link = bearer("key_l");
    assert_eq!(log.registry.admit(&link, Scope::Read, log.at()), Err(AccessDenied::Unknown));
    assert!(log.registry.once(&link, log.at()).is_ok());
    assert_eq!(log.registry.once(&link, Timestamp::from_millis(100)), Err(AccessDenied::Expired));
    let exchange = |name| Command::Exchange {
        used: bearer("key_l").id,
        granted: granted(name, &[Scope::Read], None, false),
    };
    log.ask(None, exchange("key_1")).unwrap();
    assert!(log.registry.admit(&bearer("key_1"), Scope::Read, log.at()).is_ok());
    let again = log.ask(None, exchange("key_2"));
    assert_eq!(again, Err(Refusal::AccessTokenNotFound { access: link.id.clone() }));
    assert_eq!(log.registry.once(&link, log.at()), Err(AccessDenied::Unknown));
    log.check();
}

#[test]
fn a_task_is_made_once() {
    let mut log = Log::default();
    let create = |title: &str| Command::CreateTask {
        task_id: "task_1".parse().unwrap(),
        title: title.into(),
    };
    let asking = |body| Request {
        principal: "key_a".into(),
        action: "tasks.create".into(),
        key: Some(Key::new("key_a", "/tasks", "k", &body)),
        response: Some(json!({"task_id": "task_1"})),
    };
    assert_eq!(log.ask(Some(asking(json!(1))), create("one")), Ok(Verdict::Done));
    let repeated = log.ask(Some(asking(json!(1))), create("one"));
    assert_eq!(repeated, Ok(Verdict::Repeated { seq: 2 }));
    let other = log.ask(Some(asking(json!(2))), create("two"));
    assert_eq!(other, Err(Refusal::IdempotencyKeyReused));
    assert_eq!(log.ask(None, create("two")), Ok(Verdict::Already));
    assert_eq!(log.registry.tasks.len(), 1);
    log.check();
}

/// A limit gives way to what has run out, and to nothing else.
#[test]
fn there_is_room_for_so_many_secrets() {
    let mut log = Log::default();
    for n in 0..piton_core::limits::ACCESS_MAX {
        let expires_at = (n == 5).then_some(1_000);
        let granted = granted(&format!("key_{n}"), &[Scope::Read], expires_at, false);
        log.ask(None, Command::Grant(granted)).unwrap();
    }
    let more = || Command::Grant(granted("key_more", &[Scope::Read], None, false));
    assert!(matches!(log.ask(None, more()), Err(Refusal::LimitReached { .. })));
    log.now = 1_000;
    assert_eq!(log.ask(None, more()), Ok(Verdict::Done));
    assert!(log.registry.admit(&bearer("key_more"), Scope::Read, log.at()).is_ok());
    log.check();
}
