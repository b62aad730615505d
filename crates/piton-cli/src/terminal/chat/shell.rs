//! Lines that begin with `!`: a person's own, run in the workspace. Their output is bounded, and Esc or
//! Ctrl-C ends them.

use std::process::Stdio;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;
use tokio::sync::oneshot;

use super::Chat;
use super::requests::Done;
use crate::ui::Tone;

/// The end of an output that is shown.
const OUTPUT_BYTES_MAX: usize = 64 * 1024;

impl Chat<'_> {
    pub(super) fn run_shell(&mut self, command: String) {
        if self.shell_stop.is_some() {
            let text = "A shell line runs already; Esc stops it.";
            self.message = Some((Tone::Attention, text.to_owned()));
            return;
        }
        if self.folder.is_none() {
            let text = format!(
                "The workspace {} is not on this machine: nothing was run.",
                self.status.folder
            );
            self.message = Some((Tone::Attention, text));
            self.editor.set(&format!("!{command}"));
            return;
        }
        let (stop, stopped) = oneshot::channel();
        self.shell_stop = Some(stop);
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(&command).stdin(Stdio::null()).kill_on_drop(true);
        shell.stdout(Stdio::piped()).stderr(Stdio::piped());
        // A group of its own, so that all that it starts ends with it.
        shell.process_group(0);
        if let Some(folder) = &self.folder {
            shell.current_dir(folder);
        }
        let place = match &self.runtime {
            Some(runtime) => format!(" on this machine, not in {runtime}"),
            None => String::new(),
        };
        self.message = Some((Tone::Quiet, format!("running {command}{place} · esc stops it")));
        self.spawn(async move {
            let (output, code) = run(shell, stopped).await;
            Done::Shell { command, output, code }
        });
    }

    /// Ends the shell line that runs; false if none does.
    pub(super) fn stop_shell(&mut self) -> bool {
        self.shell_stop.take().is_some_and(|stop| stop.send(()).is_ok())
    }
}

async fn run(mut shell: Command, mut stopped: oneshot::Receiver<()>) -> (String, Option<i32>) {
    let mut child = match shell.spawn() {
        Ok(child) => child,
        Err(error) => return (error.to_string(), Some(127)),
    };
    let group = child.id().and_then(|pid| i32::try_from(pid).ok());
    let group = group.and_then(rustix::process::Pid::from_raw);
    let (mut out, mut err) = (child.stdout.take(), child.stderr.take());
    let mut kept = Kept::default();
    let mut is_stopped = false;
    let (mut out_bytes, mut err_bytes) = (vec![0; 8192], vec![0; 8192]);
    while out.is_some() || err.is_some() {
        tokio::select! {
            read = read(&mut out, &mut out_bytes) => match read {
                0 => out = None,
                read => kept.push(&out_bytes[..read]),
            },
            read = read(&mut err, &mut err_bytes) => match read {
                0 => err = None,
                read => kept.push(&err_bytes[..read]),
            },
            _ = &mut stopped, if !is_stopped => {
                is_stopped = true;
                if let Some(group) = group {
                    // A group that has ended needs no signal.
                    let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
                }
            }
        }
    }
    let code = child.wait().await.ok().and_then(|status| status.code());
    let mut text = kept.text();
    if is_stopped {
        text.push_str("\n(stopped)");
    }
    (text, code)
}

async fn read(from: &mut Option<impl AsyncRead + Unpin>, bytes: &mut [u8]) -> usize {
    match from {
        Some(from) => from.read(bytes).await.unwrap_or(0),
        None => std::future::pending().await,
    }
}

/// The end of what was printed.
#[derive(Debug, Default)]
struct Kept {
    bytes: Vec<u8>,
    dropped: usize,
}

impl Kept {
    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() > 2 * OUTPUT_BYTES_MAX {
            let over = self.bytes.len() - OUTPUT_BYTES_MAX;
            self.bytes.drain(..over);
            self.dropped += over;
        }
    }

    fn text(&self) -> String {
        let over = self.bytes.len().saturating_sub(OUTPUT_BYTES_MAX);
        let text = String::from_utf8_lossy(&self.bytes[over..]).into_owned();
        match self.dropped + over {
            0 => text,
            left_out => format!("({left_out} bytes left out)\n{text}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(line: &str) -> Command {
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(line).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        shell
    }

    #[tokio::test]
    async fn an_endless_output_is_bounded_and_stopped_with_all_that_prints_it() {
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(run(shell("yes & yes"), stopped));
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        stop.send(()).unwrap();
        let (text, code) = running.await.unwrap();
        assert!(
            text.ends_with("(stopped)") && text.len() < OUTPUT_BYTES_MAX + 100,
            "{}",
            text.len()
        );
        assert_eq!(code, None);
    }

    #[tokio::test]
    async fn an_output_has_its_end_and_its_code() {
        let (_stop, stopped) = oneshot::channel();
        let (text, code) = run(shell("echo a; echo b >&2; exit 3"), stopped).await;
        assert!(text.contains("a\n") && text.contains("b\n"), "{text}");
        assert_eq!(code, Some(3));
        let mut kept = Kept::default();
        kept.push(&vec![b'x'; 3 * OUTPUT_BYTES_MAX]);
        assert!(kept.text().starts_with("(131072 bytes left out)\nxxx"));
    }
}
