//! Gemini's command line. Known to restore nothing. Releases that advertise `session/load`
//! are loaded, with care: the file of a conversation is named by the minute, and a load first
//! writes an empty one. In the minute in which the conversation was opened that is its own file, the
//! load fails, and what was said is gone.

use std::time::Duration;

use piton_core::Timestamp;
use piton_core::resume::Abilities;

use super::{LoadTiming, Profile, Quirks, Retention, npm};
use crate::acp::{ErrorPattern, RefusalPatterns};

const INTERNAL: i64 = -32603;
const MINUTE_MS: i64 = 60_000;

pub(super) fn profile() -> Profile {
    Profile {
        install: npm("@google/gemini-cli"),
        abilities: Abilities { history: true, ..Abilities::default() },
        node_major_min: Some(20),
        quirks: Quirks {
            wording: RefusalPatterns {
                // It has none at all in this folder, so not this one either.
                refused: &[ErrorPattern {
                    code: Some(INTERNAL),
                    text: "no previous sessions found for this project",
                }],
                ..RefusalPatterns::default()
            },
            loads: LoadTiming::InAnotherMinute,
            replays_late: true,
            no_client_files: true,
            retention: Some(Retention {
                file: ".gemini/settings.json",
                pointer: "/general/sessionRetention/enabled",
                setting: "general.sessionRetention.enabled",
                keeps: false,
            }),
            notes: &[
                "Set general.sessionRetention.enabled to false in its settings.json, or a later start \
                 may delete what was said.",
                "GEMINI_API_KEY and GOOGLE_GEMINI_BASE_URL are its own settings.",
            ],
        },
        ..Profile::known("gemini", "Gemini", &["gemini", "--acp"])
    }
}

/// Until the minute of `opened_at` is over, if it is still that minute. Minutes are UTC's, as in the
/// names of its files.
pub(super) fn another_minute(opened_at: Timestamp, now: Timestamp) -> Option<Duration> {
    let minute = |moment: Timestamp| moment.as_millis().div_euclid(MINUTE_MS);
    let left = MINUTE_MS - now.as_millis().rem_euclid(MINUTE_MS);
    let wait = u64::try_from(left).ok().filter(|_| minute(opened_at) == minute(now))?;
    Some(Duration::from_millis(wait))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_not_loaded_in_the_minute_it_was_opened() {
        let wait = |opened: &str, now: &str| {
            let moment = |text: &str| format!("2026-11-16T{text}Z").parse().unwrap();
            profile().settle_before_load(moment(opened), moment(now))
        };
        let ms = |ms| Some(Duration::from_millis(ms));
        assert_eq!(wait("10:00:00.000", "10:00:00.000"), ms(60_000));
        assert_eq!(wait("10:00:20.000", "10:00:59.999"), ms(1));
        assert_eq!(wait("10:00:59.999", "10:01:00.000"), None, "another minute, if only just");
        assert_eq!(wait("10:00:20.000", "11:00:20.000"), None);
        // A clock that was set back names another file.
        assert_eq!(wait("10:01:00.000", "10:00:59.000"), None);
    }
}
