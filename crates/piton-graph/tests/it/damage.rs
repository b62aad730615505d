//! Contents that are damaged: a resume falls back to the newest checkpoint that is intact, and says so.

use std::path::Path;

use piton_core::id::SessionId;
use piton_core::{Code, Event, Seq};
use piton_graph::{
    CheckpointFilter, Graph, ItemContext, LoopBody, LoopContext, LoopStep, MapBody, Node,
    NodeContext, NodeError, Outcome, ValueType, async_trait, checkpoints, custom, map, repeat, set,
    template,
};
use serde_json::{Map, Value, json};

use crate::world::{Ran, World, completed};

struct Doubles;

#[async_trait]
impl MapBody for Doubles {
    async fn item(&self, ctx: &ItemContext) -> Result<Value, NodeError> {
        if ctx.index() == 2 && ctx.value("go")?.is_null() {
            return Err(NodeError::new("`go` is not set"));
        }
        Ok(json!(ctx.item().as_i64().unwrap_or_default() * 2))
    }
}

struct Counts;

#[async_trait]
impl LoopBody for Counts {
    async fn iterate(&self, ctx: &mut LoopContext) -> Result<LoopStep, NodeError> {
        if ctx.iteration() == 2 && ctx.value("go")?.is_null() {
            return Err(NodeError::new("`go` is not set"));
        }
        ctx.say(format!("turn {}", ctx.iteration()))?;
        ctx.set_output("count", ctx.iteration())?;
        Ok(if ctx.iteration() == 3 { LoopStep::Done } else { LoopStep::Continue })
    }
}

struct Leaves;

#[async_trait]
impl Node for Leaves {
    async fn run(&self, ctx: &mut NodeContext) -> Result<(), NodeError> {
        ctx.output("result", "an output")?;
        ctx.artifact("file.txt", "a file").await?;
        ctx.write("x", 7)
    }
}

fn graph() -> Graph {
    Graph::builder("damaged")
        .optional_input("go", ValueType::Boolean)
        .input("name", ValueType::String)
        .node("leaves", custom(Leaves).writes(["x"]))
        .node("greet", template("Hello {{ name }}").writes(["greeting"]))
        .node("map", map("[1, 2, 3]", 1, Doubles).reads(["go"]).writes(["doubled"]))
        .node("loop", repeat(9, Counts).reads(["go"]).writes(["count"]))
        .node(
            "end",
            template("{{ greeting }} {{ x }} {{ doubled | sum }} {{ count }}").writes(["end"]),
        )
        .edge("leaves", "greet")
        .edge("greet", "map")
        .edge("greet", "loop")
        .edge("map", "end")
        .edge("loop", "end")
        .build()
        .unwrap()
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), &target).unwrap();
        }
    }
    let mode = std::fs::metadata(from).unwrap().permissions();
    std::fs::set_permissions(to, mode).unwrap();
}

fn database(folder: &Path) -> std::path::PathBuf {
    folder.join("store.sqlite3")
}

/// One byte of a record's content is another one.
fn damage(folder: &Path, kind: &str, nth: usize) {
    let db = rusqlite::Connection::open(database(folder)).unwrap();
    let rid: i64 = db
        .query_row(
            "SELECT rid FROM records WHERE kind = ?1 AND payload IS NOT NULL ORDER BY rid LIMIT 1 OFFSET ?2",
            (kind, i64::try_from(nth).unwrap()),
            |row| row.get(0),
        )
        .unwrap();
    let mut payload: Vec<u8> = db
        .query_row("SELECT payload FROM records WHERE rid = ?1", [rid], |row| row.get(0))
        .unwrap();
    let middle = payload.len() / 2;
    payload[middle] ^= 1;
    db.execute("UPDATE records SET payload = ?1 WHERE rid = ?2", (payload, rid)).unwrap();
}

fn open(folder: &Path) -> piton_graph::GraphStore {
    piton_graph::open(folder).unwrap()
}

/// Which contents a resume at the log's end needs.
fn is_needed(event: &Event) -> bool {
    matches!(
        event,
        Event::MemoryChanged(_)
            | Event::OutputAdded(_)
            | Event::ArtifactAdded(_)
            | Event::MapListed(_)
            | Event::MapItemCompleted(_)
            | Event::LoopIterated(_)
    )
}

/// Each content of a run is damaged in turn.
#[tokio::test]
async fn each_damage_leads_back_to_the_newest_intact_checkpoint() {
    let world = World::new();
    let (session, outcome) = world.start(&graph(), &[("name", json!("Ada"))]).await;
    assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
    let records = world.records(&session).await;
    let list = |store: piton_graph::GraphStore, session: SessionId| async move {
        let all = CheckpointFilter::default();
        checkpoints::list(store.store(), &session, &all, 1_000).await.unwrap()
    };
    let store = world.store.clone();
    let created: Vec<Seq> = records
        .iter()
        .filter(|record| matches!(record.event().unwrap(), Event::CheckpointCreated(_)))
        .map(|record| record.seq)
        .collect();
    drop((store, world.store));
    let (mut back, mut none, mut kinds) = (0, 0, std::collections::BTreeMap::new());
    for record in records.iter().filter(|r| matches!(r.content, piton_core::Content::Json(_))) {
        let event = record.event().unwrap();
        let nth = kinds.entry(record.kind.to_string()).or_insert(0_usize);
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        copy(world.folder.path(), &data);
        damage(&data, &record.kind, *nth);
        *nth += 1;
        let store = open(&data);
        let go = piton_graph::inputs([("go", true)]);
        let resumed = graph().runner(&store).resume(&session, None, go).await;
        let intact = created.iter().rev().find(|seq| **seq < record.seq);
        let what = format!("{} at {}", record.kind, record.seq);
        match (resumed, is_needed(&event), intact) {
            (Ok(run), true, Some(seq)) => {
                let from = run.resumed_from().cloned().unwrap();
                let entry = list(store.clone(), session.clone()).await;
                let damaged =
                    entry.checkpoints.iter().filter(|entry| !entry.can_resume_from).count();
                let at = checkpoints::load(store.store(), &session, Some(&from)).await.unwrap();
                assert_eq!(at.log_position, *seq, "{what}");
                let later = created.iter().filter(|seq| **seq > record.seq).count();
                assert_eq!(damaged, later, "{what}: those behind it are marked");
                let memory = completed(run.finish().await.unwrap());
                assert_eq!(memory["end"], json!("Hello Ada 7 12 3"), "{what}");
                back += 1;
            }
            (Err(error), true, None) => {
                assert_eq!(error.code(), Code::CheckpointNotFound, "{what}: {error}");
                let text = error.to_string();
                for entry in list(store.clone(), session.clone()).await.checkpoints {
                    assert!(
                        text.contains(entry.checkpoint_id.as_str()),
                        "{what}: each damage is named"
                    );
                    assert!(!entry.can_resume_from, "{what}: and recorded");
                }
                none += 1;
            }
            (Ok(run), false, _) => {
                assert_eq!(
                    checkpoints::view(store.store(), &session).await.unwrap().lineage,
                    1,
                    "{what}"
                );
                completed(run.finish().await.unwrap());
            }
            (resumed, needed, intact) => panic!("{what}: {needed} {intact:?} {resumed:?}"),
        }
    }
    assert!(back >= 6 && none == 1, "{back} fell back, {none} had nothing to fall back to");
}

/// Wants to show: a checkpoint that is asked for by its id is refused, and the log says why.
#[tokio::test]
async fn a_damaged_checkpoint_by_its_id_is_refused_and_recorded() {
    let world = World::new();
    let (session, _) = world.start(&graph(), &[("name", json!("Ada"))]).await;
    let all = CheckpointFilter::default();
    let listed = checkpoints::list(world.store.store(), &session, &all, 100).await.unwrap();
    let newest = listed.checkpoints[0].checkpoint_id.clone();
    let World { folder, store } = world;
    drop(store);
    damage(folder.path(), "output.added", 0);
    let world = World { store: open(folder.path()), folder };
    let refused = graph().runner(&world.store).resume(&session, Some(&newest), Map::new()).await;
    assert_eq!(refused.unwrap_err().code(), Code::CheckpointDamaged);
    let events = world.events_readable(&session).await;
    let noted =
        |event: &Event| matches!(event, Event::CheckpointDamaged(e) if e.checkpoint_id == newest);
    assert!(events.iter().any(noted));
    let damaged = checkpoints::load(world.store.store(), &session, Some(&newest)).await;
    assert!(damaged.is_err(), "what is damaged is not shown as if it were not");
    // Another one is fine.
    completed(world.resume(&graph(), &session, &[("go", json!(true))]).await);
}

/// Wants to show: the signature of a checkpoint changes with what it covers, and a header that was
/// changed is refused.
#[tokio::test]
async fn a_changed_manifest_is_refused() {
    let world = World::new();
    let (session, _) = world.start(&graph(), &[("name", json!("Ada"))]).await;
    let newest = checkpoints::load(world.store.store(), &session, None).await.unwrap();
    assert_eq!(newest.signature.len(), 64);
    let World { folder, store } = world;
    drop(store);
    let db = rusqlite::Connection::open(database(folder.path())).unwrap();
    let changed = db
        .execute(
            "UPDATE records SET header = replace(header, '\"is_clean\":true', '\"is_clean\":false')
             WHERE rid = (SELECT max(rid) FROM records WHERE kind = 'checkpoint.created')",
            [],
        )
        .unwrap();
    assert_eq!(changed, 1);
    drop(db);
    let store = open(folder.path());
    let refused = checkpoints::load(store.store(), &session, None).await.unwrap_err();
    assert!(matches!(refused.code(), Code::ChainBroken | Code::RecordDamaged), "{refused}");
}

/// A graph whose contents are blobs in every store.
fn large(ran: &Ran) -> Graph {
    let text = |of: &str| json!(of.repeat(20_000));
    Graph::builder("large")
        .optional_input("go", ValueType::Boolean)
        .node("a", set([("x", text("a"))]))
        .node("b", set([("y", text("b"))]))
        .node("c", custom(ran.needing("go")).reads(["go", "x", "y"]))
        .edge("a", "b")
        .edge("b", "c")
        .build()
        .unwrap()
}

/// The files of a store's blobs, in a store of plain files.
fn blob_files(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(blob_files(&path));
        } else if path.components().any(|part| part.as_os_str() == "blobs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Wants to show: a content in a blob that is gone or changed leads back to the checkpoint before it, in
/// both stores.
#[tokio::test]
async fn a_damaged_or_missing_blob_leads_back_to_the_checkpoint_before_it() {
    for is_missing in [true, false] {
        let ran = Ran::default();
        let world = World::files();
        let (session, outcome) = world.start(&large(&ran), &[]).await;
        assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
        let World { folder, store } = world;
        drop(store);
        let blobs = blob_files(folder.path());
        assert!(blobs.len() >= 2, "{blobs:?}");
        let mut fell_back = 0;
        for blob in blobs {
            let copied = tempfile::tempdir().unwrap();
            copy(folder.path(), copied.path());
            let blob = copied.path().join(blob.strip_prefix(folder.path()).unwrap());
            std::fs::set_permissions(&blob, std::os::unix::fs::PermissionsExt::from_mode(0o600))
                .unwrap();
            if is_missing {
                std::fs::remove_file(&blob).unwrap();
            } else {
                let mut bytes = std::fs::read(&blob).unwrap();
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
                std::fs::write(&blob, bytes).unwrap();
            }
            let world = World::files_at(copied);
            fell_back += falls_back(&world, &ran, &session).await;
        }
        assert!(fell_back >= 2, "{fell_back} fell back");

        let world = World::new();
        let (session, _) = world.start(&large(&ran), &[]).await;
        let World { folder, store } = world;
        drop(store);
        let db = rusqlite::Connection::open(database(folder.path())).unwrap();
        let count: i64 = db.query_row("SELECT count(*) FROM blobs", [], |row| row.get(0)).unwrap();
        drop(db);
        let mut fell_back = 0;
        for nth in 0..count {
            let copied = tempfile::tempdir().unwrap();
            copy(folder.path(), copied.path());
            let db = rusqlite::Connection::open(database(copied.path())).unwrap();
            let rowid: i64 = db
                .query_row("SELECT rowid FROM blobs LIMIT 1 OFFSET ?1", [nth], |row| row.get(0))
                .unwrap();
            if is_missing {
                db.execute("DELETE FROM blobs WHERE rowid = ?1", [rowid]).unwrap();
            } else {
                let data = "SELECT data FROM blobs WHERE rowid = ?1";
                let mut data: Vec<u8> = db.query_row(data, [rowid], |row| row.get(0)).unwrap();
                let middle = data.len() / 2;
                data[middle] ^= 1;
                let sql = "UPDATE blobs SET data = ?1 WHERE rowid = ?2";
                db.execute(sql, (data, rowid)).unwrap();
            }
            drop(db);
            let world = World { store: open(copied.path()), folder: copied };
            fell_back += falls_back(&world, &ran, &session).await;
        }
        assert!(fell_back >= 2, "{fell_back} of {count} fell back");
    }
}

/// Resumes, and says whether that began at an older checkpoint.
async fn falls_back(world: &World, ran: &Ran, session: &SessionId) -> usize {
    let graph = large(ran);
    let go = piton_graph::inputs([("go", true)]);
    let run = graph.runner(&world.store).resume(session, None, go).await.unwrap();
    let memory = completed(run.finish().await.unwrap());
    assert_eq!(memory["x"], json!("a".repeat(20_000)));
    assert_eq!(memory["y"], json!("b".repeat(20_000)));
    let events = world.events_readable(session).await;
    let noted = events.iter().any(|event| matches!(event, Event::CheckpointDamaged(_)));
    let lineage = checkpoints::view(world.store.store(), session).await.unwrap().lineage;
    assert_eq!(noted, lineage > 1, "the damage is recorded");
    usize::from(lineage > 1)
}

/// Wants to show: one changed byte of any checkpoint's own record leaves the checkpoints before it to be
/// listed, looked at and forked from. Nothing is written behind it: a resume names the command that
/// continues in a session of its own, and that works.
#[tokio::test]
async fn a_changed_checkpoint_leaves_those_before_it() {
    for is_files in [false, true] {
        let ran = Ran::default();
        let world = if is_files { World::files() } else { World::new() };
        let (session, _) = world.start(&large(&ran), &[]).await;
        let records = world.records(&session).await;
        let created: Vec<Seq> = records
            .iter()
            .filter(|record| matches!(record.event().unwrap(), Event::CheckpointCreated(_)))
            .map(|record| record.seq)
            .collect();
        assert!(created.len() >= 3);
        let World { folder, store } = world;
        drop(store);
        for (nth, seq) in created.iter().enumerate() {
            let copied = tempfile::tempdir().unwrap();
            copy(folder.path(), copied.path());
            let world = if is_files {
                change_line(copied.path(), &session, nth);
                World::files_at(copied)
            } else {
                change_header(copied.path(), nth);
                World { store: open(copied.path()), folder: copied }
            };
            let store = world.store.store();
            let what = format!("files: {is_files}, checkpoint {nth} at record {seq}");
            let all = CheckpointFilter::default();
            let refused = large(&ran).runner(&world.store).resume(&session, None, Map::new()).await;
            let error = refused.unwrap_err();
            if nth == 0 {
                assert!(
                    matches!(error.code(), Code::ChainBroken | Code::SessionNotGraph),
                    "{what}: {error}"
                );
                continue;
            }
            assert_eq!(error.code(), Code::ChainBroken, "{what}: {error}");
            let listed = checkpoints::list(store, &session, &all, 100).await.unwrap();
            assert_eq!(listed.total_checkpoints, nth, "{what}");
            let newest = listed.latest_checkpoint_id.clone().unwrap();
            let command = format!("piton sessions fork {session} --checkpoint {newest}");
            assert!(error.hint().contains(&command), "{what}: {}", error.hint());
            let held = checkpoints::load(store, &session, Some(&newest)).await.unwrap();
            assert_eq!(held.log_position, created[nth - 1], "{what}");
            let pruned = checkpoints::prune(&world.store, &session, 1, false).await;
            assert_eq!(pruned.unwrap_err().code(), Code::ChainBroken, "{what}");
            let forked = checkpoints::fork(&world.store, &session, &newest).await.unwrap();
            let go = [("go", json!(true))];
            let memory = completed(world.resume(&large(&ran), &forked, &go).await);
            assert_eq!(memory["y"], json!("b".repeat(20_000)), "{what}");
        }
    }
}

/// One byte of the header of the nth checkpoint is another one.
fn change_header(folder: &Path, nth: usize) {
    let db = rusqlite::Connection::open(database(folder)).unwrap();
    let changed = db
        .execute(
            "UPDATE records SET header = replace(header, '\"is_clean\":true', '\"is_clean\":truf')
             WHERE rid = (SELECT rid FROM records WHERE kind = 'checkpoint.created' ORDER BY rid
                          LIMIT 1 OFFSET ?1)",
            [i64::try_from(nth).unwrap()],
        )
        .unwrap();
    assert_eq!(changed, 1);
}

/// The same in a file.
fn change_line(folder: &Path, session: &SessionId, nth: usize) {
    let mut logs = Vec::new();
    files_named(folder, &format!("{session}.messages.jsonl"), &mut logs);
    let [log] = &logs[..] else { panic!("{logs:?}") };
    let mut bytes = std::fs::read(log).unwrap();
    let kind = b"\"checkpoint.created\"";
    let at = bytes.windows(kind.len()).enumerate().filter(|(_, part)| part == kind);
    let at = at.map(|(at, _)| at).nth(nth).unwrap();
    bytes[at + 3] ^= 1;
    std::fs::write(log, bytes).unwrap();
}

fn files_named(folder: &Path, name: &str, found: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_named(&path, name, found);
        } else if path.file_name().is_some_and(|file| file == name) {
            found.push(path);
        }
    }
}
