//! Values of excluded keys: in no byte of the data folder, wherever they pass, and asked for again.

use piton_core::{Code, Event};
use piton_graph::{
    Graph, ItemContext, LoopBody, LoopContext, LoopStep, MapBody, Node, NodeContext, NodeError,
    Outcome, ValueType, async_trait, custom, human, inputs, map, repeat, template,
};
use serde_json::{Map, Value, json};

use crate::world::{Ran, World, bytes_below, completed};

const SECRET: &str = "sk-live-5f2a-never-on-disk-81c3";

fn worlds() -> [World; 2] {
    [World::new(), World::files()]
}

/// No file of the store has the secret, in the clear or in the records.
async fn check_absent(world: &World, session: &piton_core::id::SessionId) {
    let text = format!("{:?}", world.records(session).await);
    assert!(!text.contains(SECRET), "in a record");
    let bytes = bytes_below(world.folder.path());
    let found = bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes());
    assert!(!found, "in a file");
}

/// Says the secret in every way that a node can say something.
struct Tells;

#[async_trait]
impl Node for Tells {
    async fn run(&self, ctx: &mut NodeContext) -> Result<(), NodeError> {
        let secret: String = ctx.read("api_key")?;
        ctx.write("said", format!("it is {secret}"))?;
        ctx.output("told", json!({"inside": [secret.clone()]}))?;
        ctx.emit(json!({"secret": secret})).await?;
        ctx.stream(format!("text {secret}")).await?;
        ctx.artifact("report.txt", format!("report of {secret}")).await?;
        ctx.safe_point(&format!("after {secret}")).await?;
        Err(NodeError::new(format!("failed with {secret}")))
    }
}

struct Echoes;

#[async_trait]
impl MapBody for Echoes {
    async fn item(&self, ctx: &ItemContext) -> Result<Value, NodeError> {
        let secret = ctx.value("api_key")?.as_str().unwrap_or_default().to_owned();
        Ok(match ctx.index() {
            1 => json!(format!("item {secret}")),
            _ => ctx.item().clone(),
        })
    }
}

struct Talks;

#[async_trait]
impl LoopBody for Talks {
    async fn iterate(&self, ctx: &mut LoopContext) -> Result<LoopStep, NodeError> {
        let secret = ctx.value("api_key")?.as_str().unwrap_or_default().to_owned();
        ctx.say(format!("turn {} {secret}", ctx.iteration()))?;
        ctx.set_output("text", format!("so far {secret}"))?;
        Ok(if ctx.iteration() == 1 { LoopStep::Done } else { LoopStep::Continue })
    }
}

#[tokio::test]
async fn no_byte_of_the_folder_has_an_excluded_value() {
    for world in worlds() {
        let graph = Graph::builder("leaky")
            .input("api_key", ValueType::String)
            .input("list", ValueType::Array)
            .node("map", map("list", 2, Echoes).reads(["list", "api_key"]).writes(["items"]))
            .node("loop", repeat(3, Talks).reads(["api_key"]).writes(["text"]))
            .node("tells", custom(Tells).reads(["api_key"]).writes(["said"]))
            .edge("map", "loop")
            .edge("loop", "tells")
            .build()
            .unwrap();
        // The value stands in another input, too.
        let given = [("api_key", json!(SECRET)), ("list", json!(["a", "b", SECRET]))];
        let (session, outcome) = world.start(&graph, &given).await;
        assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
        check_absent(&world, &session).await;
        let events = world.events(&session).await;
        let marked = |event: &&Event| match event {
            Event::MapListed(e) => e.excluded,
            Event::MapItemCompleted(e) => e.excluded,
            Event::LoopIterated(e) => e.excluded,
            Event::OutputAdded(e) => e.excluded,
            Event::ArtifactAdded(e) => e.excluded,
            Event::MemoryChanged(e) => e.excluded,
            _ => false,
        };
        let mut kinds: Vec<&str> = events.iter().filter(marked).map(Event::kind).collect();
        kinds.dedup();
        for kind in
            ["map.listed", "map.item_completed", "loop.iterated", "output.added", "artifact.added"]
        {
            assert!(kinds.contains(&kind), "{kind} is marked: {kinds:?}");
        }
    }
}

/// A process that dies in the middle: the first attempt never ends.
struct Hangs(Ran);

#[async_trait]
impl MapBody for Hangs {
    async fn item(&self, ctx: &ItemContext) -> Result<Value, NodeError> {
        self.0.note(format!("item {}", ctx.index()));
        let secret = ctx.value("api_key")?.as_str().unwrap_or_default().to_owned();
        if ctx.index() == 2 && ctx.attempt() == 1 {
            return Err(NodeError::new("not yet"));
        }
        Ok(if ctx.index() == 0 { json!(secret) } else { json!(ctx.index()) })
    }
}

/// Wants to show: an item whose result cannot be kept runs again instead of coming back masked.
#[tokio::test]
async fn a_masked_item_runs_again_and_others_do_not() {
    let world = World::new();
    let ran = Ran::default();
    let graph = Graph::builder("items")
        .input("api_key", ValueType::String)
        .node("map", map("[1, 2, 3]", 1, Hangs(ran.clone())).reads(["api_key"]).writes(["items"]))
        .node("length", template("{{ items[0] | length }}").writes(["length"]))
        .edge("map", "length")
        .build()
        .unwrap();
    let (session, outcome) = world.start(&graph, &[("api_key", json!(SECRET))]).await;
    assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
    let world = world.reopened();
    let memory = completed(world.resume(&graph, &session, &[("api_key", json!(SECRET))]).await);
    assert_eq!(ran.all(), ["item 0", "item 1", "item 2", "item 0", "item 2"]);
    assert_eq!(memory["length"], json!(SECRET.len().to_string()));
    check_absent(&world, &session).await;
}

struct Once;

#[async_trait]
impl LoopBody for Once {
    async fn iterate(&self, ctx: &mut LoopContext) -> Result<LoopStep, NodeError> {
        if ctx.iteration() == 1 && ctx.attempt() == 1 {
            return Err(NodeError::new("not yet"));
        }
        let secret = ctx.value("api_key")?.as_str().unwrap_or_default().to_owned();
        ctx.say(format!("turn {secret}"))?;
        Ok(if ctx.iteration() == 1 { LoopStep::Done } else { LoopStep::Continue })
    }
}

/// Wants to show: what a resume restores with a mask in it is named.
#[tokio::test]
async fn a_masked_conversation_is_named_on_resume() {
    let world = World::new();
    let graph = Graph::builder("talk")
        .input("api_key", ValueType::String)
        .node("loop", repeat(5, Once).reads(["api_key"]))
        .build()
        .unwrap();
    let (session, _) = world.start(&graph, &[("api_key", json!(SECRET))]).await;
    let world = world.reopened();
    let set = inputs([("api_key", json!(SECRET))]);
    let run = graph.runner(&world.store).resume(&session, None, set).await.unwrap();
    assert_eq!(run.masked(), ["iteration 1 of `loop`"]);
    completed(run.finish().await.unwrap());
    check_absent(&world, &session).await;
}

fn asking() -> Graph {
    Graph::builder("asking")
        .node("ask", human("Your key?").writes(["api_key"]))
        .node("use", template("{{ api_key | length }}").writes(["length"]))
        .edge("ask", "use")
        .build()
        .unwrap()
}

/// Keeps the run open until the question is answered.
struct Waits(std::sync::Arc<tokio::sync::Notify>);

#[async_trait]
impl Node for Waits {
    async fn run(&self, _ctx: &mut NodeContext) -> Result<(), NodeError> {
        self.0.notified().await;
        Ok(())
    }
}

/// Wants to show: an answer that becomes the value of an excluded key is nowhere on the disk.
#[tokio::test]
async fn a_secret_answer_is_not_written() {
    for world in worlds() {
        let done = std::sync::Arc::new(tokio::sync::Notify::new());
        let graph = Graph::builder("asking")
            .node("ask", human("Your key?").writes(["api_key"]))
            .node("use", template("{{ api_key | length }}").writes(["length"]))
            .node("other", custom(Waits(done.clone())))
            .edge("ask", "use")
            .build()
            .unwrap();
        let (to, mut progress) = tokio::sync::mpsc::unbounded_channel();
        let run = graph.runner(&world.store).progress(to).start(Map::new()).await.unwrap();
        let (session, handle) = (run.session().clone(), run.handle());
        let running = tokio::spawn(run.finish());
        let wait = loop {
            if let piton_graph::Progress::NodeWaiting { wait_id, .. } =
                progress.recv().await.unwrap()
            {
                break wait_id;
            }
        };
        assert!(handle.answer(wait, json!(SECRET)).await.unwrap());
        done.notify_one();
        let memory = completed(running.await.unwrap().unwrap());
        assert_eq!(memory["length"], json!(SECRET.len().to_string()));
        check_absent(&world, &session).await;
    }
}

/// Wants to show: nothing runs that could take the answer, so it is refused, and set on resume instead.
#[tokio::test]
async fn a_secret_answer_to_a_run_that_stands_still_is_set_on_resume() {
    for world in worlds() {
        let (session, outcome) = world.start(&asking(), &[]).await;
        let Outcome::Waiting { waits } = outcome else { panic!("{outcome:?}") };
        let refused =
            piton_graph::answer(&world.store, &session, &waits[0].wait_id, json!(SECRET)).await;
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), Code::MemoryValueRequired);
        assert!(refused.hint().contains("--set api_key="), "{}", refused.hint());
        let memory =
            completed(world.resume(&asking(), &session, &[("api_key", json!(SECRET))]).await);
        assert_eq!(memory["length"], json!(SECRET.len().to_string()));
        check_absent(&world, &session).await;
    }
}

struct SafeSecret(Ran);

#[async_trait]
impl Node for SafeSecret {
    async fn run(&self, ctx: &mut NodeContext) -> Result<(), NodeError> {
        if ctx.last_safe_point().is_none() {
            ctx.write("api_key", SECRET)?;
            ctx.safe_point("fetched").await?;
            return Err(NodeError::new("cut off"));
        }
        self.0.note(ctx.read::<String>("api_key")?);
        Ok(())
    }
}

/// Wants to show: what a safe point could not keep is asked for by name, and given back to the node.
#[tokio::test]
async fn a_safe_point_names_what_it_could_not_keep() {
    let world = World::new();
    let ran = Ran::default();
    let graph = Graph::builder("safe")
        .node("fetch", custom(SafeSecret(ran.clone())).writes(["api_key"]))
        .node("use", template("{{ api_key | length }}").writes(["length"]))
        .edge("fetch", "use")
        .build()
        .unwrap();
    let (session, _) = world.start(&graph, &[]).await;
    let world = world.reopened();
    let refused = graph.runner(&world.store).resume(&session, None, Map::new()).await.unwrap_err();
    assert_eq!(refused.code(), Code::MemoryValueRequired);
    assert!(refused.to_string().ends_with(": api_key"), "{refused}");
    let memory = completed(world.resume(&graph, &session, &[("api_key", json!(SECRET))]).await);
    assert_eq!(
        (ran.all(), &memory["length"]),
        (vec![SECRET.to_owned()], &json!(SECRET.len().to_string()))
    );
    check_absent(&world, &session).await;
}

fn ssn_excluded() -> piton_graph::CheckpointOptions {
    let excluded = json!({"exclude_memory_keys": ["ssn"], "max_checkpoints_per_session": 7});
    serde_json::from_value(excluded).unwrap()
}

/// Wants to show: what one execution excluded stays excluded in the next one, which does not say so: in a
/// resume, in a fork, and behind an older checkpoint.
#[tokio::test]
async fn a_key_that_was_excluded_once_stays_excluded() {
    for world in worlds() {
        let graph = Graph::builder("once")
            .optional_input("ssn", ValueType::String)
            .node("use", custom(Ran::default().needing("ssn")).reads(["ssn"]))
            .node("copy", template("{{ ssn }}").reads(["ssn"]).writes(["ssn_copy"]))
            .edge("use", "copy")
            .build()
            .unwrap();
        let run = graph.runner(&world.store).checkpoints(ssn_excluded());
        let run = run.start(Map::new()).await.unwrap();
        let session = run.session().clone();
        let Outcome::Failed(failure) = run.finish().await.unwrap() else { panic!() };
        let checkpoint = failure.checkpoint.unwrap();
        let store = world.store.store();
        let forked = piton_graph::checkpoints::fork(&world.store, &session, &checkpoint);
        let forked = forked.await.unwrap();
        for (session, from) in [(&session, None), (&forked, None), (&session, Some(&checkpoint))] {
            let set = inputs([("ssn", SECRET)]);
            let run = graph.runner(&world.store).resume(session, from, set).await.unwrap();
            let memory = completed(run.finish().await.unwrap());
            assert_eq!(memory["ssn_copy"], json!(SECRET));
            check_absent(&world, session).await;
            let view = piton_graph::checkpoints::view(store, session).await.unwrap();
            assert_eq!(view.checkpoint_options, ssn_excluded());
        }
        // One record says it; the executions that add nothing repeat nothing.
        let events = world.events(&session).await;
        let said = events.iter().filter(|event| matches!(event, Event::GraphConfigured(_)));
        assert_eq!(said.count(), 1);
    }
}
