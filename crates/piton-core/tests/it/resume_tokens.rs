//! The lifecycle of resume tokens on the pure core: mint, validate, consume, rotate, revoke, audit.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::common::{
    WAIT, World, cancel, close, complete, fresh, id, resume, start, token as presented,
};
use piton_core::decide::{AnswerByToken, Command, Decision, Refusal, Verdict};
use piton_core::event::{Event, Outcome, TokenPurpose, WaitKind};
use piton_core::id::TokenId;
use piton_core::reason::Reason;
use piton_core::status::Name;
use piton_core::token::{self, Entry, Secret};
use serde_json::json;

fn counts(pairs: &[(&str, usize)]) -> BTreeMap<String, usize> {
    pairs.iter().map(|(kind, count)| ((*kind).to_owned(), *count)).collect()
}

fn replayed(result_seq: u64) -> Decision {
    Decision { records: Vec::new(), outcome: Verdict::Replayed { result_seq } }
}

#[test]
fn minting_keeps_scope_expiry_and_the_secrets_hash_only() {
    let world = World::waiting();
    let expected = Entry {
        token_id: id("rt_1"),
        run_id: id("run_1"),
        purpose: TokenPurpose::Wait,
        wait_id: Some(id("wait_1")),
        wait_kind: Some(WaitKind::Permission),
        hash: fresh("rt_1").hash,
        expires_at: Some(world.now.after(WAIT)),
        minted_seq: 4,
        state: token::State::Active,
    };
    assert_eq!(world.entry(&id("rt_1")), Some(expected));
    let secret = presented("rt_1").reveal();
    let secret = secret.split_once('.').expect("ID.SECRET").1;
    assert!(!format!("{:?}", world.log).contains(secret), "a secret is in the log");
}

#[test]
fn token_is_consumed_exactly_once_and_retries_get_the_first_result() {
    let mut world = World::waiting();
    let answer = world.answer("rt_1", json!({ "b": 1, "a": [null] }));
    let first = world.decide(answer).expect("the first");
    let result_seq = world.state.last_seq;
    assert_eq!(first.outcome, Verdict::Resumed { result_seq });
    let result = world.log.last().expect("a record");
    assert_eq!((result.seq, &*result.kind), (result_seq, "run.resumed"));
    // The same answer, its keys in another order: the first result, whatever happened since.
    let again = |world: &mut World| {
        let answer = world.answer("rt_1", json!({ "a": [null], "b": 1 }));
        world.decide(answer)
    };
    assert_eq!(again(&mut world), Ok(replayed(result_seq)));
    world.pass(WAIT * 2);
    assert_eq!(again(&mut world), Ok(replayed(result_seq)), "after expiry");
    world.restart("boot_2");
    assert_eq!(again(&mut world), Ok(replayed(result_seq)), "after a restart");
    world.recover(None);
    world.done(start("run_2"));
    assert_eq!(again(&mut world), Ok(replayed(result_seq)), "after a newer run");
    world.done(close(Outcome::Completed));
    assert_eq!(again(&mut world), Ok(replayed(result_seq)), "after the session's end");
    assert_eq!(world.token_records(), counts(&[("token.minted", 1), ("token.consumed", 1)]));
    assert_eq!(world.count("run.resumed"), 1);
}

#[test]
fn double_consume_with_another_answer_is_refused() {
    let mut world = World::waiting();
    let answer = world.answer("rt_1", "yes");
    world.done(answer);
    for other in [json!("no"), json!(null), json!(["yes"])] {
        let answer = world.answer("rt_1", other);
        assert_eq!(world.refused(answer), Refusal::ResumeTokenConsumed);
    }
}

#[test]
fn mismatches_are_refused_each_by_its_own_name() {
    let mut world = World::waiting();
    let entry = world.entry(&id("rt_1"));
    let presenting =
        |token, entry| Command::AnswerByToken(AnswerByToken { token, entry, answer: json!(true) });
    // A token of another session is not in this session's index.
    assert_eq!(world.refused(presenting(presented("rt_1"), None)), Refusal::ResumeTokenNotFound);
    // The right id with a wrong secret, and an entry of another token.
    let mut forged = presented("rt_1");
    forged.secret = Secret::new([0; 32]);
    assert_eq!(world.refused(presenting(forged, entry.clone())), Refusal::ResumeTokenMismatch);
    assert_eq!(
        world.refused(presenting(presented("rt_2"), entry.clone())),
        Refusal::ResumeTokenMismatch
    );
    // Made for a run or a wait that is not the one that waits.
    let other_run = entry.clone().map(|entry| Entry { run_id: id("run_0"), ..entry });
    let reason = Reason::RunEnded;
    assert_eq!(
        world.refused(presenting(presented("rt_1"), other_run)),
        Refusal::ResumeTokenRevoked { reason }
    );
    let other_wait = entry.map(|entry| Entry { wait_id: Some(id("wait_0")), ..entry });
    assert_eq!(
        world.refused(presenting(presented("rt_1"), other_wait)),
        Refusal::ResumeTokenMismatch
    );
    // A guess does not learn whether a used token was used.
    let answer = world.answer("rt_1", true);
    world.done(answer);
    let mut forged = presented("rt_1");
    forged.secret = Secret::new([0; 32]);
    let entry = world.entry(&id("rt_1"));
    assert_eq!(world.refused(presenting(forged, entry)), Refusal::ResumeTokenMismatch);
}

#[test]
fn rotation_revokes_the_old_token_and_the_new_one_answers() {
    let mut world = World::waiting();
    let rotate = || Command::RotateToken { wait_id: id("wait_1"), fresh: fresh("rt_2") };
    assert_eq!(world.done(rotate()), ["token.minted", "token.revoked"]);
    assert_eq!(world.named(), (Name::Waiting, Reason::Permission));
    let answer = world.answer("rt_1", true);
    assert_eq!(world.refused(answer), Refusal::ResumeTokenRevoked { reason: Reason::Rotated });
    let answer = world.answer("rt_2", true);
    assert_eq!(world.done(answer), ["token.consumed", "run.resumed"]);
}

/// Readers are told the status after each record of a batch.
#[test]
fn no_record_in_between_says_that_nothing_answers_a_wait() {
    let (wait_id, answer) = (id("wait_1"), json!("yes"));
    let rotate = Command::RotateToken { wait_id: id("wait_1"), fresh: fresh("rt_2") };
    let answered = Command::AnswerByWait { wait_id, fresh: fresh("rt_2"), answer };
    for command in [rotate, answered] {
        let mut world = World::waiting();
        let before = world.log.len();
        world.done(command);
        for end in before..=world.log.len() {
            let mut seen = world.clone();
            seen.state = piton_core::fold::replay(&world.log[..end]).unwrap();
            assert!(!seen.named().0.is_interrupted(), "{:?}", seen.named());
        }
    }
}

/// Asked again with the same new token, because the first answer was not heard: it stays good.
#[test]
fn rotating_to_the_same_token_twice_does_not_revoke_it() {
    let mut world = World::waiting();
    let rotate = || Command::RotateToken { wait_id: id("wait_1"), fresh: fresh("rt_2") };
    world.done(rotate());
    assert_eq!(world.done(rotate()), [""; 0]);
    assert_eq!(world.token_state("rt_2"), Some(token::State::Active));
    let answer =
        Command::AnswerByWait { wait_id: id("wait_1"), fresh: fresh("rt_2"), answer: json!(true) };
    assert_eq!(world.done(answer), ["token.consumed", "run.resumed"]);
}

#[test]
fn an_answer_by_wait_rotates_and_consumes_in_one_batch() {
    let mut world = World::waiting();
    let answer = || Command::AnswerByWait {
        wait_id: id("wait_1"),
        fresh: fresh("rt_2"),
        answer: json!("yes"),
    };
    let decision = world.decide(answer()).expect("possible");
    let kinds: Vec<_> = decision.records.iter().map(|record| &*record.kind).collect();
    assert_eq!(kinds, ["token.minted", "token.revoked", "token.consumed", "run.resumed"]);
    let result_seq = world.state.last_seq;
    assert_eq!(decision.outcome, Verdict::Resumed { result_seq });
    // Anyone who has the token of the record is told the first result too.
    let again = world.answer("rt_2", "yes");
    assert_eq!(world.decide(again), Ok(replayed(result_seq)));
    assert_eq!(world.refused(answer()), Refusal::WaitNotFound { wait: id("wait_1") });
}

#[test]
fn every_end_of_a_run_revokes_its_tokens() {
    let fail = || Command::Fail { run_id: id("run_1"), code: None, error: "no".into() };
    let interrupt = |reason| Command::Interrupt { run_id: id("run_1"), reason };
    for (end, reason) in [
        (cancel("run_1"), Reason::RunEnded),
        (complete("run_1"), Reason::RunEnded),
        (fail(), Reason::RunEnded),
        (close(Outcome::Cancelled), Reason::RunEnded),
        (start("run_2"), Reason::Superseded),
        (interrupt(Reason::ProcessExit), Reason::ProcessExit),
        (interrupt(Reason::WaitTimeout), Reason::WaitTimeout),
    ] {
        let mut world = World::waiting();
        world.ask("wait_2", "rt_2");
        world.done(end.clone());
        for name in ["rt_1", "rt_2"] {
            let revoked = Some(token::State::Revoked { reason });
            assert_eq!(world.token_state(name), revoked, "{name} after {end:?}");
        }
        assert!(world.state.tokens.is_empty(), "after {end:?}");
        let expected = counts(&[("token.minted", 2), ("token.revoked", 2)]);
        assert_eq!(world.token_records(), expected, "after {end:?}");
    }
}

#[test]
fn an_interruption_token_is_minted_on_request_and_resumes_the_run_once() {
    let mut world = World::interrupted();
    assert_eq!(world.token_records(), counts(&[]), "recovery mints none");
    let mint = |name| Command::MintInterruption { fresh: fresh(name), expires_at: None };
    assert_eq!(world.done(mint("rt_1")), ["token.minted"]);
    assert_eq!(world.done(mint("rt_1")), [""; 0], "asked again, it stays good");
    assert_eq!(world.done(mint("rt_2")), ["token.revoked", "token.minted"]);
    let answer = world.answer("rt_1", json!(null));
    assert_eq!(world.refused(answer), Refusal::ResumeTokenRevoked { reason: Reason::Rotated });
    let answer = world.answer("rt_2", json!(null));
    let first = world.decide(answer.clone()).map(|decision| decision.outcome);
    let result_seq = world.state.last_seq;
    assert_eq!(first, Ok(Verdict::Resumed { result_seq }));
    assert_eq!(world.named(), (Name::Running, Reason::RunOpen));
    let again = world.answer("rt_2", json!(null));
    assert_eq!(world.decide(again), Ok(replayed(result_seq)));
}

#[test]
fn an_interruption_token_expires_and_dies_with_the_interruption() {
    let minted = || {
        let mut world = World::interrupted();
        let expires_at = Some(world.now.after(WAIT));
        world.done(Command::MintInterruption { fresh: fresh("rt_1"), expires_at });
        world
    };
    let mut expired = minted();
    expired.pass(WAIT);
    let answer = expired.answer("rt_1", true);
    assert_eq!(expired.refused(answer), Refusal::ResumeTokenExpired);
    assert_eq!(expired.done(Command::Sweep { live: false }), ["token.expired", "status.derived"]);
    assert_eq!(expired.done(Command::Sweep { live: false }), [""; 0]);
    assert_eq!(expired.token_state("rt_1"), Some(token::State::Expired));
    assert_eq!(expired.named(), (Name::InterruptedStartup, Reason::ProcessExit));
    let dismiss = Command::Dismiss { run_id: id("run_1") };
    for (end, reason) in [
        (resume("run_1"), Reason::UserRequest),
        (dismiss, Reason::RunEnded),
        (start("run_2"), Reason::Superseded),
    ] {
        let mut world = minted();
        world.done(end);
        assert_eq!(world.token_state("rt_1"), Some(token::State::Revoked { reason }));
    }
}

/// A rotated token lives as long as its wait does, not as long as the first one.
#[test]
fn a_token_lives_as_long_as_its_wait() {
    let mut world = World::waiting();
    world.pass(Duration::from_mins(9));
    world.done(Command::RotateToken { wait_id: id("wait_1"), fresh: fresh("rt_2") });
    world.pass(Duration::from_mins(1));
    let answer = world.answer("rt_2", true);
    assert_eq!(world.refused(answer), Refusal::ResumeTokenExpired);
    let rotate = Command::RotateToken { wait_id: id("wait_1"), fresh: fresh("rt_3") };
    assert_eq!(world.refused(rotate), Refusal::WaitExpired { wait: id("wait_1") });
}

/// Auditability: the token records alone tell which tokens are good, at every point of a life
/// that goes through every transition.
#[test]
fn every_transition_has_its_record() {
    let mut world = World::waiting();
    world.done(Command::RotateToken { wait_id: id("wait_1"), fresh: fresh("rt_2") });
    let answer = world.answer("rt_2", true);
    world.done(answer);
    world.ask("wait_2", "rt_3");
    world.pass(WAIT);
    world.done(Command::Sweep { live: true });
    world.ask("wait_3", "rt_4");
    world.pass(WAIT);
    world.done(Command::Sweep { live: false });
    world.done(Command::MintInterruption { fresh: fresh("rt_5"), expires_at: None });
    world.done(resume("run_1"));
    world.ask("wait_4", "rt_6");
    let expected = counts(&[
        ("token.minted", 6),
        ("token.consumed", 1),
        ("token.revoked", 3),
        ("token.expired", 1),
    ]);
    assert_eq!(world.token_records(), expected);
    let mut index: BTreeMap<TokenId, Entry> = BTreeMap::new();
    let mut state = piton_core::State::default();
    for record in &world.log {
        let event: Event = record.event().expect("readable");
        state.apply(record.seq, record.ts, &event);
        if let Some(subject) = token::subject(&event) {
            let entry = token::transition(index.remove(subject), record.seq, &event);
            index.extend(entry.map(|entry| (subject.clone(), entry)));
        }
        let good = index.values().filter(|entry| entry.state == token::State::Active);
        let good: Vec<_> = good.map(|entry| &entry.token_id).collect();
        assert_eq!(good, state.tokens.keys().collect::<Vec<_>>(), "at {record:?}");
    }
    assert_eq!(world.token_state("rt_6"), Some(token::State::Active));
}
