//! What it costs to check a whole log, beside hashing its bytes.

use std::time::{Duration, Instant};

use piton_core::id::BootId;
use piton_core::{Content, chain};
use piton_store::{Durability, FilesStore, SqliteStore, Store, files, sqlite};

use crate::rig::{Result, Rig, Session, many_threads, text};
use crate::table::{Seen, Table, Target, short};

const RECORDS: usize = 20_000;
const BATCH: usize = 100;
const CONTENT: usize = 1_024;
const ROUNDS: usize = 15;

pub(crate) fn measure(rig: &Rig, table: &mut Table) -> Result<()> {
    let (one, other) = (rig.folder()?, rig.folder()?);
    let sqlite = SqliteStore::open(sqlite::Options::new(one.path()))?;
    let files = FilesStore::open(files::Options::new(other.path()))?;
    against_hashing(&sqlite, "sqlite", table)?;
    against_hashing(&files, "files", table)
}

fn against_hashing(store: &dyn Store, name: &str, table: &mut Table) -> Result<()> {
    let runtime = many_threads()?;
    let boot: BootId = "boot_bench".parse()?;
    let mut session = Session::new(1, &boot)?;
    runtime.block_on(async {
        let created = session.created();
        store.append(session.batch(created, Durability::Synced)).await?;
        for _ in 0..RECORDS / BATCH {
            let records =
                (0..BATCH).map(|_| session.piece(&text(CONTENT))).collect::<Result<Vec<_>>>()?;
            store.append(session.batch(records, Durability::Buffered)).await?;
        }
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
    })?;
    let (key, copied) = runtime.block_on(async {
        let head = store.copy_head(&session.id).await?.ok_or("no log")?;
        let mut all = Vec::new();
        loop {
            let after = all.last().map_or(0, |c: &piton_store::CopiedRecord| c.record.seq);
            let page = store.copy_records(&session.id, after, 1_000).await?;
            if page.is_empty() {
                break;
            }
            all.extend(page);
        }
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>((head.chain_key, all))
    })?;
    let hash = || {
        let begin = Instant::now();
        let mut previous = chain::GENESIS;
        for one in &copied {
            let payload_hash = match &one.record.content {
                Content::Json(json) => Some(key.payload_hash(json.as_bytes())),
                _ => None,
            };
            let link = chain::LinkInput {
                seq: one.record.seq,
                ts: one.record.ts,
                kind: &one.record.kind,
                header: &one.record.header,
                payload_hash,
                batch_left: one.batch_left,
            };
            previous = key.link(&previous, link);
        }
        let sound = copied.last().is_some_and(|last| last.chain == previous);
        if sound { Ok(begin.elapsed()) } else { Err("another chain") }
    };
    let verify = || -> Result<Duration> {
        let begin = Instant::now();
        let found = runtime.block_on(store.verify(&session.id))?;
        let took = begin.elapsed();
        match found.problem {
            None => Ok(took),
            Some(problem) => Err(format!("{problem:?}").into()),
        }
    };
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        for turn in 0..2 {
            if (turn + round) % 2 == 0 {
                ours.push(verify()?.as_secs_f64() * 1e3);
            } else {
                theirs.push(hash()?.as_secs_f64() * 1e3);
            }
        }
    }
    let cells = (
        format!("{} ms", short(Seen::new(ours.clone()).median())),
        format!("{} ms", short(Seen::new(theirs.clone()).median())),
    );
    table.ratio(
        format!("g. verify of {RECORDS} records of 1 KB, {name}"),
        cells,
        Seen::ratios(&ours, &theirs),
        Target::AtMost(3.0),
        format!(
            "{ROUNDS} rounds in turns, in the page cache; Store::verify from the call to the \
             answer; against hashing the same headers and contents with the chain's own keyed hash, \
             record by record, from memory."
        ),
    );
    Ok(())
}
