//! Attacks and faults that once succeeded, with the tests that would notice if they did again. All of
//! them run in `make test`; in `make soak` they are repeated, one after the other and many rounds, because
//! some of them are races.
//!
//! What does not need the whole program is tested where it is decided; `scripts/attacks.mjs` repeats it in
//! `make soak`:
//! - a filter that appears in git's configuration while git runs: `piton-workspace`,
//!   `git::a_filter_that_appears_later_is_not_run`, `worktree::a_filter_that_appears_later_is_not_run`;
//!   `piton-runtime`, `worktrees::a_hostile_repository_runs_nothing`
//! - hosts that a lenient reader would let in: `piton-server`,
//!   `guard::tests::a_host_is_a_name_or_an_address_with_perhaps_a_port`
//! - a reader that takes nothing: `piton-server`,
//!   `stall::tests::a_peer_that_takes_nothing_is_given_up_and_a_slow_one_is_not`
//! - a message that is too long to keep: `piton-core`,
//!   `spool_import::what_was_too_long_marks_the_message_and_the_outcome`; `piton-testkit`,
//!   `agents::long_messages::a_message_of_fifty_megabytes_is_named_and_left_out`
//! - a spool that is damaged or lost its end: `piton-exec`,
//!   `spool::tests::an_end_that_was_flushed_and_is_missing_is_named`; `piton-testkit`,
//!   `agents::not_agents::a_damaged_spool_is_named_and_kept`
//! - a session, its anchors or a page of the index that were taken away: `piton-store`,
//!   `sqlite::tests::taken::…`, `files::tests::taken::…`

use crate::cli::verify;
use crate::server::{attacks, broadcast, hostile, limits, permissions, secrets, terminal};

const ROUNDS_LONG: usize = 10;

/// What was done, and the test that does it.
const ATTACKS: &[(&str, fn())] = &[
    ("a secret that comes in pieces", secrets::a_secret_in_pieces_is_masked),
    ("secrets in the metadata log", secrets::the_metadata_log_is_masked),
    (
        "secrets in the memory of the built-in agent",
        secrets::the_memory_of_echo_is_masked_private_and_deleted,
    ),
    (
        "a program planted in a folder that others can write to",
        permissions::a_data_folder_that_others_can_write_to_is_refused,
    ),
    ("files that others can read", permissions::files_are_their_owners_alone_whatever_the_umask_is),
    ("escape sequences", hostile::what_others_wrote_never_controls_the_terminal),
    ("half-sent requests", attacks::half_sent_requests_do_not_shut_the_owner_out),
    (
        "connections without a token",
        limits::connections_without_a_token_give_way_and_those_with_one_stay,
    ),
    ("a flood of wrong tokens", limits::wrong_tokens_are_limited_and_limit_no_sign_in),
    ("sign-ins whose body never comes", limits::a_sign_in_is_counted_before_its_body_is_read),
    (
        "several first chats at once",
        terminal::several_chats_at_once_share_the_server_that_was_first,
    ),
    ("a session that was taken away", verify::what_was_taken_away_is_missed),
    ("a disk that is full", limits::a_server_whose_store_refuses_writes_is_not_ready),
    ("hosts that look like ours", attacks::other_hosts_and_other_pages_are_refused),
    ("a reader that stalls", broadcast::a_stalled_reader_ends_with_its_access_token),
];

/// Wants to show: what is a race is not won in any round.
#[test]
#[ignore = "long: make soak"]
fn attacks_again_and_again() {
    for round in 0..ROUNDS_LONG {
        for (what, attack) in ATTACKS {
            println!("round {round}: {what}");
            attack();
        }
    }
}
