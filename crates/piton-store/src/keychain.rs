//! The operating system's keychain. Blocking, and asked only while a store is opened or its key
//! is rotated.

use crate::keys::{Keychain, KeychainUnavailable, SecretText};

/// The service name under which entries are kept.
const SERVICE: &str = "piton";

/// Keychain on macOS, Secret Service on Linux.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsKeychain;

fn entry(name: &str) -> Result<keyring::Entry, KeychainUnavailable> {
    // Asked first: without a secret service the store cannot be initialised, and the reason is here.
    if let Err(e) = keyring::Entry::store_status() {
        return Err(KeychainUnavailable { why: e.to_string() });
    }
    keyring::Entry::new(SERVICE, name).map_err(|e| KeychainUnavailable { why: e.to_string() })
}

impl Keychain for OsKeychain {
    fn get(&self, name: &str) -> Result<Option<SecretText>, KeychainUnavailable> {
        match entry(name)?.get_password() {
            Ok(text) => Ok(Some(text.into())),
            Err(keyring::Error::NoEntry) => Ok(None),
            Err(e) => Err(KeychainUnavailable { why: e.to_string() }),
        }
    }

    fn set(&self, name: &str, text: &SecretText) -> Result<(), KeychainUnavailable> {
        let kept = entry(name)?.set_password(text.reveal());
        kept.map_err(|e| KeychainUnavailable { why: e.to_string() })
    }
}
