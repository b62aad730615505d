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
}

const fn text(name: &'static str, variable: &'static str) -> Key {
    Key { name, variable, is_list: false }
}

const fn list(name: &'static str, variable: &'static str) -> Key {
    Key { name, variable, is_list: true }
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
    text("chat.agent", "PITON_CHAT_AGENT"),
    text("resume.agent_restart", "PITON_RESUME_AGENT_RESTART"),
    text("resume.continue_run", "PITON_RESUME_CONTINUE_RUN"),
    text("resume.interruption_summary", "PITON_RESUME_INTERRUPTION_SUMMARY"),
    text("retention.archive_after", "PITON_RETENTION_ARCHIVE_AFTER"),
    text("retention.delete_after", "PITON_RETENTION_DELETE_AFTER"),
];
