//! A request that appends, beside the store's own append.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use piton_core::event::{SessionCreated, SessionLeased, ToolIntent};
use piton_core::id::{BootId, SessionId};
use piton_core::{NewRecord, Timestamp};
use piton_store::{Batch, Durability, Guard, WritableRecords};

use crate::Result;
use crate::rig::{self, Rig};
use crate::table::{Seen, Table, Target, short};

const ROUNDS: usize = 100;
const IN_A_ROUND: usize = 10;

/// A client that keeps its connection.
struct Client {
    stream: TcpStream,
    head: String,
    buffer: Vec<u8>,
}

impl Client {
    fn new(rig: &Rig) -> Result<Self> {
        let stream = TcpStream::connect(&rig.address)?;
        stream.set_nodelay(true)?;
        let head = format!(
            "POST /api/v1/tasks HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n",
            rig.address, rig.token
        );
        Ok(Self { stream, head, buffer: vec![0; 16 * 1024] })
    }

    fn post(&mut self, body: &str) -> Result<()> {
        let request = format!("{}content-length: {}\r\n\r\n{body}", self.head, body.len());
        self.stream.write_all(request.as_bytes())?;
        let mut got = 0;
        loop {
            let read = self.stream.read(&mut self.buffer[got..])?;
            if read == 0 {
                return Err("the server hung up".into());
            }
            got += read;
            let text = String::from_utf8_lossy(&self.buffer[..got]);
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            if !head.starts_with("HTTP/1.1 201") {
                return Err(text.into_owned().into());
            }
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.ok_or("no length")?.parse()? {
                return Ok(());
            }
        }
    }
}

pub(crate) fn measure(table: &mut Table) -> Result<()> {
    let folder = rig::folder()?;
    let runtime = rig::runtime()?;
    let rig = runtime.block_on(Rig::start(&folder.path().join("data")))?;
    let mut client = Client::new(&rig)?;
    let session: SessionId = "sess_plain".parse()?;
    let boot: BootId = "boot_bench".parse()?;
    let mut last = 0;
    let mut append = |records: Vec<NewRecord>| -> Result<Duration> {
        let added = records.len() as u64;
        let guard = Guard::Lease { boot: boot.clone(), epoch: 1 };
        let durability = Durability::Synced;
        let (session, summary) = (session.clone(), None);
        let records = WritableRecords::verbatim(records);
        let batch = Batch { session, expected: last, guard, records, durability, summary };
        let begun = Instant::now();
        runtime.block_on(rig.store.append(batch))?;
        last += added;
        Ok(begun.elapsed())
    };
    let now = Timestamp::from_millis(1_771_668_000_000);
    let created = SessionCreated {
        session_id: session.clone(),
        title: None,
        task_id: None,
        working_dir: None,
        provider: None,
        agent_profile_id: None,
    };
    let leased = SessionLeased { boot_id: boot.clone(), epoch: 1 };
    append(vec![NewRecord::new(now, created), NewRecord::new(now, leased)])?;
    let intent = ToolIntent {
        run_id: "run_1".parse()?,
        call_id: "call_1".parse()?,
        name: "a call".to_owned(),
    };
    let mut one = || append(vec![NewRecord::new(now, intent.clone())]);
    let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for at in 0..IN_A_ROUND {
            for turn in 0..2 {
                if (turn + round) % 2 == 0 {
                    let body = format!("{{\"title\":\"Task {round} {at}\"}}");
                    let begun = Instant::now();
                    client.post(&body)?;
                    a.push(begun.elapsed());
                } else {
                    b.push(one()?);
                }
            }
        }
        ratios.push(Seen::micros(&a).median() / Seen::micros(&b).median());
        ours.extend(a);
        theirs.extend(b);
    }
    runtime.block_on(rig.end());
    let (ours, theirs) = (Seen::micros(&ours), Seen::micros(&theirs));
    table.ratio(
        "l. POST that appends, p50",
        (format!("{} µs", short(ours.median())), format!("{} µs", short(theirs.median()))),
        Seen::new(ratios),
        Target::AtMost(2.0),
        format!(
            "POST /tasks over a kept connection, from the first byte written to the last read, {ROUNDS} rounds of {IN_A_ROUND} in turns with a synced append of one record to the same store; single requests {}, single appends {}",
            ours.spread(),
            theirs.spread()
        ),
    );
    Ok(())
}
