//! What following costs: many at once, and coming back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use piton_core::id::BootId;
use piton_store::{Durability, SqliteStore, Store, Tail};
use tokio::sync::mpsc;

use crate::rig::{Result, Rig, Session, many_threads, one_thread, open, text};
use crate::table::{Seen, Table, Target, short};

const TAILS: usize = 1_000;
const CONTENT: usize = 1_024;

/// Appends once and waits until every tail has it.
async fn deliver(
    store: &SqliteStore,
    session: &mut Session,
    arrived: &mut mpsc::UnboundedReceiver<u64>,
    tails: usize,
) -> Result<Duration> {
    let records = vec![session.piece(&text(CONTENT))?];
    let batch = session.batch(records, Durability::Synced);
    let begin = Instant::now();
    let appended = store.append(batch).await?;
    for _ in 0..tails {
        if arrived.recv().await != Some(appended.last) {
            return Err("a tail delivered something else".into());
        }
    }
    Ok(begin.elapsed())
}

pub(crate) fn fan_out(rig: &Rig, table: &mut Table) -> Result<()> {
    const ROUNDS: usize = 100;
    let folder = rig.folder()?;
    let store = open(folder.path())?;
    let boot: BootId = "boot_bench".parse()?;
    let (many, one) = many_threads()?.block_on(async {
        let mut sides = Vec::new();
        for (number, tails) in [(1, TAILS), (2, 1)] {
            let mut session = Session::new(number, &boot)?;
            let after = session.created().len() as u64;
            store.append(session.batch(session.created(), Durability::Synced)).await?;
            let (tell, arrived) = mpsc::unbounded_channel();
            for _ in 0..tails {
                let mut tail = Tail::new(store.clone(), session.id.clone(), after);
                let tell = tell.clone();
                tokio::spawn(async move {
                    while let Ok(records) = tail.next().await {
                        for record in records {
                            if tell.send(record.seq).is_err() {
                                return;
                            }
                        }
                    }
                });
            }
            sides.push((session, arrived, tails, Vec::new()));
        }
        for round in 0..=ROUNDS {
            for (session, arrived, tails, times) in &mut sides {
                let took = deliver(&store, session, arrived, *tails).await?;
                // The first finds tails that do not wait yet.
                if round > 0 {
                    times.push(took);
                }
            }
        }
        let mut times = sides.into_iter().map(|(_, _, _, times)| times);
        let both = times.next().zip(times.next());
        both.ok_or_else(|| Box::<dyn std::error::Error + Send + Sync>::from("two sides"))
    })?;
    let (many, one) = (Seen::millis(&many), Seen::millis(&one));
    table.value(
        "e. One append reaches 1,000 tails, all of them after",
        many.median(),
        "ms",
        Target::None,
        format!(
            "{ROUNDS} rounds in turns with one tail; from the call of a synced append of 1 KB until \
             the last tail's task has the record. Spread {} ms. One tail: median {} ms, spread {} \
             ms.",
            many.spread(),
            short(one.median()),
            one.spread()
        ),
    );
    Ok(())
}

pub(crate) fn reconnect(rig: &Rig, table: &mut Table) -> Result<()> {
    const ROUNDS: usize = 30;
    const BLOCK: usize = 100;
    const MISSED: u64 = 10;
    const LONG: u64 = 100_000;
    const SHORT: u64 = 100;
    let folder = rig.folder()?;
    let store = open(folder.path())?;
    let boot: BootId = "boot_bench".parse()?;
    let runtime = one_thread()?;
    let mut sides = Vec::new();
    for (number, length) in [(1, LONG), (2, SHORT)] {
        let mut session = Session::new(number, &boot)?;
        let content = text(CONTENT);
        let mut appends = vec![store.append(session.batch(session.created(), Durability::Synced))];
        while session.state.last_seq < length {
            let missing = usize::try_from(length - session.state.last_seq)?.min(500);
            let records = (0..missing).map(|_| session.piece(&content)).collect::<Result<_>>()?;
            appends.push(store.append(session.batch(records, Durability::Buffered)));
        }
        runtime.block_on(async {
            for append in appends {
                append.await?;
            }
            Ok::<_, piton_store::Error>(())
        })?;
        sides.push((session.id, length, Vec::new()));
    }
    for round in 0..ROUNDS {
        for turn in 0..2 {
            let Some((session, length, medians)) = sides.get_mut((turn + round) % 2) else {
                continue;
            };
            let times = (0..BLOCK)
                .map(|_| {
                    let begin = Instant::now();
                    let store: Arc<dyn Store> = store.clone();
                    let mut tail = Tail::new(store, session.clone(), *length - MISSED);
                    let records = runtime.block_on(tail.next())?;
                    if records.len() as u64 != MISSED {
                        return Err(format!("{} records", records.len()).into());
                    }
                    Ok(begin.elapsed())
                })
                .collect::<Result<Vec<_>>>()?;
            medians.push(Seen::micros(&times).median());
        }
    }
    let [(_, _, long), (_, _, short_log)] = sides.as_slice() else { return Ok(()) };
    let cell = |medians: &[f64]| format!("{} µs", short(Seen::new(medians.to_vec()).median()));
    table.ratio(
        "e. Reconnect after missing 10 of 100,000 records",
        (cell(long), cell(short_log)),
        Seen::ratios(long, short_log),
        Target::AtMost(2.0),
        format!(
            "{ROUNDS} rounds of {BLOCK} new tails in turns; until the 10 missed records of 1 KB are \
             there; against missing 10 of {SHORT}."
        ),
    );
    Ok(())
}
