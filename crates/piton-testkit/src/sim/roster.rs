//! What a store of files writes to the metadata log by itself, as the world knows it must: every
//! session once, when it is durable, with the time at which it began; and that anchors were gone
//! only if the world spoiled some or the power failed: never because a process was killed. Anchors
//! are written without a flush, so that an append costs one flush and not two; a power failure can
//! tear one, and a torn anchor cannot be distinguished from one that was tampered with, so that it
//! is reported as one. Nothing of this is asked of the store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use piton_core::event::Event;
use piton_core::id::SessionId;
use piton_core::{Code, Record, Timestamp};
use piton_store::Detail;
use piton_store::files::Folder;

use super::ledger::Property;
use super::world::World;

#[derive(Debug, Default)]
pub(super) struct Books {
    /// Anchors were spoiled while no process ran.
    pub(super) spoiled: bool,
    pub(super) power_failed: bool,
    /// What was durable when the log was looked at last.
    seen: Vec<Record>,
}

/// Looks at the metadata log of a folder that was found as the next life would find it, after what that
/// life does first: it lists what is not listed. With `is_durable` only what was flushed is found, as
/// after a power failure.
pub(super) fn check(world: &Arc<World>, folder: &Folder, is_durable: bool) {
    let broken = |what: String| world.violated(Property::RosterIsTrue, what);
    let read = |folder: &Folder| {
        let session = SessionId::metadata_log();
        folder.read(&session, 0, usize::MAX, Detail::Full).unwrap_or_default()
    };
    let found = read(folder);
    let is_empty = found.is_empty();
    let mut lost = false;
    if is_durable {
        let mut inner = world.inner();
        // What this opening noted of anchors is in the copy only.
        let listed = found.into_iter().filter(|record| &*record.kind == "session.registered");
        let listed: Vec<Record> = listed.collect();
        lost = !listed.starts_with(&inner.roster.seen);
        inner.roster.seen = listed;
    }
    if lost {
        broken("what the metadata log said is not there any more".to_owned());
    }
    folder.write_behind();
    let (spoiled, power_failed) = {
        let inner = world.inner();
        (inner.roster.spoiled, inner.roster.power_failed || is_durable)
    };
    if let Err(error) = folder.register() {
        // The metadata log's anchor cannot be read, and the log is not there: either it has no line yet,
        // or it was taken away with all of them. The store cannot tell, so it does not begin another
        // one in its place; `verify` says what is missing. A metadata log with a line never gets here.
        if !(spoiled && is_empty && error.code() == Code::ChainBroken) {
            broken(format!("sessions cannot be listed: {error}"));
        }
        return;
    }
    let began: BTreeMap<SessionId, Timestamp> = {
        let disk = world.disk();
        let durable = disk.logs.iter().filter(|(id, log)| !id.is_metadata_log() && log.flushed > 0);
        durable.map(|(id, log)| (id.clone(), log.lines[0].record.ts)).collect()
    };
    let mut listed = BTreeSet::new();
    for record in read(folder) {
        match record.event() {
            Ok(Event::SessionRegistered(e)) => {
                if began.get(&e.session_id) != Some(&record.ts) {
                    let when = began.get(&e.session_id);
                    broken(format!("{} is listed at {}: {when:?}", e.session_id, record.ts));
                }
                if !listed.insert(e.session_id.clone()) {
                    broken(format!("{} is listed again at {}", e.session_id, record.seq));
                }
            }
            Ok(Event::AnchorsRecreated(_)) if spoiled || power_failed => {}
            other => broken(format!("nothing was spoiled, and it says {other:?}")),
        }
    }
    if let Some(unlisted) = began.keys().find(|session| !listed.contains(*session)) {
        broken(format!("{unlisted} is not listed"));
    }
}
