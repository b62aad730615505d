//! Moments and spans as people write and read them.

use std::time::Duration;

use piton_core::Timestamp;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;
/// From here on the date says more than the distance.
const RELATIVE_MAX: u64 = 60 * DAY;

/// `3 min ago`, `in 2 h`; the date if it is far away.
pub(crate) fn relative(moment: Timestamp, now: Timestamp) -> String {
    let (past, span) = if moment <= now {
        (true, now.since(moment).as_secs())
    } else {
        (false, moment.since(now).as_secs())
    };
    let (count, unit) = match span {
        _ if span >= RELATIVE_MAX => return date(moment),
        0 => return "now".to_owned(),
        1..MINUTE => (span, "s"),
        MINUTE..HOUR => (span / MINUTE, "min"),
        HOUR..DAY => (span / HOUR, "h"),
        _ => (span / DAY, "d"),
    };
    if past { format!("{count} {unit} ago") } else { format!("in {count} {unit}") }
}

/// `3 min ago (2026-02-21T10:01:10.000Z)`.
pub(crate) fn both(moment: Timestamp, now: Timestamp) -> String {
    format!("{} ({moment})", relative(moment, now))
}

/// `2026-02-21`.
pub(crate) fn date(moment: Timestamp) -> String {
    moment.to_string().chars().take_while(|c| *c != 'T').collect()
}

/// `2026-02-21 10:01:10`, in UTC as everything in a log.
pub(crate) fn date_and_time(moment: Timestamp) -> String {
    moment.to_string().replace('T', " ").chars().take_while(|c| *c != '.').collect()
}

pub(crate) fn time_of_day(moment: Timestamp) -> String {
    date_and_time(moment).split(' ').next_back().unwrap_or_default().to_owned()
}

/// A span such as `90s`, `15m`, `1h30m`, `30d`, `2w`.
pub(crate) fn parse_span(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a span of time such as 90s, 15m, 1h30m, 30d or 2w");
    let mut seconds: u64 = 0;
    let mut digits = String::new();
    for c in text.chars() {
        if c.is_ascii_digit() {
            digits.push(c);
            continue;
        }
        let unit = match c {
            's' => 1,
            'm' => MINUTE,
            'h' => HOUR,
            'd' => DAY,
            'w' => 7 * DAY,
            _ => return Err(wrong()),
        };
        let count: u64 = digits.parse().map_err(|_| wrong())?;
        digits.clear();
        let span = count.checked_mul(unit).and_then(|span| seconds.checked_add(span));
        seconds = span.ok_or_else(wrong)?;
    }
    if seconds == 0 || !digits.is_empty() {
        return Err(wrong());
    }
    Ok(Duration::from_secs(seconds))
}

/// A span in the form that [`parse_span`] reads.
pub(crate) fn span_text(span: Duration) -> String {
    let mut left = span.as_secs();
    let mut parts = Vec::new();
    for (unit, name) in [(DAY, 'd'), (HOUR, 'h'), (MINUTE, 'm'), (1, 's')] {
        if left >= unit {
            parts.push(format!("{}{name}", left / unit));
            left %= unit;
        }
    }
    parts.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_shown_in_the_largest_unit() {
        let now = Timestamp::from_millis(1_790_000_000_000);
        let relative =
            |seconds: i64| relative(Timestamp::from_millis(now.as_millis() + seconds * 1_000), now);
        assert_eq!(
            [0, -59, -60, -3_599, -3_600, -86_400, -60 * 86_400, 30, 7_200].map(relative),
            [
                "now",
                "59 s ago",
                "1 min ago",
                "59 min ago",
                "1 h ago",
                "1 d ago",
                "2026-07-23",
                "in 30 s",
                "in 2 h"
            ]
        );
    }

    #[test]
    fn spans_need_units_and_may_have_several() {
        let seconds = |text: &str| parse_span(text).map(|span| span.as_secs()).ok();
        assert_eq!(
            ["90s", "15m", "1h30m", "30d", "2w"].map(seconds),
            [90, 900, 5_400, 2_592_000, 1_209_600].map(Some)
        );
        let again = |text: &str| parse_span(text).map(span_text).unwrap_or_default();
        assert_eq!(["90s", "1h30m", "2w"].map(again), ["1m30s", "1h30m", "14d"]);
        for wrong in ["", "0s", "30", "h", "1h30", "1y", "-1h", "99999999999999999999d"] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }
}
