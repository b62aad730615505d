//! The example program of `piton-api`, against a real server.

#[path = "../../../../piton-api/examples/session.rs"]
#[expect(dead_code, unreachable_pub, reason = "it is a program of its own")]
mod session;

use piton_api::client::Client;

use crate::server::world::World;

/// It finds the server through its data folder, creates a session, prompts, answers a permission,
/// and follows the records to the end of the run.
#[test]
fn the_example_program_holds_a_conversation() {
    let world = World::new();
    let client = Client::of_data_folder(&world.data());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let prompt = "say hello\nask May I?\nsay thanks";
    let (said, ended) = runtime.block_on(session::converse(&client, prompt)).unwrap();
    assert_eq!(ended, "run.completed");
    let (hello, thanks) = (said.find("hello"), said.find("thanks"));
    assert!(hello.is_some() && hello < thanks, "{said}");
}
