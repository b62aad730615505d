use std::io::{Cursor, Write as _};
use std::sync::Mutex;

use piton_core::{Code, Seq, event};

use super::format::{HEAD, LEVEL, MAGIC, RECORD, VERSION};
use super::*;
use crate::conformance::{Boots, Driver, at, of, piece, run, said, session};
use crate::contract::{CopiedRecord, OsEntropy};
use crate::memory::{Disk, MemoryStore, Reliable};

/// Cheap enough to be done for every byte of a bundle.
const CHEAP: Cost = Cost { memory_kib: 8, passes: 1, lanes: 1 };

fn memory() -> Arc<dyn Store> {
    let disk = Arc::new(Mutex::new(Disk::default()));
    let boots = Arc::new(Boots::default());
    Arc::new(MemoryStore::open(disk, boots, Arc::new(OsEntropy), Arc::new(Reliable)))
}

fn passphrase(text: &str) -> SecretText {
    text.to_owned().into()
}

fn settings(passphrase: Option<&str>) -> Settings {
    let passphrase = passphrase.map(|text| text.to_owned().into());
    Settings { cost: CHEAP, ..Settings::new(passphrase) }
}

/// A session with batches of several records, text of several bytes per letter, and a tombstone.
async fn sample(store: &Arc<dyn Store>, name: &str) -> SessionId {
    let mut driver = Driver::create(store, name).await;
    driver.append(vec![said("to be taken out"), piece(0, "ü𝄞\n"), piece(8, "")]).await.unwrap();
    let redacted = event::RecordRedacted { target_seq: 3, reason: Some("asked to".into()) };
    driver.append(vec![of(1, redacted)]).await.unwrap();
    driver.session
}

async fn records(store: &Arc<dyn Store>, session: &SessionId) -> Vec<CopiedRecord> {
    store.copy_records(session, 0, usize::MAX).await.unwrap()
}

async fn bundle(store: &Arc<dyn Store>, id: &SessionId, settings: &Settings) -> Vec<u8> {
    let mut bytes = Vec::new();
    export(&**store, id, &mut bytes, settings).await.unwrap();
    bytes
}

async fn take(bytes: &[u8], passphrase: Option<&str>) -> (Arc<dyn Store>, Result<Contents>) {
    let store = memory();
    let passphrase = passphrase.map(|text| text.to_owned().into());
    let taken = import(&*store, Cursor::new(bytes.to_vec()), passphrase.as_ref(), at(9)).await;
    (store, taken)
}

/// A damaged bundle is refused with a code and leaves nothing, or is taken as what it was.
async fn refused_or_same(bytes: &[u8], phrase: Option<&str>, whole: &[CopiedRecord]) -> bool {
    let (store, taken) = take(bytes, phrase).await;
    let id = session("s");
    match taken {
        Ok(_) => {
            assert_eq!(records(&store, &id).await, whole);
            false
        }
        Err(error) => {
            let codes = [
                Code::BundleNotPiton,
                Code::BundleNewer,
                Code::BundleDamaged,
                Code::PassphraseRequired,
                Code::PassphraseWrong,
                Code::ChainBroken,
                Code::RecordDamaged,
            ];
            assert!(codes.contains(&error.code()), "{error:?}");
            assert_eq!(store.head(&id).await.unwrap(), None, "it was refused and left something");
            true
        }
    }
}

#[test]
fn what_comes_out_is_what_went_in() {
    run(async {
        let store = memory();
        let id = sample(&store, "s").await;
        let mut large = Driver::create(&store, "large").await;
        for i in 0..700_u64 {
            let text: String = (0..i * 7).map(|n| char::from(b'a' + (n * i % 26) as u8)).collect();
            large.append(vec![piece(0, &text)]).await.unwrap();
        }
        for id in [id, large.session] {
            for phrase in [None, Some("correct horse")] {
                let bytes = bundle(&store, &id, &settings(phrase)).await;
                let (other, taken) = take(&bytes, phrase).await;
                let whole = records(&store, &id).await;
                let head = store.copy_head(&id).await.unwrap().unwrap();
                let expected = Contents {
                    session: id.clone(),
                    last_seq: head.last_seq,
                    chain: head.chain,
                    records: whole.len() as u64,
                };
                assert_eq!(taken.unwrap(), expected);
                assert_eq!(records(&other, &id).await, whole);
                assert_eq!(other.copy_head(&id).await.unwrap().unwrap(), head);
                assert_eq!(other.verify(&id).await.unwrap().problem, None);
                let phrase = phrase.map(passphrase);
                assert_eq!(check(Cursor::new(bytes), phrase.as_ref()).unwrap(), expected);
            }
        }
    });
}

/// A passphrase hides everything but that this is a bundle.
#[test]
fn an_encrypted_bundle_shows_nothing_and_opens_with_its_passphrase_only() {
    run(async {
        let store = memory();
        let id = sample(&store, "a-telling-name").await;
        let settings = settings(Some("correct horse"));
        let bytes = bundle(&store, &id, &settings).await;
        let again = bundle(&store, &id, &settings).await;
        assert_ne!(bytes, again, "a salt was used twice");
        assert!(!bytes.windows(7).any(|window| window == b"telling"));
        let code = |taken: (Arc<dyn Store>, Result<Contents>)| taken.1.unwrap_err().code();
        assert_eq!(code(take(&bytes, None).await), Code::PassphraseRequired);
        assert_eq!(code(take(&bytes, Some("wrong horse")).await), Code::PassphraseWrong);
        assert_eq!(code(take(&bytes, Some("")).await), Code::PassphraseWrong);
    });
}

#[test]
fn the_same_session_is_not_taken_twice() {
    run(async {
        let store = memory();
        let id = sample(&store, "s").await;
        let bytes = bundle(&store, &id, &settings(None)).await;
        let before = records(&store, &id).await;
        let refused = import(&*store, Cursor::new(bytes), None, at(9)).await.unwrap_err();
        assert_eq!(refused.code(), Code::SessionExists);
        assert_eq!(records(&store, &id).await, before);
        let missing = export(&*store, &session("x"), Vec::new(), &settings(None)).await;
        assert_eq!(missing.unwrap_err().code(), Code::SessionNotFound);
    });
}

#[test]
fn a_bundle_cut_anywhere_is_refused() {
    run(async {
        let store = memory();
        let id = sample(&store, "s").await;
        for phrase in [None, Some("p")] {
            let bytes = bundle(&store, &id, &settings(phrase)).await;
            for length in 0..bytes.len() {
                let (other, taken) = take(&bytes[..length], phrase).await;
                let expected = if length == 0 { Code::BundleNotPiton } else { Code::BundleDamaged };
                assert_eq!(taken.unwrap_err().code(), expected, "cut at {length}");
                assert_eq!(other.head(&id).await.unwrap(), None);
            }
            let longer = [&bytes[..], b"x"].concat();
            assert_eq!(take(&longer, phrase).await.1.unwrap_err().code(), Code::BundleDamaged);
        }
    });
}

#[test]
fn a_bundle_with_any_byte_changed_is_refused_or_the_same() {
    run(async {
        let store = memory();
        let id = sample(&store, "s").await;
        let whole = records(&store, &id).await;
        for phrase in [None, Some("p")] {
            let bytes = bundle(&store, &id, &settings(phrase)).await;
            let mut refused = 0;
            for at in 0..bytes.len() {
                for bits in [0x01, 0x80, 0xff] {
                    let mut bent = bytes.clone();
                    bent[at] ^= bits;
                    refused += usize::from(refused_or_same(&bent, phrase, &whole).await);
                }
            }
            // A few bits mean nothing to the decompressor.
            assert!(refused > bytes.len() * 3 - 12, "{refused} of {}", bytes.len() * 3);
        }
    });
}

/// Sealed pieces cannot change places, and none can be left out.
#[test]
fn sealed_pieces_stay_in_their_order() {
    run(async {
        let store = memory();
        let mut driver = Driver::create(&store, "s").await;
        let mut noise = vec![0; 150_000];
        OsEntropy.fill(&mut noise).unwrap();
        driver.append(vec![said(hex::encode(noise))]).await.unwrap();
        let bytes = bundle(&store, &driver.session, &settings(Some("p"))).await;
        let front = 11 + seal::HEAD_BYTES;
        let mut pieces = Vec::new();
        let mut rest = &bytes[front..];
        while !rest.is_empty() {
            let length = u32::from_le_bytes(rest[..4].try_into().unwrap()) as usize;
            let (piece, after) = rest.split_at(4 + length);
            pieces.push(piece);
            rest = after;
        }
        assert!(pieces.len() >= 3, "there are some to move: {}", pieces.len());
        let last = pieces.len() - 1;
        let mut swapped = pieces.clone();
        swapped.swap(0, 1);
        let mut without_middle = pieces.clone();
        without_middle.remove(1);
        let mut twice = pieces.clone();
        twice.insert(1, pieces[0]);
        for changed in [swapped, without_middle, twice, pieces[..last].to_vec()] {
            let changed = [&bytes[..front], &changed.concat()].concat();
            let refused = take(&changed, Some("p")).await.1.unwrap_err();
            assert_eq!(refused.code(), Code::BundleDamaged);
        }
        take(&bytes, Some("p")).await.1.unwrap();
    });
}

/// What is not a bundle, what is of tomorrow, and what promises more than it may.
#[test]
fn foreign_newer_and_boundless_bundles_are_named() {
    run(async {
        let code = |bytes: Vec<u8>| async move { take(&bytes, Some("p")).await.1.unwrap_err() };
        assert_eq!(code(b"SQLite format 3\0 and more".to_vec()).await.code(), Code::BundleNotPiton);
        let front =
            |version: u16, sealed: u8| [&MAGIC[..], &version.to_le_bytes(), &[sealed]].concat();
        let newer = code(front(VERSION + 1, 0)).await;
        assert_eq!(newer.code(), Code::BundleNewer);
        assert_eq!(code(front(0, 0)).await.code(), Code::BundleDamaged);
        assert_eq!(code(front(VERSION, 9)).await.code(), Code::BundleDamaged);

        // More memory for the passphrase than a reader gives.
        let mut greedy = front(VERSION, 1);
        greedy.push(1);
        for number in [u32::MAX, 1, 1] {
            greedy.extend_from_slice(&number.to_le_bytes());
        }
        greedy.extend_from_slice(&[0; 64]);
        assert_eq!(code(greedy).await.code(), Code::BundleDamaged);

        let compressed = |body: &[u8], window: u32| {
            let mut encoder = zstd::Encoder::new(front(VERSION, 0), LEVEL).unwrap();
            encoder.window_log(window).unwrap();
            encoder.write_all(body).unwrap();
            encoder.finish().unwrap()
        };
        let mut head = vec![HEAD, 1, b's'];
        head.extend_from_slice(&[0; 32 + 8 + 32 + 1]);
        let mut boundless = head.clone();
        boundless.push(RECORD);
        boundless.extend_from_slice(&[0; 8 + 8 + 4]);
        boundless.extend_from_slice(&u32::MAX.to_le_bytes());
        let refused = code(compressed(&boundless, 20)).await;
        assert!(refused.to_string().contains("longer than any"), "{refused}");
        head.extend_from_slice(&vec![0; 1 << 25]);
        let refused = code(compressed(&head, 27)).await;
        assert!(refused.to_string().contains("decompressed"), "{refused}");
    });
}

#[test]
fn the_anchor_is_carried() {
    run(async {
        let store = memory();
        let id = sample(&store, "s").await;
        let whole = records(&store, &id).await;
        let mut head = store.copy_head(&id).await.unwrap().unwrap();
        for (anchor, fits) in [((2, whole[1].chain), true), ((2, whole[2].chain), false)] {
            head.anchor = Some(anchor);
            let mut bytes = Vec::new();
            let mut writer = Writer::begin(&mut bytes, &settings(None), &head).unwrap();
            for copied in &whole {
                writer.record(copied).unwrap();
            }
            writer.finish().unwrap();
            let reader = Reader::begin(&bytes[..], None).unwrap();
            assert_eq!(reader.head().anchor, Some(anchor));
            assert_eq!(check(Cursor::new(bytes), None).is_ok(), fits);
        }
    });
}

/// Random damage of every kind; the seed says how to see it again.
#[test]
fn mutated_bundles_never_surprise() {
    let seed = std::env::var("PITON_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7);
    println!("PITON_SEED={seed}");
    let mut random: u64 = seed;
    let mut below = move |limit: usize| {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % limit.max(1)
    };
    run(async {
        let store = memory();
        let id = sample(&store, "s").await;
        let whole = records(&store, &id).await;
        for phrase in [None, Some("p")] {
            let bytes = bundle(&store, &id, &settings(phrase)).await;
            for _ in 0..1_500 {
                let mut bent = bytes.clone();
                for _ in 0..=below(3) {
                    let (at, other) = (below(bent.len()), below(bent.len()));
                    match below(5) {
                        0 => bent[at] ^= 1 << below(8),
                        1 => bent.truncate(at.max(1)),
                        2 => drop(bent.drain(at.min(other)..at.max(other))),
                        3 => bent.insert(at, u8::try_from(below(256)).unwrap()),
                        _ => bent.extend_from_within(at.min(other)..at.max(other)),
                    }
                    if bent.is_empty() {
                        bent.push(0);
                    }
                }
                refused_or_same(&bent, phrase, &whole).await;
            }
        }
    });
}

/// A redaction while a bundle is written leaves a tombstone that nothing in it justifies.
#[test]
fn a_redaction_under_an_export_is_noticed() {
    /// Redacts when the first bytes are written.
    struct Meddler<'a> {
        store: &'a Arc<dyn Store>,
        driver: Driver,
        done: bool,
    }
    impl std::io::Write for Meddler<'_> {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            if !std::mem::replace(&mut self.done, true) {
                let redacted = event::RecordRedacted { target_seq: 3, reason: None };
                let batch = self.driver.batch(vec![of(1, redacted)]);
                let appended = self.store.append(batch);
                // Nothing in this store waits for anything else.
                futures_util::FutureExt::now_or_never(appended).unwrap().unwrap();
            }
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    run(async {
        let store = memory();
        let mut driver = Driver::create(&store, "s").await;
        driver.append(vec![said("soon gone")]).await.unwrap();
        let id = driver.session.clone();
        let meddler = Meddler { store: &store, driver, done: false };
        let refused = export(&*store, &id, meddler, &settings(None)).await.unwrap_err();
        assert_eq!(refused.code(), Code::SeqConflict);
        bundle(&store, &id, &settings(None)).await;
    });
}

#[test]
fn files_are_whole_private_and_read_back() {
    use std::os::unix::fs::PermissionsExt;
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let store = memory();
        let id = sample(&store, "s").await;
        let path = folder.path().join("s.piton");
        let file = write_file(&*store, &id, &path, &settings(Some("p"))).await.unwrap();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(file.digest, blake3::hash(&bytes));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left over");
        let other = memory();
        let contents = import_file(&*other, &path, Some(&passphrase("p")), at(9)).await.unwrap();
        assert_eq!(contents, file.contents);

        let nowhere = folder.path().join("missing").join("s.piton");
        let refused = write_file(&*store, &id, &nowhere, &settings(None)).await.unwrap_err();
        assert_eq!(refused.code(), Code::BundleIo);
        let unknown = write_file(&*store, &session("x"), &path, &settings(None)).await.unwrap_err();
        assert_eq!(unknown.code(), Code::SessionNotFound);
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "the older file is untouched");
        let refused = import_file(&*other, &nowhere, None, at(9)).await.unwrap_err();
        assert_eq!(refused.code(), Code::BundleIo);
    });
}

#[test]
fn a_store_is_converted_log_by_log_into_an_empty_one() {
    run(async {
        let from = memory();
        for name in ["a", "b", "c"] {
            sample(&from, name).await;
        }
        let task = event::TaskCreated { task_id: "task_1".parse().unwrap(), title: "t".into() };
        let metadata = SessionId::metadata_log();
        let batch = crate::Batch {
            session: metadata.clone(),
            expected: from.head(&metadata).await.unwrap().unwrap().last_seq,
            guard: crate::Guard::Shared,
            records: crate::WritableRecords::verbatim(vec![of(0, task)]),
            durability: crate::Durability::Synced,
            summary: None,
        };
        from.append(batch).await.unwrap();
        let to = memory();
        let mut seen = Vec::new();
        let done = convert(&from, &to, |progress| seen.push(progress)).await.unwrap();
        assert_eq!(done, 4);
        assert_eq!(seen.iter().map(|one| one.done).collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert_eq!(seen[0].session, metadata);
        for Progress { session, records: last, .. } in seen {
            let whole = records(&from, &session).await;
            assert_eq!(whole.len() as Seq, last);
            assert_eq!(records(&to, &session).await, whole);
        }
        let refused = convert(&from, &to, |_| panic!("nothing is copied")).await.unwrap_err();
        assert_eq!(refused.code(), Code::StoreNotEmpty);
    });
}

fn sqlite(folder: &tempfile::TempDir) -> Arc<dyn Store> {
    let boots: Arc<Boots> = Arc::default();
    let options =
        crate::sqlite::Options { liveness: boots, ..crate::sqlite::Options::new(folder.path()) };
    Arc::new(crate::SqliteStore::open(options).unwrap())
}

/// SQLite, bundle, memory, SQLite again: the same records, and each verifies. The stores wait for
/// each other's records without standing in each other's way.
#[test]
fn stores_exchange_sessions_without_loss() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    run(async {
        let (first, second, last) = (sqlite(&folders[0]), memory(), sqlite(&folders[1]));
        let mut driver = Driver::create(&first, "long").await;
        for i in 0..600 {
            driver.append(vec![piece(i, "x"), said("y".repeat(40_000))]).await.unwrap();
        }
        for id in [sample(&first, "s").await, driver.session] {
            let bytes = bundle(&first, &id, &settings(Some("p"))).await;
            let phrase = passphrase("p");
            import(&*second, Cursor::new(bytes), Some(&phrase), at(9)).await.unwrap();
        }
        assert_eq!(convert(&second, &last, |_| {}).await.unwrap(), 3);
        for id in ["s", "long"].map(session) {
            let mut after = 0;
            loop {
                let page = first.copy_records(&id, after, 100).await.unwrap();
                let Some(end) = page.last() else { break };
                let copied = last.copy_records(&id, after, page.len()).await.unwrap();
                assert_eq!(page, copied);
                after = end.record.seq;
            }
            assert_eq!(last.verify(&id).await.unwrap().problem, None);
        }
        let back = memory();
        assert_eq!(convert(&last, &back, |_| {}).await.unwrap(), 3);
    });
}
