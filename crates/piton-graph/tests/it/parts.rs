//! Items of maps and iterations of loops ask people, tell readers things and leave files.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use piton_core::graph::CheckpointType;
use piton_core::id::SessionId;
use piton_core::{Event, Record};
use piton_graph::{
    Graph, ItemContext, LoopBody, LoopContext, LoopStep, MapBody, NodeError, Outcome, answer,
    async_trait, command, map, repeat, set,
};
use serde_json::{Map, Value, json};

use crate::world::{Ran, World, completed};

const VARIABLE: &str = "PITON_TEST_ASKING_DATA";
const SESSION: &str = "sess_asking";

/// Talks to a person: says something, asks in the middle, and says what was answered.
struct Chat(Ran);

#[async_trait]
impl LoopBody for Chat {
    async fn iterate(&self, ctx: &mut LoopContext) -> Result<LoopStep, NodeError> {
        self.0.note(format!("iteration {} attempt {}", ctx.iteration(), ctx.attempt()));
        ctx.say(format!("question {}", ctx.iteration()))?;
        let said = ctx.wait_for("What next?", &[], None).await?;
        let more = ctx.wait_for("And then?", &[], None).await?;
        ctx.say(json!({"said": said, "more": more}))?;
        ctx.set_output("last", said.clone())?;
        Ok(if said == "end" { LoopStep::Done } else { LoopStep::Continue })
    }
}

fn chat(ran: &Ran) -> Graph {
    Graph::builder("chat")
        .node("talk", repeat(5, Chat(ran.clone())).writes(["last"]))
        // Keeps its process alive while the other node waits.
        .node("busy", command(["sh", "-c", "test -e done || sleep 600"]))
        .build()
        .unwrap()
}

/// The test below runs this one in a process of its own.
#[test]
fn asking_process() {
    let Some(data) = std::env::var_os(VARIABLE) else { return };
    let data = PathBuf::from(data);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = piton_graph::open(&data).unwrap();
        let runner = chat(&Ran::default()).runner(&store).working_dir(data.to_str().unwrap());
        let run = runner.session(SESSION.parse().unwrap()).start(Map::new()).await.unwrap();
        run.finish().await.unwrap();
    });
}

/// How often a person was asked. That a run waits on for another answer is said, too, and is no question.
fn asked(records: &[Record]) -> usize {
    let asks = |record: &&Record| record.content_field("question").is_some();
    records.iter().filter(|record| &*record.kind == "run.waiting").filter(asks).count()
}

/// Wants to show: a loop that asks a person in the middle of an iteration and is killed while it waits
/// does not ask again; the iteration runs again and gets the answer.
#[tokio::test]
async fn a_loop_that_is_killed_while_it_waits_does_not_ask_twice() {
    let folder = tempfile::tempdir().unwrap();
    let session: SessionId = SESSION.parse().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "parts::asking_process", "--nocapture"])
        .env(VARIABLE, folder.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    // The log says when it waits; a reader beside the process sees that.
    let waiting = loop {
        assert!(child.try_wait().unwrap().is_none(), "the process ended");
        assert!(Instant::now() < deadline, "it does not ask");
        tokio::time::sleep(Duration::from_millis(10)).await;
        let options = piton_store::sqlite::Options::new(folder.path());
        let Ok(store) = piton_store::SqliteStore::open(options) else { continue };
        let Ok(Some(_)) = piton_store::Store::head(&store, &session).await else { continue };
        let loaded = piton_store::load(&store, &session).await.unwrap().state;
        let waits = loaded.facts.run.map(|run| run.waits).unwrap_or_default();
        if let Some(id) = waits.keys().next() {
            break id.clone();
        }
    };
    child.kill().unwrap();
    child.wait().unwrap();

    std::fs::write(folder.path().join("done"), "").unwrap();
    let store = piton_graph::open(folder.path()).unwrap();
    let world = World { folder, store };
    let ran = Ran::default();
    let graph = chat(&ran);
    let outcome = world.resume(&graph, &session, &[]).await;
    let Outcome::Waiting { waits } = outcome else { panic!("{outcome:?}") };
    assert_eq!((waits.len(), &waits[0].wait_id), (1, &waiting));
    assert_eq!(
        asked(&world.records(&session).await),
        1,
        "asked once, though two attempts came there"
    );
    answer(&world.store, &session, &waiting, json!("on")).await.unwrap();
    let mut answers = ["and on", "end", "and so"].into_iter();
    let mut outcome = world.resume(&graph, &session, &[]).await;
    while let Outcome::Waiting { waits } = &outcome {
        let said = answers.next().unwrap();
        answer(&world.store, &session, &waits[0].wait_id, json!(said)).await.unwrap();
        outcome = world.resume(&graph, &session, &[]).await;
    }
    assert_eq!(completed(outcome)["last"], json!("end"));
    let records = world.records(&session).await;
    let iterations = records.iter().filter(|record| &*record.kind == "loop.iterated");
    let steps = iterations.map(|record| record.content_field("step").unwrap()["messages"].clone());
    assert_eq!(
        steps.collect::<Vec<_>>(),
        [
            json!(["question 0", {"said": "on", "more": "and on"}]),
            json!(["question 1", {"said": "end", "more": "and so"}]),
        ]
    );
    assert_eq!(asked(&world.records(&session).await), 4, "two questions in each of two iterations");
}

struct Approve(Ran);

#[async_trait]
impl MapBody for Approve {
    async fn item(&self, ctx: &ItemContext) -> Result<Value, NodeError> {
        self.0.note(format!("{}", ctx.item()));
        if ctx.item() == "easy" {
            return Ok(json!("done"));
        }
        ctx.stream(format!("about {}; ", ctx.index())).await?;
        ctx.emit(json!({"item": ctx.item()})).await?;
        ctx.artifact(&format!("{}.txt", ctx.index()), "a file").await?;
        ctx.safe_point("before the question").await?;
        let options = ["yes".to_owned(), "no".to_owned()];
        let said = ctx.wait_for(&format!("{}?", ctx.item()), &options, None).await?;
        Ok(said["option_id"].clone())
    }
}

#[tokio::test]
async fn items_of_a_map_wait_side_by_side_and_the_others_go_on() {
    let world = World::new();
    let ran = Ran::default();
    let graph = Graph::builder("approvals")
        .node("list", set([("items", json!(["a", "easy", "b", "easy", "c"]))]))
        .node("each", map("items", 2, Approve(ran.clone())).reads(["items"]).writes(["said"]))
        .edge("list", "each")
        .build()
        .unwrap();
    let (session, outcome) = world.start(&graph, &[]).await;
    let Outcome::Waiting { waits } = outcome else { panic!("{outcome:?}") };
    assert_eq!(waits.len(), 2, "two run side by side, and both wait");
    assert_eq!(ran.all(), ["\"a\"", "\"easy\"", "\"b\""]);
    for wait in &waits {
        answer(&world.store, &session, &wait.wait_id, json!("yes")).await.unwrap();
    }
    let outcome = world.resume(&graph, &session, &[]).await;
    let Outcome::Waiting { waits } = outcome else { panic!("{outcome:?}") };
    assert_eq!(waits.len(), 1, "the last item waits alone");
    answer(&world.store, &session, &waits[0].wait_id, json!("no")).await.unwrap();
    let memory = completed(world.resume(&graph, &session, &[]).await);
    assert_eq!(memory["said"], json!(["yes", "done", "yes", "done", "no"]));
    let events = world.events(&session).await;
    assert_eq!(asked(&world.records(&session).await), 3);
    let is_safe_point = |event: &&Event| matches!(event, Event::CheckpointCreated(e) if e.checkpoint_type == CheckpointType::SafePoint);
    assert!(events.iter().filter(is_safe_point).count() >= 3);
    // The text of an attempt counts on, whichever item it comes from.
    let mut ends = std::collections::BTreeMap::<u32, u64>::new();
    for record in world.records(&session).await {
        if let Event::NodeText(e) = record.event().unwrap() {
            let end = ends.entry(e.attempt).or_default();
            assert_eq!(e.offset, *end);
            *end += record.content_field("text").unwrap().as_str().unwrap().len() as u64;
        }
    }
    assert_eq!(ends[&1], "about 0; about 2; ".len() as u64);
}

/// Fails once behind its safe point.
struct Careful(Ran);

#[async_trait]
impl LoopBody for Careful {
    async fn iterate(&self, ctx: &mut LoopContext) -> Result<LoopStep, NodeError> {
        let point = ctx.last_safe_point().map(str::to_owned);
        self.0.note(format!("{} {point:?} {:?}", ctx.iteration(), ctx.added()));
        if point.is_none() {
            ctx.say("paid")?;
            ctx.set_output("receipt", 7)?;
            ctx.safe_point("paid").await?;
            if ctx.iteration() == 1 {
                return Err(NodeError::new("cut off"));
            }
        }
        Ok(if ctx.iteration() == 2 { LoopStep::Done } else { LoopStep::Continue })
    }
}

#[tokio::test]
async fn an_iteration_begins_behind_its_safe_point() {
    let world = World::new();
    let ran = Ran::default();
    let pay = repeat(5, Careful(ran.clone())).writes(["receipt"]);
    let pay = pay.retry(1, Duration::from_millis(1), Duration::from_millis(1));
    let graph = Graph::builder("careful").node("pay", pay).build().unwrap();
    let (session, outcome) = world.start(&graph, &[]).await;
    assert_eq!(completed(outcome)["receipt"], json!(7));
    let paid = "[String(\"paid\")]";
    assert_eq!(
        ran.all(),
        ["0 None []", "1 None []", &format!("1 Some(\"paid\") {paid}"), "2 None []"]
    );
    let records = world.records(&session).await;
    let steps = records.iter().filter(|record| &*record.kind == "loop.iterated");
    for step in steps {
        assert_eq!(step.content_field("step").unwrap()["messages"], json!(["paid"]));
    }
}
