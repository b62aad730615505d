//! The server: HTTP, server-sent events and sockets over the session service. It translates
//! and decides nothing.

mod api;
mod app;
mod audit;
mod connections;
mod events;
mod extract;
mod frames;
mod guard;
mod index;
mod limits;
mod metrics;
mod notify;
mod openapi;
mod problem;
mod serve;
mod sockets;
mod stall;
mod web;

pub use app::{Doctor, Options, Reload, ReloadError};
pub use connections::ConnectionLimits;
pub use limits::Rate;
pub use notify::{Endpoint, EndpointError, Notify, NotifyEvent};
pub use openapi::description;
pub use serve::{Server, Tls, TlsError};
pub use sockets::{OPERATIONS, Operation};
pub use web::WebFiles;
