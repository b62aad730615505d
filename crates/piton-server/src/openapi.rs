//! The routes, and the description that is made from them.

use axum::Json;
use axum::extract::State;
use axum::routing::get;
use axum::{Router, middleware};
use piton_api::problem::Problem as Document;
use piton_api::socket_event::SocketEvent;
use piton_core::Code;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{OpenApi, SecurityRequirement};
use utoipa::{Modify, OpenApi as _};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::api::{
    access, agent, agent_sessions, agents, finishing, graphs, health, queue, records, removal,
    rewind, sessions, store, tasks, waits, workspace, worktrees,
};
use crate::app::App;
use crate::problem::Problem;
use crate::sockets::{conversation, shell};
use crate::{audit, events, guard, index, web};

#[derive(Debug, utoipa::OpenApi)]
#[openapi(
    info(
        title = "Piton",
        description = "Durable, resumable sessions with AI agents. Every change is a record in a session's log, and every response and event is sent after its records are durable.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0"),
    ),
    servers((url = "/", description = "The server that serves this description")),
    components(schemas(Document, SocketEvent)),
    modifiers(&Bearer),
)]
struct Description;

struct Bearer;

impl Modify for Bearer {
    fn modify(&self, description: &mut OpenApi) {
        let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        if let Some(components) = &mut description.components {
            components.add_security_scheme("bearer", scheme);
        }
        description.security = Some(vec![SecurityRequirement::new("bearer", [""; 0])]);
    }
}

/// What is under `/api/v1`, and its description.
fn api() -> (Router<App>, OpenApi) {
    OpenApiRouter::with_openapi(Description::openapi())
        .nest(
            "/api/v1",
            OpenApiRouter::new()
                .routes(routes!(tasks::create, tasks::list))
                .routes(routes!(tasks::show, tasks::update, tasks::delete))
                .routes(routes!(sessions::create, sessions::list))
                .routes(routes!(sessions::show, sessions::rename, sessions::delete))
                .routes(routes!(sessions::assign_agent))
                .routes(routes!(sessions::show_status))
                .routes(routes!(removal::redact))
                .routes(routes!(removal::archive))
                .routes(routes!(queue::prompt, records::messages))
                .routes(routes!(queue::list, queue::add))
                .routes(routes!(queue::show, queue::edit, queue::remove))
                .routes(routes!(queue::release))
                .routes(routes!(sessions::start))
                .routes(routes!(sessions::open))
                .routes(routes!(sessions::resume))
                .routes(routes!(sessions::pause))
                .routes(routes!(sessions::cancel))
                .routes(routes!(sessions::dismiss))
                .routes(routes!(sessions::close))
                .routes(routes!(sessions::stop))
                .routes(routes!(sessions::abandon))
                .routes(routes!(graphs::run))
                .routes(routes!(graphs::show))
                .routes(routes!(graphs::resume))
                .routes(routes!(graphs::timeline))
                .routes(routes!(graphs::artifacts))
                .routes(routes!(graphs::artifact))
                .routes(routes!(graphs::list))
                .routes(routes!(graphs::diff))
                .routes(routes!(graphs::prune))
                .routes(routes!(graphs::inspect, graphs::delete))
                .routes(routes!(records::records))
                .routes(routes!(records::bootstrap))
                .routes(routes!(records::verify))
                .routes(routes!(records::audit))
                .routes(routes!(store::verify))
                .routes(routes!(store::prune))
                .routes(routes!(events::session_events))
                .routes(routes!(index::index_events))
                .routes(routes!(conversation::connect))
                .routes(routes!(workspace::list_files))
                .routes(routes!(workspace::read_file, workspace::write_file))
                .routes(routes!(workspace::git_status))
                .routes(routes!(workspace::workspace_truth))
                .routes(routes!(workspace::git_diff))
                .routes(routes!(workspace::git_log))
                .routes(routes!(finishing::branch))
                .routes(routes!(finishing::commit))
                .routes(routes!(finishing::merge))
                .routes(routes!(finishing::push))
                .routes(routes!(workspace::open_shell, workspace::list_shells))
                .routes(routes!(workspace::end_shell))
                .routes(routes!(shell::attach))
                .routes(routes!(worktrees::repair, worktrees::clean_up))
                .routes(routes!(rewind::checkpoints))
                .routes(routes!(rewind::rewind))
                .routes(routes!(rewind::undo))
                .routes(routes!(rewind::diff))
                .routes(routes!(waits::list))
                .routes(routes!(waits::get))
                .routes(routes!(waits::answer))
                .routes(routes!(waits::rotate))
                .routes(routes!(waits::mint))
                .routes(routes!(waits::answer_with_token))
                .routes(routes!(agent::show, agent::configure))
                .routes(routes!(agent::log_in))
                .routes(routes!(agent_sessions::list))
                .routes(routes!(agent_sessions::delete))
                .routes(routes!(agent_sessions::close))
                .routes(routes!(agent_sessions::fork))
                .routes(routes!(agents::agents))
                .routes(routes!(agents::executors))
                .routes(routes!(health::reload))
                .routes(routes!(health::examine))
                .routes(routes!(access::create, access::list))
                .routes(routes!(access::revoke))
                .routes(routes!(access::link))
                .routes(routes!(access::sign_in)),
        )
        .routes(routes!(health::health))
        .routes(routes!(health::ready))
        .routes(routes!(health::metrics))
        .split_for_parts()
}

/// The description of the API, as `OpenAPI` 3.1.
pub fn description() -> OpenApi {
    api().1
}

pub(crate) fn router(app: App) -> Router {
    let (router, mut description) = api();
    description.info.version.clone_from(&app.options().version);
    let described = move || std::future::ready(Json(description.clone()));
    router
        .route("/api/v1/openapi.json", get(described))
        .fallback(web::serve)
        .method_not_allowed_fallback(|| async {
            Problem::new(Code::MethodNotAllowed, "This cannot be done here")
        })
        .layer(middleware::from_fn_with_state(app.clone(), guard::check))
        .layer(middleware::from_fn_with_state(app.clone(), audit::note))
        .layer(middleware::from_fn_with_state(app.clone(), count))
        .with_state(app)
}

async fn count(
    State(app): State<App>,
    request: axum::extract::Request,
    next: middleware::Next,
) -> axum::response::Response {
    let response = next.run(request).await;
    app.metrics().requests.inc();
    if response.status().is_client_error() || response.status().is_server_error() {
        app.metrics().problems.inc();
    }
    response
}
