//! What may be taken out of a log, and what masking leaves of a message's counting.

use crate::common::{World, id, start};
use piton_core::decide::{Command, Redact, RedactTarget, Refusal, Verdict};
use piton_core::event::{Event, MessageDelta, Outcome};
use piton_core::{Content, NewRecord};

fn redact(targets: &[(u64, Content)]) -> Command {
    let target =
        |(seq, content): &(u64, Content)| RedactTarget { seq: *seq, content: content.clone() };
    let targets = targets.iter().map(target).collect();
    Command::Redact(Redact { targets, reason: Some("asked to".into()) })
}

/// Each target once, in order; what is gone already is left alone; closed sessions too.
#[test]
fn contents_are_taken_out_once() {
    let mut world = World::new();
    world.decide(start("run_1")).unwrap();
    world.decide(Command::Close { outcome: Outcome::Completed }).unwrap();
    let targets = [(3, Content::Omitted), (2, Content::Redacted), (3, Content::Omitted)];
    let decision = world.decide(redact(&targets)).unwrap();
    let [NewRecord { event: Event::RecordRedacted(redacted), .. }] = &decision.records[..] else {
        panic!("one record: {decision:?}");
    };
    assert_eq!((redacted.target_seq, redacted.reason.as_deref()), (3, Some("asked to")));
    let again = world.decide(redact(&[(3, Content::Redacted)])).unwrap();
    assert_eq!((again.records, again.outcome), (vec![], Verdict::Already));
}

#[test]
fn what_is_not_there_or_has_no_content_is_refused() {
    let mut world = World::new();
    let last = world.state.last_seq;
    for seq in [0, last + 1] {
        let refused = world.decide(redact(&[(seq, Content::Omitted)])).unwrap_err();
        assert_eq!(refused, Refusal::RecordNotFound { seq });
    }
    let refused = world.decide(redact(&[(1, Content::None)])).unwrap_err();
    assert_eq!(refused, Refusal::RecordEmpty { seq: 1 });
    let many = vec![(1, Content::Omitted); piton_core::limits::REDACT_RECORDS_MAX + 1];
    assert!(matches!(world.decide(redact(&many)), Err(Refusal::LimitReached { .. })));
}

/// After masking, a sender's offsets are about what it sent, the log's about what is written.
#[test]
fn offsets_are_the_senders() {
    let mut world = World::new();
    world.decide(start("run_1")).unwrap();
    let seq = world.state.last_seq + 1;
    let delta = MessageDelta {
        message_id: id("msg_1"),
        run_id: None,
        offset: 0,
        length: 10,
        channel: piton_core::spool::Channel::Answer,
        sent: Some(25),
    };
    world.state.apply(seq, world.now, &delta.into());
    let say = |offset| Command::Say { message_id: id("msg_1"), offset, text: "more".into() };
    let refused = world.decide(say(Some(10))).unwrap_err();
    let message = id("msg_1");
    assert_eq!(refused, Refusal::OffsetMismatch { message, expected: 25, offset: 10 });
    let decision = world.decide(say(Some(25))).unwrap();
    let Event::MessageDelta(delta) = &decision.records[0].event else { panic!("{decision:?}") };
    assert_eq!((delta.offset, delta.length), (10, 4));
}
