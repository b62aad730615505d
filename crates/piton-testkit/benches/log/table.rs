//! Medians, spreads and the table.

use std::fmt;
use std::time::Duration;

/// What was seen in the rounds of one measurement.
#[derive(Clone, Debug)]
pub(crate) struct Seen(Vec<f64>);

impl Seen {
    pub(crate) fn new(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        Self(values)
    }

    pub(crate) fn micros(times: &[Duration]) -> Self {
        Self::new(times.iter().map(|time| time.as_secs_f64() * 1e6).collect())
    }

    pub(crate) fn millis(times: &[Duration]) -> Self {
        Self::new(times.iter().map(|time| time.as_secs_f64() * 1e3).collect())
    }

    /// Ratios of what was measured in the same round.
    pub(crate) fn ratios(ours: &[f64], baseline: &[f64]) -> Self {
        Self::new(ours.iter().zip(baseline).map(|(ours, baseline)| ours / baseline).collect())
    }

    fn at(&self, part: usize, of: usize) -> f64 {
        let at = (self.0.len().saturating_sub(1) * part + of / 2) / of;
        self.0.get(at).copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn median(&self) -> f64 {
        self.at(1, 2)
    }

    /// What nineteen of twenty do not exceed.
    pub(crate) fn p95(&self) -> f64 {
        self.at(19, 20)
    }

    /// Lowest, quartiles, highest.
    pub(crate) fn spread(&self) -> String {
        let [a, b, c, d] = [self.at(0, 1), self.at(1, 4), self.at(3, 4), self.at(1, 1)].map(short);
        format!("{b} to {c} ({a} to {d})")
    }
}

/// Three digits that matter.
pub(crate) fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 1000.0 => format!("{value:.0}"),
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    AtMost(f64),
    AtLeast(f64),
    /// Told, not judged.
    None,
}

#[derive(Debug)]
struct Row {
    what: String,
    ours: String,
    baseline: String,
    ratio: Option<Seen>,
    value: f64,
    target: Target,
    method: String,
}

#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Row>,
}

impl Table {
    /// A measurement judged by its median ratio.
    pub(crate) fn ratio(
        &mut self,
        what: impl Into<String>,
        (ours, baseline): (String, String),
        ratio: Seen,
        target: Target,
        method: impl Into<String>,
    ) {
        let (what, method, value) = (what.into(), method.into(), ratio.median());
        self.rows.push(Row { what, ours, baseline, ratio: Some(ratio), value, target, method });
    }

    /// A figure that is judged by itself.
    pub(crate) fn value(
        &mut self,
        what: impl Into<String>,
        value: f64,
        unit: &str,
        target: Target,
        method: impl Into<String>,
    ) {
        let ours = format!("{} {unit}", short(value)).trim_end().to_owned();
        let (what, method, baseline) = (what.into(), method.into(), String::new());
        self.rows.push(Row { what, ours, baseline, ratio: None, value, target, method });
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| Measurement | Ours | Baseline | Ratio | Quartiles (lowest to highest) | Target | |"
        )?;
        writeln!(f, "|---|---|---|---|---|---|---|")?;
        for row in &self.rows {
            let (ratio, spread) = match &row.ratio {
                Some(ratio) => (format!("{}×", short(ratio.median())), ratio.spread()),
                None => (String::new(), String::new()),
            };
            let (target, met) = match row.target {
                Target::AtMost(most) => (format!("≤ {most}"), Some(row.value <= most)),
                Target::AtLeast(least) => (format!("≥ {least}"), Some(row.value >= least)),
                Target::None => ("none".to_owned(), None),
            };
            let met = met.map_or("", |met| if met { "met" } else { "MISSED" });
            let Row { what, ours, baseline, .. } = row;
            writeln!(
                f,
                "| {what} | {ours} | {baseline} | {ratio} | {spread} | {target} | {met} |"
            )?;
        }
        writeln!(f)?;
        for row in self.rows.iter().filter(|row| !row.method.is_empty()) {
            writeln!(f, "- {}: {}", row.what, row.method)?;
        }
        Ok(())
    }
}
