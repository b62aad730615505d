//! The environment of what Piton starts. What is meant for Piton itself is not inherited: the store's
//! key is nothing that an agent may see. Nor is the marker of an execution: a Piton that an agent
//! started is no part of that agent's execution, and what it launches must not be ended with it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

/// The variables of this process that nothing it starts may inherit.
pub fn private_variables() -> Vec<OsString> {
    std::env::vars_os().map(|(name, _)| name).filter(|name| is_private(name)).collect()
}

/// Whether a variable is meant for Piton itself.
pub fn is_private(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b"PITON_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_meant_for_piton_is_not_inherited() {
        let names = ["PITON_KEY", "PATH", "PITON_EXECUTION", "MY_PITON_KEY", "PITON"];
        let private: Vec<_> = names.into_iter().filter(|name| is_private(name.as_ref())).collect();
        assert_eq!(private, ["PITON_KEY", "PITON_EXECUTION"]);
    }
}
