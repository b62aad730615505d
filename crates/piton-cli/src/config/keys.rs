//! The table of settings.

/// The variable that names the config file; it cannot stand in the file itself.
pub(crate) const CONFIG_VARIABLE: &str = "PITON_CONFIG";

/// Variables that are no settings: the config file's place, and the data key itself.
pub(crate) const OTHER_VARIABLES: &[&str] = &[CONFIG_VARIABLE, "PITON_KEY"];

/// A setting's names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Key {
    /// In the config file, with its table.
    pub(crate) name: &'static str,
    pub(crate) variable: &'static str,
    pub(crate) is_list: bool,
    /// A server that runs takes a new value over when it reads its settings again.
    pub(crate) is_reloaded: bool,
}

const fn text(name: &'static str, variable: &'static str) -> Key {
    Key { name, variable, is_list: false, is_reloaded: false }
}

const fn list(name: &'static str, variable: &'static str) -> Key {
    Key { name, variable, is_list: true, is_reloaded: false }
}

const fn live(name: &'static str, variable: &'static str) -> Key {
    Key { name, variable, is_list: false, is_reloaded: true }
}

/// Those that are options, too.
pub(crate) const DATA: Key = text("data", "PITON_DATA");
pub(crate) const COLOR: Key = text("color", "PITON_COLOR");

pub(crate) const KEYS: &[Key] = &[
    DATA,
    text("store", "PITON_STORE"),
    COLOR,
    text("key.source", "PITON_KEY_SOURCE"),
    list("mask.values", "PITON_MASK_VALUES"),
    list("mask.env", "PITON_MASK_ENV"),
    list("mask.files", "PITON_MASK_FILES"),
    list("mask.keys", "PITON_MASK_KEYS"),
    text("server.listen", "PITON_SERVER_LISTEN"),
    list("server.hosts", "PITON_SERVER_HOSTS"),
    list("server.origins", "PITON_SERVER_ORIGINS"),
    text("server.tls_cert", "PITON_SERVER_TLS_CERT"),
    text("server.tls_key", "PITON_SERVER_TLS_KEY"),
    text("notify.url", "PITON_NOTIFY_URL"),
    text("notify.topic", "PITON_NOTIFY_TOPIC"),
    list("notify.events", "PITON_NOTIFY_EVENTS"),
    text("notify.token", "PITON_NOTIFY_TOKEN"),
    text("chat.agent", "PITON_CHAT_AGENT"),
    live("log.level", "PITON_LOG_LEVEL"),
    live("resume.agent_restart", "PITON_RESUME_AGENT_RESTART"),
    live("resume.continue_run", "PITON_RESUME_CONTINUE_RUN"),
    live("resume.interruption_summary", "PITON_RESUME_INTERRUPTION_SUMMARY"),
    live("resume.boot_parallel", "PITON_RESUME_BOOT_PARALLEL"),
    live("resume.boot_active_within", "PITON_RESUME_BOOT_ACTIVE_WITHIN"),
    live("agents.start_timeout", "PITON_AGENTS_START_TIMEOUT"),
    live("agents.idle_timeout", "PITON_AGENTS_IDLE_TIMEOUT"),
    live("executor.ready_timeout", "PITON_EXECUTOR_READY_TIMEOUT"),
    live("executor.unreachable_after", "PITON_EXECUTOR_UNREACHABLE_AFTER"),
    live("executor.abandon_after", "PITON_EXECUTOR_ABANDON_AFTER"),
    live("executor.agentctl_idle_timeout", "PITON_EXECUTOR_AGENTCTL_IDLE_TIMEOUT"),
    live("wait.tool_result", "PITON_WAIT_TOOL_RESULT"),
    live("wait.permission", "PITON_WAIT_PERMISSION"),
    live("wait.input", "PITON_WAIT_INPUT"),
    live("wait.human", "PITON_WAIT_HUMAN"),
    live("history.message_chars", "PITON_HISTORY_MESSAGE_CHARS"),
    live("history.result_chars", "PITON_HISTORY_RESULT_CHARS"),
    live("history.total_chars", "PITON_HISTORY_TOTAL_CHARS"),
    live("history.items", "PITON_HISTORY_ITEMS"),
    live("workspace.changed_files", "PITON_WORKSPACE_CHANGED_FILES"),
    live("workspace.snapshots", "PITON_WORKSPACE_SNAPSHOTS"),
    live("workspace.snapshot_timeout", "PITON_WORKSPACE_SNAPSHOT_TIMEOUT"),
    live("workspace.snapshot_files", "PITON_WORKSPACE_SNAPSHOT_FILES"),
    live("workspace.snapshot_file_mb", "PITON_WORKSPACE_SNAPSHOT_FILE_MB"),
    live("workspace.snapshot_total_mb", "PITON_WORKSPACE_SNAPSHOT_TOTAL_MB"),
    live("workspace.checkpoints", "PITON_WORKSPACE_CHECKPOINTS"),
    live("requests.kept_for", "PITON_REQUESTS_KEPT_FOR"),
    live("queue.prompts", "PITON_QUEUE_PROMPTS"),
    text("retention.archive_after", "PITON_RETENTION_ARCHIVE_AFTER"),
    text("retention.delete_after", "PITON_RETENTION_DELETE_AFTER"),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows of the reference: name, variable, whether it is reloaded.
    fn documented() -> Vec<(String, String, bool)> {
        let page = include_str!("../../../../docs/settings.md");
        let row = |line: &str| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let code = |cell: &str| Some(cell.strip_prefix('`')?.strip_suffix('`')?.to_owned());
            Some((code(cells.get(1)?)?, code(cells.get(2)?)?, *cells.get(4)? == "yes"))
        };
        page.lines().filter(|line| line.starts_with("| `")).filter_map(row).collect()
    }

    /// The page and the program know the same settings.
    #[test]
    fn every_setting_is_documented_and_nothing_else() {
        let mut documented = documented();
        let mut known: Vec<_> = KEYS
            .iter()
            .map(|key| (key.name.to_owned(), key.variable.to_owned(), key.is_reloaded))
            .collect();
        documented.sort();
        known.sort();
        assert_eq!(documented, known);
    }
}
