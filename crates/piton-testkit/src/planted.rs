//! Which test notices which planted bug: one table, for the runner (`tests/planted.rs`, in `make soak`),
//! and for the documentation, which is compared with it.

use piton_core::planted::Bug;

use crate::sim::Property;

/// What must notice a bug. Others may notice it, too.
#[derive(Clone, Copy, Debug)]
pub enum CaughtBy {
    /// All of these properties, on some seed.
    Simulator(&'static [Property]),
    /// The same on the store of files.
    SimulatorOnFiles(&'static [Property]),
    Test(Test),
}

/// A test of a crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Test {
    pub package: &'static str,
    pub program: Program,
    /// With its modules.
    pub name: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Program {
    /// The tests within the library.
    Lib,
    /// The tests within the binary.
    Bin,
    /// Integration tests, by the name of their program.
    Integration(&'static str),
}

const IT: Program = Program::Integration("it");

const fn test(package: &'static str, program: Program, name: &'static str) -> CaughtBy {
    CaughtBy::Test(Test { package, program, name })
}

/// What notices a bug.
#[expect(clippy::too_many_lines, reason = "a table")]
pub fn caught_by(bug: Bug) -> CaughtBy {
    use CaughtBy::{Simulator, SimulatorOnFiles};
    use Program::{Bin, Integration, Lib};
    match bug {
        Bug::FlushLeftOut => Simulator(&[Property::AcknowledgedIsDurable, Property::CommitThenAct]),
        Bug::EpochIgnored => Simulator(&[Property::OneWriter]),
        Bug::TokenCheckSkipped => Simulator(&[Property::TokensSingleUse, Property::NothingTwice]),
        Bug::BatchSplit => Simulator(&[Property::BatchesAreWhole]),
        Bug::WakeUpTrusted => Simulator(&[Property::DeliveredInOrder]),
        Bug::SnapshotStale => Simulator(&[Property::SnapshotIsReplay]),
        Bug::InterruptedTwice => Simulator(&[Property::OneInterruption]),
        Bug::ActBeforeCommit => Simulator(&[Property::CommitThenAct]),
        Bug::CursorLeftOut | Bug::AckBeforeDurable => Simulator(&[Property::SaidOnce]),
        Bug::LaunchedBeside => Simulator(&[Property::OneAgent]),
        Bug::CommandIdNew => Simulator(&[Property::DeliveredOnce]),
        Bug::SilenceIsDeath => Simulator(&[Property::GoneIsInterrupted]),
        Bug::AnswerKeptBack => Simulator(&[Property::QuestionKept]),
        Bug::SupervisedTwice => Simulator(&[Property::OneSupervisor]),
        Bug::QueueDeliveredTwice | Bug::HoldIgnored => Simulator(&[Property::QueueKept]),
        Bug::StrandedUnnoticed => Simulator(&[Property::PendingEffectsAreDone]),
        Bug::ListedTwice => SimulatorOnFiles(&[Property::RosterIsTrue]),

        Bug::SettledWaitAsked => {
            test("piton-core", IT, "decisions::a_settled_wait_that_is_asked_again_stays_settled")
        }
        Bug::WaitAnsweredLate => {
            test("piton-core", IT, "decisions::every_refusal_is_reachable_and_has_its_code")
        }
        Bug::CallsUnlimited => test("piton-core", IT, "spool_import::open_calls_are_limited"),
        Bug::CommandLineIsFresh => {
            test("piton-core", IT, "resuming::an_agent_of_the_command_line_is_resumed")
        }
        Bug::UnreachableIsRunning => test(
            "piton-core",
            IT,
            "resuming::an_executor_that_does_not_respond_has_no_running_agent",
        ),
        Bug::KeyReused => test(
            "piton-core",
            Lib,
            "request::tests::a_repetition_is_recognised_for_a_day_and_a_reuse_is_refused",
        ),
        Bug::AccessExpired => test(
            "piton-core",
            Lib,
            "access::tests::a_secret_opens_what_it_was_made_for_while_its_time_lasts",
        ),
        Bug::AnswerNotOffered => {
            test("piton-core", Lib, "decide::wait::tests::an_answer_is_one_that_was_offered")
        }
        Bug::SecretInPieces => test("piton-core", Lib, "mask::tests::any_split_gives_the_same"),
        Bug::ToolCallUnflushed => test(
            "piton-core",
            Lib,
            "spool::entry::tests::what_must_be_on_the_disk_before_anybody_acts_on_it",
        ),

        Bug::WriterUnmasked => test(
            "piton-runtime",
            IT,
            "masking::a_run_that_echoes_its_secrets_leaves_none_on_the_disk",
        ),
        Bug::SqliteUnflushed => {
            test("piton-testkit", IT, "flushes::a_flush_before_every_acknowledgement")
        }
        Bug::CutByOneUnnoticed => test(
            "piton-store",
            Lib,
            "sqlite::tests::tampering::a_log_cut_by_one_record_is_not_written_to",
        ),
        Bug::RedactedInFreePages => test(
            "piton-store",
            Lib,
            "sqlite::tests::removal::a_redacted_content_is_gone_from_the_files",
        ),
        Bug::ContentNotBound => {
            test("piton-store", Lib, "crypto::tests::sealed_content_is_bound_to_key_and_place")
        }
        Bug::LogKeyUnflushed => test(
            "piton-store",
            Lib,
            "files::tests::taken::the_key_of_a_new_log_survives_a_power_cut",
        ),
        Bug::SeqUnchecked => {
            test("piton-store", Lib, "sqlite::tests::conformance::a_seq_conflict_writes_nothing")
        }
        Bug::FolderExposed => test(
            "piton-cli",
            IT,
            "server::permissions::a_data_folder_that_others_can_write_to_is_refused",
        ),
        Bug::BundleUnchecked => test(
            "piton-store",
            Lib,
            "bundle::tests::a_bundle_with_any_byte_changed_is_refused_or_the_same",
        ),

        Bug::RedactedTextKept => test(
            "piton-runtime",
            Lib,
            "broadcast::tests::text_read_before_a_redaction_is_not_kept_after_it",
        ),
        Bug::LookAgainLost => test(
            "piton-runtime",
            Lib,
            "broadcast::index::tests::a_hint_to_look_again_is_not_lost_while_gathering",
        ),
        Bug::RevocationMissed => {
            test("piton-runtime", Lib, "metadata::tests::a_revocation_ends_streams_in_any_order")
        }
        Bug::RegistryForged => {
            test("piton-runtime", Lib, "metadata::tests::a_start_reads_on_from_a_sealed_snapshot")
        }
        Bug::WorktreeLossIgnored => test(
            "piton-runtime",
            IT,
            "worktrees_cleanup::what_is_nowhere_else_is_kept_unless_it_is_forced",
        ),

        Bug::MixedBatchEarly => test(
            "piton-agentctl",
            Lib,
            "spool::tests::a_mixed_batch_that_ends_in_text_waits_for_its_flush",
        ),
        Bug::CommandForgotten => {
            test("piton-agentctl", Lib, "commands::tests::what_is_under_way_is_never_forgotten")
        }
        Bug::LowerEpochHeard => test(
            "piton-agentctl",
            IT,
            "server::a_lower_epoch_is_refused_and_a_higher_one_takes_over",
        ),
        Bug::SocketUnguarded => test("piton-agentctl", IT, "server::only_the_right_token_is_heard"),
        Bug::ShellsEndWithAgent => test(
            "piton-agentctl",
            Integration("processes"),
            "tree::shells_stay_when_the_agent_ends",
        ),
        Bug::LateProcessSurvives => {
            test("piton-exec", IT, "leftovers::what_appears_while_others_are_killed_is_killed_too")
        }
        Bug::SpoolEndMissing => {
            test("piton-exec", Lib, "spool::tests::an_end_that_was_flushed_and_is_missing_is_named")
        }

        Bug::ReplayImported => test(
            "piton-agent",
            Lib,
            "acp::replay::tests::known_messages_and_what_belongs_to_them_are_dropped",
        ),
        Bug::AnyErrorDisowns => test(
            "piton-agent",
            Lib,
            "acp::refusal::tests::only_what_names_the_session_as_unknown_is_a_refusal",
        ),
        Bug::MemoryUnmasked => {
            test("piton-echo", Lib, "memory::tests::secrets_are_masked_in_the_file")
        }

        Bug::LinkFollowed => test("piton-workspace", IT, "files::no_path_leads_outside"),
        Bug::GitUnsealed => {
            test("piton-workspace", IT, "git::a_filter_that_appears_later_is_not_run")
        }

        Bug::OpenNeedsRead => {
            test("piton-server", IT, "scopes::each_method_needs_its_scope_both_ways")
        }
        Bug::AddressBeatsHeader => {
            test("piton-cli", IT, "server::limits::the_last_event_id_counts_more_than_the_address")
        }
        Bug::RefusalUncounted => {
            test("piton-cli", IT, "server::limits::a_token_without_the_scope_is_counted")
        }
        Bug::ShellSocketUncounted => {
            test("piton-cli", IT, "server::limits::sockets_are_counted_those_of_shells_too")
        }
        Bug::HostUnchecked => test(
            "piton-server",
            Lib,
            "guard::tests::a_host_is_a_name_or_an_address_with_perhaps_a_port",
        ),
        Bug::StallUnnoticed => test(
            "piton-server",
            Lib,
            "stall::tests::a_peer_that_takes_nothing_is_given_up_and_a_slow_one_is_not",
        ),
        Bug::LineEndTwice => test(
            "piton-api",
            Lib,
            "client::sse::tests::events_are_the_same_however_the_bytes_are_cut",
        ),
        Bug::EscapesPrinted => {
            test("piton-cli", Bin, "text::tests::what_could_harm_a_terminal_is_replaced")
        }
    }
}
