//! Speaking to an agentctl as a server does.

use piton_core::id::SessionId;
use piton_exec::client::Client;
use piton_exec::protocol::{Act, Command, Health};
use serde_json::{Value, json};

use super::fixture::{Fixture, SESSION};

/// What a server needs to speak to an agentctl.
pub(crate) struct At {
    socket: std::path::PathBuf,
    secret: [u8; 32],
    pub(crate) epoch: u64,
}

impl At {
    pub(crate) fn of(bench: &Fixture, execution: &str) -> Self {
        let session: SessionId = SESSION.parse().expect("an id");
        let (secret, epoch) = block_on(async {
            let store = bench.kind.open_to_read(&bench.data()).expect("there is a store");
            let copied = store.copy_head(&session).await.expect("readable").expect("there");
            let head = store.head(&session).await.expect("readable").expect("there");
            (copied.chain_key.derive(&format!("execution {execution}")), head.lease.epoch)
        });
        let socket = bench.data().join("run").join(format!("{execution}.sock"));
        Self { socket, secret, epoch }
    }

    /// The code that refuses the late command of a server that owned the session until now.
    pub(crate) fn late_answer(&self, wait_id: &Value) -> String {
        let wait_id = serde_json::from_value(wait_id.clone()).expect("an id");
        let answer = Some(json!({"option_id": "reject_once"}));
        let command = Command { id: "late".to_owned(), act: Act::Answer { wait_id, answer } };
        block_on(async {
            let refused = self.client().command(&command).await;
            refused.expect_err("too late").code().to_string()
        })
    }

    pub(crate) fn health(&self) -> Health {
        block_on(async { self.client().health().await.expect("it answers") })
    }

    fn client(&self) -> Client {
        Client::new(&self.socket, &self.secret, self.epoch)
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(future)
}
