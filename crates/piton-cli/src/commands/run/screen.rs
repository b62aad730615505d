//! What runs, as it runs: on a screen the nodes at work are drawn again and again below those that ended;
//! elsewhere each event is a line.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use piton_graph::Progress;

use crate::error::Result;
use crate::text::{one_line, padded, shortened};
use crate::ui::{Tone, Ui, control};

const SPINNER: &[&str] = &["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];
/// Narrower names are filled up to this.
const NAME_WIDTH: usize = 14;

/// A node at work.
#[derive(Debug)]
struct Running {
    since: Instant,
    attempt: u32,
    advanced: Option<(u32, Option<u32>)>,
}

#[derive(Debug)]
pub(super) struct Screen {
    is_live: bool,
    is_json: bool,
    running: BTreeMap<String, Running>,
    /// Lines below the ended nodes that are drawn now.
    drawn: usize,
    frame: usize,
}

impl Screen {
    pub(super) fn new(ui: &Ui) -> Self {
        let (is_live, is_json) = (!ui.json && Ui::is_screen(), ui.json);
        Self { is_live, is_json, running: BTreeMap::new(), drawn: 0, frame: 0 }
    }

    /// Whether what runs is drawn again.
    pub(super) fn is_live(&self) -> bool {
        self.is_live
    }

    pub(super) fn show(&mut self, ui: &mut Ui, event: Progress) -> Result<()> {
        if self.is_json {
            ui.json_line(&event)?;
            return ui.flush();
        }
        self.erase(ui)?;
        match event {
            Progress::NodeStarted { node, attempt } => {
                if !self.is_live {
                    let again =
                        if attempt > 1 { format!("attempt {attempt}") } else { String::new() };
                    Self::line(ui, Tone::Active, "…", &node, "", &again)?;
                }
                let since = Instant::now();
                self.running.insert(node, Running { since, attempt, advanced: None });
            }
            Progress::NodeAdvanced { node, done, count } => {
                if let Some(running) = self.running.get_mut(&node) {
                    running.advanced = Some((done, count));
                }
            }
            Progress::NodeCompleted { node, latency_ms } => {
                let running = self.running.remove(&node);
                let advanced = advanced(running.and_then(|running| running.advanced));
                let took = seconds(Duration::from_millis(latency_ms));
                Self::line(ui, Tone::Good, "✓", &node, &advanced, &took)?;
            }
            Progress::NodeFailed { node, error, retry_at } => {
                let running = self.running.remove(&node);
                let took = running.map_or_else(String::new, |r| seconds(r.since.elapsed()));
                let again = if retry_at.is_some() { "   will be retried" } else { "" };
                let text = format!("{took}   {}{again}", one_line(&error));
                Self::line(ui, Tone::Bad, "✗", &node, "", &text)?;
            }
            Progress::NodeSkipped { node } => {
                Self::line(ui, Tone::Quiet, "-", &node, "", "skipped")?;
            }
            Progress::NodeWaiting { node, wait_id } => {
                self.running.remove(&node);
                let text = format!("waits for an answer   {wait_id}");
                Self::line(ui, Tone::Attention, "?", &node, "", &text)?;
            }
        }
        if self.is_live { self.draw(ui) } else { ui.flush() }
    }

    /// Something about the run, above what is drawn.
    pub(super) fn say(&mut self, ui: &mut Ui, text: &str) -> Result<()> {
        self.erase(ui)?;
        ui.note(text)
    }

    fn line(
        ui: &mut Ui,
        tone: Tone,
        mark: &str,
        node: &str,
        advanced: &str,
        text: &str,
    ) -> Result<()> {
        let name = padded(&one_line(node), NAME_WIDTH);
        let rest = format!("{name} {}{text}", padded(advanced, 6));
        let rest = shortened(rest.trim_end(), Ui::table_width().saturating_sub(4));
        ui.line(format_args!("  {} {rest}", ui.paint(tone, mark)))
    }

    pub(super) fn draw(&mut self, ui: &mut Ui) -> Result<()> {
        self.erase(ui)?;
        self.frame = (self.frame + 1) % SPINNER.len();
        let rows = Ui::height().saturating_sub(2).max(1);
        for (node, running) in self.running.iter().take(rows) {
            let again = match running.attempt {
                0 | 1 => String::new(),
                attempt => format!("   attempt {attempt}"),
            };
            let text = format!("{}{again}", seconds(running.since.elapsed()));
            let advanced = advanced(running.advanced);
            Self::line(ui, Tone::Active, SPINNER[self.frame], node, &advanced, &text)?;
            self.drawn += 1;
        }
        ui.flush()
    }

    fn erase(&mut self, ui: &mut Ui) -> Result<()> {
        if self.drawn > 0 {
            ui.text(&control(format_args!("\r\x1b[{}A\x1b[J", self.drawn)))?;
            self.drawn = 0;
        }
        Ok(())
    }

    pub(super) fn end(&mut self, ui: &mut Ui) -> Result<()> {
        self.erase(ui)?;
        ui.flush()
    }
}

fn advanced(advanced: Option<(u32, Option<u32>)>) -> String {
    match advanced {
        Some((done, Some(count))) => format!("{done}/{count}"),
        Some((done, None)) => format!("{done}×"),
        None => String::new(),
    }
}

fn seconds(span: Duration) -> String {
    format!("{:>6.1} s", span.as_secs_f64())
}
