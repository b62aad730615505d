//! Files of a workspace: nothing outside it is read, written or listed, however it is asked for.
#![expect(clippy::unwrap_used, reason = "test helpers")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use piton_core::Code;
use piton_workspace::git::Runner;
use piton_workspace::{Content, FILE_BYTES_MAX, LIST_MAX, Listed, ListedKind, Range, Workspace};
use tempfile::TempDir;

struct World {
    workspace: Workspace,
    inside: PathBuf,
    outside: PathBuf,
    _folder: TempDir,
}

fn world() -> World {
    let folder = tempfile::tempdir().unwrap();
    let inside = folder.path().join("inside");
    let outside = folder.path().join("outside");
    fs::create_dir(&inside).unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret"), "secret").unwrap();
    let workspace = Workspace::open(&inside, Runner::new(folder.path())).unwrap();
    World { workspace, inside, outside, _folder: folder }
}

impl World {
    async fn read(&self, path: impl AsRef<Path>) -> Result<String, Code> {
        self.workspace.read_text(path.as_ref()).await.map_err(|error| error.code())
    }

    async fn write(&self, path: impl AsRef<Path>, text: &str) -> Result<(), Code> {
        let written = self.workspace.write(path.as_ref(), text.as_bytes().to_vec()).await;
        written.map_err(|error| error.code())
    }

    async fn list(&self, path: impl AsRef<Path>) -> Result<Vec<Listed>, Code> {
        let listed = self.workspace.list(path.as_ref()).await;
        listed.map(|listing| listing.entries).map_err(|error| error.code())
    }

    /// The names in a folder, temporary files too.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.inside).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

#[tokio::test]
async fn no_path_leads_outside() {
    let world = world();
    symlink("../outside", world.inside.join("folder")).unwrap();
    symlink("../outside/secret", world.inside.join("file")).unwrap();
    symlink(world.outside.join("secret"), world.inside.join("absolute")).unwrap();
    symlink("loop", world.inside.join("loop")).unwrap();
    let absolute = world.outside.join("secret");
    let paths = [
        "../outside/secret",
        "a/../../outside/secret",
        "/etc/passwd",
        "folder/secret",
        "file",
        "absolute",
        "loop",
        absolute.to_str().unwrap(),
    ];
    for path in paths {
        assert_eq!(world.read(path).await, Err(Code::PathOutside), "{path}");
        assert_eq!(world.write(path, "overwritten").await, Err(Code::PathOutside), "{path}");
    }
    assert_eq!(world.write("folder/new", "x").await, Err(Code::PathOutside));
    assert_eq!(world.write("folder/new/deep", "x").await, Err(Code::PathOutside));
    assert_eq!(world.list("folder").await, Err(Code::PathOutside));
    assert_eq!(world.list("..").await, Err(Code::PathOutside));
    assert_eq!(
        world.workspace.folder(Path::new("folder")).await.unwrap_err().code(),
        Code::PathOutside
    );
    let outside: Vec<_> = fs::read_dir(&world.outside).unwrap().collect();
    assert_eq!(outside.len(), 1);
    assert_eq!(fs::read_to_string(absolute).unwrap(), "secret");
}

#[tokio::test]
async fn what_is_not_a_path_or_not_a_file_is_refused() {
    use std::os::unix::ffi::OsStrExt;
    let world = world();
    assert_eq!(world.read("a\0b").await, Err(Code::PathInvalid));
    let bytes = std::ffi::OsStr::from_bytes(b"a\xFFb");
    assert_eq!(world.read(bytes).await, Err(Code::PathInvalid));
    assert_eq!(world.read("none").await, Err(Code::NotFound));
    assert_eq!(world.read(".").await, Err(Code::PathIsFolder));
    assert_eq!(world.write(".", "x").await, Err(Code::PathIsFolder));
    assert_eq!(world.write("", "x").await, Err(Code::PathIsFolder));
    let fifo = world.inside.join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    assert_eq!(world.read("fifo").await, Err(Code::PathNotFile));
    assert_eq!(world.write("fifo", "x").await, Err(Code::PathNotFile));
    let _socket = std::os::unix::net::UnixListener::bind(world.inside.join("socket")).unwrap();
    assert_eq!(world.read("socket").await, Err(Code::PathNotFile));
    assert_eq!(world.write("socket", "x").await, Err(Code::PathNotFile));
    world.write("file", "x").await.unwrap();
    assert_eq!(world.read("file/below").await, Err(Code::PathNotFolder));
    assert_eq!(world.list("file").await, Err(Code::PathNotFolder));
}

/// A folder is swapped for a link to the outside, over and over, while we read and write in it.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_swapped_in_between_does_not_win() {
    let world = world();
    let (at, link) = (world.inside.join("at"), world.inside.join("link"));
    fs::create_dir(&at).unwrap();
    fs::write(at.join("secret"), "public").unwrap();
    symlink("../outside", &link).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            use rustix::fs::{CWD, RenameFlags, renameat_with};
            while !done.load(Ordering::Relaxed) {
                renameat_with(CWD, &at, CWD, &link, RenameFlags::EXCHANGE).unwrap();
            }
        });
        tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(async {
                let mut refused = 0;
                for _ in 0..300 {
                    match world.read("at/secret").await {
                        Ok(text) => assert_eq!(text, "public"),
                        Err(code) => {
                            assert!(matches!(code, Code::PathOutside | Code::FileIo), "{code}");
                            refused += 1;
                        }
                    }
                    // Its outcome depends on the moment; what is outside does not change.
                    let _ = world.write("at/secret", "public").await;
                }
                assert!(refused > 0, "The link was never there when we looked");
            });
        });
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(fs::read_to_string(world.outside.join("secret")).unwrap(), "secret");
    assert_eq!(fs::read_dir(&world.outside).unwrap().count(), 1);
}

#[tokio::test]
async fn absolute_paths_and_links_inside_are_followed() {
    let world = world();
    let path = world.inside.join("a/b/file");
    world.write(&path, "one").await.unwrap();
    symlink("a/b/file", world.inside.join("link")).unwrap();
    assert_eq!(world.read("./a/./b/file").await.unwrap(), "one");
    assert_eq!(world.read("link").await.unwrap(), "one");
    world.write("link", "two").await.unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "two");
    assert!(world.inside.join("link").symlink_metadata().unwrap().is_symlink());
    symlink("nowhere", world.inside.join("dangling")).unwrap();
    assert_eq!(world.write("dangling", "x").await, Err(Code::PathNotFile));
    // The workspace itself may have been named through a link.
    let named = world.outside.join("named");
    symlink(&world.inside, &named).unwrap();
    let workspace = Workspace::open(&named, Runner::new(world.outside.clone())).unwrap();
    assert_eq!(workspace.read_text(&named.join("link")).await.unwrap(), "two");
}

#[tokio::test]
async fn what_is_read_and_written_is_bounded() {
    let world = world();
    let large = usize::try_from(FILE_BYTES_MAX).unwrap() + 1;
    let mut bytes = vec![b'x'; large];
    let error = world.workspace.write(Path::new("large"), bytes.clone()).await.unwrap_err();
    assert_eq!(error.code(), Code::FileTooLarge);
    assert_eq!(world.names(), Vec::<String>::new());
    bytes[large - 2..].copy_from_slice(b"yz");
    fs::write(world.inside.join("large"), &bytes).unwrap();
    assert_eq!(world.read("large").await, Err(Code::FileTooLarge));
    let read =
        |offset, bytes| world.workspace.read(Path::new("large"), Some(Range { offset, bytes }));
    let bytes_total = FILE_BYTES_MAX + 1;
    let content = read(FILE_BYTES_MAX - 1, 10).await.unwrap();
    assert_eq!(content, Content { bytes: b"yz".to_vec(), bytes_total });
    assert_eq!(read(0, u64::MAX).await.unwrap().bytes.len() as u64, FILE_BYTES_MAX);
    assert_eq!(read(bytes_total + 5, 1).await.unwrap(), Content { bytes: vec![], bytes_total });
}

#[tokio::test]
async fn bytes_are_kept_and_only_text_is_text() {
    let world = world();
    for bytes in [vec![0, 1, 2], vec![0xFF, 0xFE]] {
        world.workspace.write(Path::new("binary"), bytes.clone()).await.unwrap();
        let content = world.workspace.read(Path::new("binary"), None).await.unwrap();
        assert_eq!(content.bytes, bytes);
        assert_eq!(world.read("binary").await, Err(Code::FileNotText));
    }
}

#[tokio::test]
async fn a_write_keeps_the_mode_and_leaves_nothing_else() {
    let world = world();
    let path = world.inside.join("script");
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o750)).unwrap();
    world.write("script", "new").await.unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o750);
    assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    assert_eq!(world.names(), ["script"]);
}

/// Several write one file at the same time: it is always one of theirs, and nothing else remains.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_at_the_same_time_leave_one_file() {
    let world = world();
    world.write("file", "begin").await.unwrap();
    for _ in 0..50 {
        let (a, b) = tokio::join!(world.write("file", "aaaa"), world.write("file", "bbbb"));
        a.unwrap();
        b.unwrap();
        assert!(matches!(world.read("file").await.unwrap().as_str(), "aaaa" | "bbbb"));
    }
    assert_eq!(world.names(), ["file"]);
}

/// The folder takes no new file: the old one stays as it was.
#[tokio::test]
async fn a_write_that_fails_keeps_the_old_file() {
    let world = world();
    world.write("file", "old").await.unwrap();
    world.write("full", "old").await.unwrap();
    // The name of a folder cannot be given to a file: the last step fails.
    fs::create_dir(world.inside.join("taken")).unwrap();
    assert_eq!(world.write("taken", "new").await, Err(Code::PathIsFolder));
    assert_eq!(world.write("file/below", "new").await, Err(Code::PathNotFolder));
    assert_eq!(world.read("file").await.unwrap(), "old");
    // Too long for the file system, but a name.
    assert_eq!(world.write("n".repeat(300), "new").await, Err(Code::FileIo));
    assert_eq!(world.names(), ["file", "full", "taken"]);
}

#[tokio::test]
async fn a_list_has_folders_first_and_an_end() {
    let world = world();
    fs::create_dir(world.inside.join("z")).unwrap();
    fs::write(world.inside.join("b"), "12345").unwrap();
    symlink("b", world.inside.join("a")).unwrap();
    let entry = |name: &str, kind, bytes| Listed { name: name.to_owned(), kind, bytes };
    let expected = [
        entry("z", ListedKind::Folder, 0),
        entry("a", ListedKind::Link, 0),
        entry("b", ListedKind::File, 5),
    ];
    assert_eq!(world.list("").await.unwrap(), expected);
    for number in 0..=LIST_MAX {
        fs::write(world.inside.join(format!("z/{number:05}")), "").unwrap();
    }
    let listing = world.workspace.list(Path::new("z")).await.unwrap();
    assert!(listing.truncated);
    assert_eq!(listing.entries.len(), LIST_MAX);
    assert_eq!(listing.entries[0].name, "00000");
}
