//! Every error has the same form, with a code that has a page.

use piton_api::client::{Client, Error};
use piton_api::problem::Problem;
use piton_core::Code;

use crate::world::World;

async fn problem(client: &Client, verb: &str, path: &str, body: &str) -> Problem {
    match client.raw(verb, path, body).await {
        Err(Error::Problem(problem)) => *problem,
        other => panic!("{verb} {path}: {other:?}"),
    }
}

/// Wants to show: each problem names its code, its status and what to do about it.
#[tokio::test(flavor = "multi_thread")]
async fn problems_are_typed() {
    let world = World::start().await;
    let nobody = Client::new(world.client.endpoint().unwrap().address, "no token");
    for (client, verb, path, body, status, code) in [
        (&world.client, "GET", "/api/v1/sessions/sess_none", "", 404, Code::SessionNotFound),
        (&world.client, "GET", "/api/v1/sessions/a%20b", "", 400, Code::IdInvalid),
        (&world.client, "GET", "/api/v1/nothing", "", 404, Code::NotFound),
        (&world.client, "DELETE", "/api/v1/sessions", "", 405, Code::MethodNotAllowed),
        (&world.client, "POST", "/api/v1/sessions", "[]", 400, Code::RequestInvalid),
        (&world.client, "POST", "/api/v1/sessions", "{\"wrong\":1}", 400, Code::RequestInvalid),
        (&world.client, "GET", "/api/v1/tasks/task_none", "", 404, Code::TaskNotFound),
        (&nobody, "GET", "/api/v1/sessions", "", 401, Code::Unauthenticated),
    ] {
        let problem = problem(client, verb, path, body).await;
        assert_eq!((problem.status, problem.code.known()), (status, Some(code)), "{verb} {path}");
        assert_eq!(problem.kind, format!("urn:piton:error:{code}"));
        assert_eq!(problem.hint, code.hint());
        assert!(!problem.title.is_empty());
    }
}
