//! Contents that are damaged: a resume falls back to the newest checkpoint that is intact, and says so.

use std::path::Path;

use piton_core::id::SessionId;
use piton_core::{Code, Event, Seq};
use piton_graph::{
    CheckpointFilter, Graph, ItemContext, LoopBody, LoopContext, LoopStep, MapBody, Node,
    NodeContext, NodeError, Outcome, ValueType, async_trait, checkpoints, custom, map, repeat,
    template,
};
use serde_json::{Map, Value, json};

use crate::world::{World, completed};

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
