//! A prompt with a large image, beside the store's own append of as much.

use std::sync::Arc;
use std::time::{Duration, Instant};

use piton_core::event::{MessageUser, SessionCreated, SessionLeased};
use piton_core::id::{BootId, SessionId};
use piton_core::{NewRecord, Timestamp};
use piton_store::{Batch, Durability, Guard, SqliteStore, Store, WritableRecords, sqlite};
use serde_json::{Value, json};

use crate::Result;
use crate::rig;
use crate::sizes::start_with;
use crate::table::{Seen, Table, Target, short};

const ROUNDS: usize = 40;
const IMAGE_BYTES: usize = 5_000_000;

/// Bytes that no compression makes smaller, as base64 has them.
fn image(seed: u64) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let digit = |_| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        char::from(DIGITS[(random >> 58) as usize])
    };
    (0..IMAGE_BYTES / 3 * 4).map(digit).collect()
}

fn content(data: &str) -> Value {
    let image = json!({"type": "image", "data": data, "mimeType": "image/png"});
    json!([{"type": "text", "text": "say seen"}, image])
}

pub(crate) fn measure(table: &mut Table) -> Result<()> {
    let folder = rig::folder()?;
    let runtime = rig::runtime()?;
    let (server, _) = start_with(&folder.path().join("data"), |_| {})?;
    let made =
        server.ask("POST", "/api/v1/sessions", Some(&json!({"agent_profile_id": "echo"})))?;
    let session = made["session_id"].as_str().ok_or("no session")?.to_owned();
    let path = format!("/api/v1/sessions/{session}/messages");
    let options = sqlite::Options::new(folder.path().join("plain"));
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(options)?);
    let (plain, boot): (SessionId, BootId) = ("sess_plain".parse()?, "boot_bench".parse()?);
    let mut last = 0;
    let mut append = |records: Vec<NewRecord>| -> Result<Duration> {
        let added = records.len() as u64;
        let guard = Guard::Lease { boot: boot.clone(), epoch: 1 };
        let (session, summary, durability) = (plain.clone(), None, Durability::Synced);
        let records = WritableRecords::verbatim(records);
        let batch = Batch { session, expected: last, guard, records, durability, summary };
        let begun = Instant::now();
        runtime.block_on(store.append(batch))?;
        last += added;
        Ok(begun.elapsed())
    };
    let now = Timestamp::from_millis(1_771_668_000_000);
    let created = SessionCreated {
        session_id: plain.clone(),
        title: None,
        task_id: None,
        working_dir: None,
        provider: None,
        agent_profile_id: None,
    };
    let leased = SessionLeased { boot_id: boot.clone(), epoch: 1 };
    append(vec![NewRecord::new(now, created), NewRecord::new(now, leased)])?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        for turn in 0..2 {
            let data = image((2 * round + turn) as u64);
            if (turn + round) % 2 == 0 {
                let body = json!({"content": content(&data)}).to_string();
                let begun = Instant::now();
                let said = server.ask_text("POST", &path, &body)?;
                ours.push(begun.elapsed());
                let is_done = |status: &Value| {
                    status["status"] == "idle" && status["run_id"] == said["run_id"]
                };
                server.when(&session, is_done)?;
            } else {
                let message_id = format!("msg_{round}").parse()?;
                // Of one record: 5 MB of content, no more.
                let content = content(&data[..IMAGE_BYTES]);
                let event = MessageUser { message_id, run_id: None };
                let said = NewRecord::with_content(now, event, "content", content);
                theirs.push(append(vec![said])?);
            }
        }
    }
    server.ask("POST", &format!("/api/v1/sessions/{session}/close"), Some(&json!({})))?;
    server.end()?;
    let (our, their) = (Seen::millis(&ours), Seen::millis(&theirs));
    let seconds = |times: &[Duration]| times.iter().map(Duration::as_secs_f64).collect::<Vec<_>>();
    table.ratio(
        "r. A prompt with an image of 5 MB, p50",
        (format!("{} ms", short(our.median())), format!("{} ms", short(their.median()))),
        Seen::ratios(&seconds(&ours), &seconds(&theirs)),
        Target::AtMost(1.5),
        format!(
            "POST /messages to the real server and its echo agent, from the connection to the answer, when the prompt is durable; the image is 6.7 MB of base64 on the wire; {ROUNDS} rounds in turns with a synced append of one record with 5 MB of content to another store in the same folder; requests {} ms, appends {} ms",
            our.spread(),
            their.spread()
        ),
    );
    Ok(())
}
