//! Events to many readers, who are a process of their own: as they are published, one at a time, and
//! all over again after a restart.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use piton_core::id::{MessageId, SessionId};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::Result;
use crate::rig::{self, Rig};
use crate::table::{Seen, Table, Target, short};

const READERS: usize = 100;
const WRITERS: usize = 32;
const EVENTS: usize = 32_000;
const PACED: usize = 300;
const PACE: Duration = Duration::from_millis(10);
const CROWD: usize = 1_000;
const CROWD_EVENTS: usize = 100;
const REPLAYED: usize = 10_000;
const REPLAYS: usize = 5;
const READ_MAX: usize = 256;

fn now_us() -> Result<u128> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros())
}

/// The other process: so many readers, until each has so many events. Says `ready`, then how many
/// events were late by how many microseconds, then `done`.
pub(crate) fn read(arguments: &[String]) -> Result<()> {
    let [address, token, session, readers, events, after, timed] = arguments else {
        return Err("address, token, session, readers, events, after, timed".into());
    };
    let (readers, events): (usize, usize) = (readers.parse()?, events.parse()?);
    let timed = timed == "timed";
    let request = format!(
        "GET /api/v1/sessions/{session}/events?after={after} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\n\r\n"
    );
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut all = tokio::task::JoinSet::new();
        let (ready, mut began) = tokio::sync::mpsc::channel(readers);
        for _ in 0..readers {
            let (address, request, ready) = (address.clone(), request.clone(), ready.clone());
            all.spawn(async move {
                let mut stream = TcpStream::connect(&address).await?;
                stream.write_all(request.as_bytes()).await?;
                one(&mut stream, events, timed, &ready).await
            });
        }
        for _ in 0..readers {
            began.recv().await.ok_or("a reader ended")?;
        }
        println!("ready");
        let mut late = Vec::new();
        while let Some(ended) = all.join_next().await {
            late.extend(ended??);
        }
        println!("done");
        for micros in late {
            println!("{micros}");
        }
        Result::Ok(())
    })
}

/// Counts events by their names, which no text of ours contains.
async fn one(
    stream: &mut TcpStream,
    events: usize,
    timed: bool,
    ready: &tokio::sync::mpsc::Sender<()>,
) -> Result<Vec<u64>> {
    const MARK: &[u8] = b"\nevent: ";
    const TEXT: &[u8] = b"\"text\":\"@";
    let marks = memchr::memmem::Finder::new(MARK);
    let texts = memchr::memmem::Finder::new(TEXT);
    let (mut buffer, mut kept, mut seen) = (vec![0; 256 * 1024], 0, 0);
    let (mut late, mut is_ready) = (Vec::new(), false);
    while seen < events {
        let read = stream.read(&mut buffer[kept..]).await?;
        if read == 0 {
            return Err(format!("ended after {seen} of {events}").into());
        }
        if !is_ready {
            is_ready = true;
            ready.send(()).await?;
        }
        let have = &buffer[..kept + read];
        seen += marks.find_iter(have).count();
        let mut rest = 0;
        if timed {
            let now = now_us()?;
            for at in texts.find_iter(have) {
                let Some(moment) = have.get(at + TEXT.len()..at + TEXT.len() + 16) else { break };
                let moment: u128 = std::str::from_utf8(moment)?.parse()?;
                late.push(u64::try_from(now.saturating_sub(moment))?);
            }
            // Events that are paced come whole.
        } else {
            // A name may be cut in two.
            rest = (MARK.len() - 1).min(have.len());
        }
        let from = have.len() - rest;
        buffer.copy_within(from..from + rest, 0);
        kept = rest;
    }
    Ok(late)
}

struct Readers {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Readers {
    fn start(
        rig: &Rig,
        session: &SessionId,
        counts: (usize, usize, usize),
        timed: bool,
    ) -> Result<Self> {
        let (readers, events, after) = counts;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--read").args([&rig.address, &rig.token]).arg(session.as_str());
        command.args([readers, events, after].map(|count| count.to_string()));
        command.arg(if timed { "timed" } else { "counted" });
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let lines = BufReader::new(child.stdout.take().ok_or("no output")?);
        Ok(Self { child, lines })
    }

    fn until(&mut self, wanted: &str) -> Result<()> {
        let mut line = String::new();
        self.lines.read_line(&mut line)?;
        if line.trim() == wanted { Ok(()) } else { Err(format!("{line:?}, not {wanted}").into()) }
    }

    fn late(self) -> Result<Vec<f64>> {
        let Self { mut child, lines } = self;
        let mut late = Vec::new();
        for line in lines.lines() {
            late.push(line?.parse()?);
        }
        if child.wait()?.success() { Ok(late) } else { Err("readers failed".into()) }
    }
}

/// The same readers of a program that only writes: one thread, no protocol but the bytes. With a log,
/// each event is written to that and flushed first, and nothing else. How late they are, in ms.
fn bare(mut log: Option<std::fs::File>) -> Result<Seen> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--read").args([&address, "none", "bare"]);
    command.args([READERS, PACED, 0].map(|count| count.to_string())).arg("timed");
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let lines = BufReader::new(child.stdout.take().ok_or("no output")?);
    let mut readers = Readers { child, lines };
    let mut streams = Vec::new();
    for _ in 0..READERS {
        let (mut stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n: bare\n")?;
        streams.push(stream);
    }
    readers.until("ready")?;
    for seq in 0..PACED {
        std::thread::sleep(PACE);
        let padding = "as much as a record has beside its text ".repeat(5);
        let frame =
            format!("id: {seq}\nevent: x\ndata: {padding}{{\"text\":\"@{:016} \"}}\n\n", now_us()?);
        if let Some(log) = &mut log {
            log.write_all(frame.as_bytes())?;
            log.sync_data()?;
        }
        for stream in &mut streams {
            stream.write_all(frame.as_bytes())?;
        }
    }
    readers.until("done")?;
    Ok(Seen::new(readers.late()?.into_iter().map(|micros| micros / 1e3).collect()))
}

fn message(number: usize) -> Result<MessageId> {
    Ok(format!("msg_{number:032x}").parse()?)
}

/// Publishes with several writers at once, each a message of its own.
async fn publish_all(rig: &Rig, session: &SessionId, events: usize, from: usize) -> Result<()> {
    let each = events / WRITERS;
    let text = "An agent says about so much at a time, in a language that people read. ";
    let writers = (0..WRITERS).map(|writer| async move {
        let message = message(from + writer)?;
        let mut offset = 0;
        for _ in 0..each {
            rig.say(session, &message, offset, text).await?;
            offset += text.len() as u64;
        }
        Result::Ok(())
    });
    futures_util::future::try_join_all(writers).await?;
    Ok(())
}

async fn last_seq(rig: &Rig, session: &SessionId) -> Result<usize> {
    Ok(usize::try_from(rig.handle.state(session).await?.last_seq)?)
}

pub(crate) fn publish(table: &mut Table) -> Result<()> {
    let folder = rig::folder()?;
    let runtime = rig::runtime()?;
    runtime.block_on(async {
        let rig = Rig::start(&folder.path().join("data")).await?;
        let session = rig.session().await?;
        let counts = (READERS, EVENTS, last_seq(&rig, &session).await?);
        let mut readers = Readers::start(&rig, &session, counts, false)?;
        readers.until("ready")?;
        let begun = Instant::now();
        publish_all(&rig, &session, EVENTS, 0).await?;
        let published = begun.elapsed();
        let mut readers = tokio::task::spawn_blocking(move || readers.until("done").map(|()| readers)).await??;
        let took = begun.elapsed();
        readers.child.wait()?;
        #[expect(clippy::cast_precision_loss, reason = "a count of events")]
        let per_second = EVENTS as f64 / took.as_secs_f64();
        table.value(
            format!("m. Events per second to {READERS} readers, each durable first"),
            per_second,
            "/s",
            Target::AtLeast(6_000.0),
            format!("{EVENTS} events of one session, {WRITERS} writers in the server's process, {READERS} readers in another; from the first append until every reader has every event; all were published after {} s of {} s", short(published.as_secs_f64()), short(took.as_secs_f64())),
        );

        let counts = (READERS, PACED, last_seq(&rig, &session).await?);
        let mut readers = Readers::start(&rig, &session, counts, true)?;
        readers.until("ready")?;
        let message = message(WRITERS)?;
        let mut offset = 0;
        for _ in 0..PACED {
            tokio::time::sleep(PACE).await;
            let text = format!("@{:016} ", now_us()?);
            rig.say(&session, &message, offset, &text).await?;
            offset += text.len() as u64;
        }
        readers.until("done")?;
        let late = Seen::new(readers.late()?.into_iter().map(|micros| micros / 1e3).collect());
        let log = std::fs::File::create(folder.path().join("bare.log"))?;
        let bare = tokio::task::spawn_blocking(|| self::bare(None)).await??;
        let durable = tokio::task::spawn_blocking(|| self::bare(Some(log))).await??;
        table.value(
            format!("m. Paced: an event at one of {READERS} readers, p50"),
            late.median(),
            "ms",
            Target::AtMost(1.0),
            format!("{PACED} events, {} ms apart; from before the append until a reader has read it, over all readers; quartiles {} ms. Right after it, a program of one thread that only writes such an event to each of the same readers: median {} ms, quartiles {} ms; and one that flushes it to a file first: median {} ms, quartiles {} ms", PACE.as_millis(), late.spread(), short(bare.median()), bare.spread(), short(durable.median()), durable.spread()),
        );

        let counts = (CROWD, CROWD_EVENTS, last_seq(&rig, &session).await?);
        let mut readers = Readers::start(&rig, &session, counts, false)?;
        readers.until("ready")?;
        let begun = Instant::now();
        let mut offset = 0;
        let message = self::message(WRITERS + 1)?;
        for _ in 0..CROWD_EVENTS {
            rig.say(&session, &message, offset, "and so on ").await?;
            offset += 10;
        }
        readers.until("done")?;
        let took = begun.elapsed().as_secs_f64();
        readers.late()?;
        #[expect(clippy::cast_precision_loss, reason = "a count of events")]
        table.value(
            format!("m. The same with {CROWD} readers"),
            CROWD_EVENTS as f64 / took,
            "/s",
            Target::None,
            format!("{CROWD_EVENTS} events, one after the other; until every reader has every event: all {CROWD} held"),
        );
        rig.end().await;
        Result::Ok(())
    })
}

pub(crate) fn replay(table: &mut Table) -> Result<()> {
    let folder = rig::folder()?;
    let data = folder.path().join("data");
    let runtime = rig::runtime()?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let session = runtime.block_on(async {
        let rig = Rig::start(&data).await?;
        let session = rig.session().await?;
        publish_all(&rig, &session, REPLAYED.next_multiple_of(WRITERS), 0).await?;
        rig.end().await;
        Result::Ok(session)
    })?;
    for _ in 0..REPLAYS {
        runtime.block_on(async {
            let rig = Rig::start(&data).await?;
            let mut readers = Readers::start(&rig, &session, (READERS, REPLAYED, 0), false)?;
            let begun = Instant::now();
            let mut readers = tokio::task::spawn_blocking(move || {
                readers.until("ready")?;
                readers.until("done").map(|()| readers)
            })
            .await??;
            ours.push(begun.elapsed().as_secs_f64() * 1e3);
            readers.child.wait()?;
            let begun = Instant::now();
            let all = (0..READERS).map(|_| async {
                let (mut after, mut count) = (0, 0);
                while count < REPLAYED {
                    let read = rig.handle.records(&session, after, READ_MAX).await?;
                    after = read.last().ok_or("too few")?.seq;
                    count += read.len();
                }
                Result::Ok(())
            });
            futures_util::future::try_join_all(all).await?;
            theirs.push(begun.elapsed().as_secs_f64() * 1e3);
            rig.end().await;
            Result::Ok(())
        })?;
    }
    let cell = |values: &[f64]| format!("{} ms", short(Seen::new(values.to_vec()).median()));
    table.ratio(
        format!("n. {REPLAYED} events replayed to {READERS} readers at once after a restart"),
        (cell(&ours), cell(&theirs)),
        Seen::ratios(&ours, &theirs),
        Target::AtMost(3.0),
        format!("{REPLAYS} rounds; from the start of the readers' process until every one has all, against reading them from the store once per reader, all at once, in pages of {READ_MAX}"),
    );
    Ok(())
}
