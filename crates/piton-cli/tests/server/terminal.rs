//! `chat` and `attach` in a real terminal.

use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::world::{PATIENCE, piton};

struct Terminal {
    keyboard: std::fs::File,
    output: Receiver<Vec<u8>>,
    screen: String,
    child: Child,
}

impl Terminal {
    fn run(mut command: Command) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let open = || {
            let path = Path::new(name.to_str().unwrap());
            std::fs::File::options().read(true).write(true).open(path).unwrap()
        };
        let as_stdio = |file: std::fs::File| Stdio::from(OwnedFd::from(file));
        command.stdin(as_stdio(open())).stdout(as_stdio(open())).stderr(as_stdio(open()));
        let child = command.spawn().unwrap();
        let mut reader = std::fs::File::from(master.try_clone().unwrap());
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read) = reader.read(&mut bytes) {
                if read == 0 || sender.send(bytes[..read].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { keyboard: std::fs::File::from(master), output, screen: String::new(), child }
    }

    fn type_in(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).unwrap();
    }

    /// Waits until the screen says it.
    fn shows(&mut self, text: &str) {
        let until = Instant::now() + PATIENCE;
        while !self.screen.contains(text) {
            let left = until.saturating_duration_since(Instant::now());
            let Ok(bytes) = self.output.recv_timeout(left) else {
                panic!("never shown: {text:?}; but\n{}", self.screen);
            };
            self.screen.push_str(&String::from_utf8_lossy(&bytes));
        }
    }

    fn interrupt(&self) {
        let pid = i32::try_from(self.child.id()).unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    }

    fn ends(mut self) -> (bool, String) {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                while let Ok(bytes) = self.output.recv_timeout(Duration::from_millis(200)) {
                    self.screen.push_str(&String::from_utf8_lossy(&bytes));
                }
                return (status.success(), self.screen);
            }
            assert!(Instant::now() < until, "it does not end: {}", self.screen);
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A data folder whose background server is ended with the test.
struct Home {
    folder: tempfile::TempDir,
}

impl Home {
    fn piton(&self, arguments: &[&str]) -> Command {
        let mut command = piton();
        command.arg("--data").arg(self.folder.path().join("data")).args(arguments);
        command.current_dir(self.folder.path());
        command
    }

    fn server_pid(&self) -> rustix::process::Pid {
        let place = std::fs::read(self.folder.path().join("data/run/server.json")).unwrap();
        let place: serde_json::Value = serde_json::from_slice(&place).unwrap();
        let pid = i32::try_from(place["pid"].as_i64().unwrap()).unwrap();
        rustix::process::Pid::from_raw(pid).unwrap()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let bin = self.folder.path().join("data/bin");
        // It may not run any more.
        let _ = self.piton(&["stop"]).output();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let exe = std::fs::read_link(entry.path().join("exe"));
            let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
            let pid = pid.and_then(rustix::process::Pid::from_raw);
            if let (true, Some(pid)) = (exe.is_ok_and(|exe| exe.starts_with(&bin)), pid) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
}

/// A prompt, a question answered by a key, a server that is killed, a terminal that is left, and
/// everything still there for the next one.
#[test]
fn a_conversation_outlives_its_server_and_its_terminal() {
    let home = Home { folder: tempfile::tempdir().unwrap() };
    let mut chat = Terminal::run(home.piton(&["chat"]));
    chat.shows("Ctrl-C stops a turn, twice leaves.");
    chat.type_in("hello dear world\n");
    chat.shows("> hello dear world");
    chat.type_in("ask May I?\n");
    chat.shows("? May I?");
    chat.type_in("1");
    chat.type_in("say thank you\n");
    chat.shows("\r\nthank you");
    // A turn that is under way when its server is killed.
    chat.type_in("say before\nwait 3000\n");
    chat.shows("\r\nbefore");
    rustix::process::kill_process(home.server_pid(), rustix::process::Signal::KILL).unwrap();
    chat.shows("the server is away");
    // Whoever comes next starts another one; this terminal finds it.
    let listed = home.piton(&["chat", "--print", "say from elsewhere"]).output().unwrap();
    assert_eq!(String::from_utf8(listed.stdout).unwrap(), "from elsewhere\n");
    chat.type_in("say back again\n");
    chat.shows("back again");
    chat.type_in("wait 60000\n");
    chat.shows("> wait 60000");
    chat.interrupt();
    chat.shows("stopping the turn");
    chat.shows("-- cancelled");
    chat.interrupt();
    let (good, screen) = chat.ends();
    assert!(good && screen.contains("Come back with: piton attach"), "{screen}");

    let session = screen.split("piton attach ").nth(1).unwrap().trim().to_owned();
    let mut attached = Terminal::run(home.piton(&["attach", &session]));
    attached.shows("hello dear world");
    attached.shows("-- cancelled");
    attached.type_in("say still here\n");
    attached.shows("still here");
    attached.type_in("/quit\n");
    assert!(attached.ends().0);
}

#[test]
fn a_script_gets_the_answer_and_the_outcome() {
    let home = Home { folder: tempfile::tempdir().unwrap() };
    let output = home.piton(&["chat", "--print", "think hm\nsay 42"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "42\n");
    let output = home.piton(&["chat", "--print", "crash"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let output = home.piton(&["--json", "status"]).output().unwrap();
    assert!(output.status.success());
    let output = home.piton(&["--json", "stop"]).output().unwrap();
    assert!(String::from_utf8(output.stdout).unwrap().contains("\"stopped\":true"));
    assert_eq!(home.piton(&["status"]).output().unwrap().status.code(), Some(1));
    let output = home.piton(&["--json", "token", "list"]).output().unwrap();
    assert!(String::from_utf8(output.stderr).unwrap().contains("server_not_running"));
}
