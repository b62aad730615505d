//! Where the data key comes from. A *new* store takes the first source that works, in the order of
//! [`KeySettings::order`]; an existing store names its key and its source and is satisfied with
//! nothing else. The library reads no environment: the caller hands its value over.
//!
//! A source holds a list of keys as hexadecimal text; the first is the newest, the others keep old
//! contents readable.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use zeroize::Zeroizing;

use crate::contract::Entropy;
use crate::crypto::Subkeys;
use crate::error::{Cause, Error, Result};

/// The key file's name in the data folder.
pub const KEY_FILE: &str = "key";

/// Most keys that one source may hold; one is added by each rotation.
const KEYS_MAX: usize = 64;
/// A key file longer than this holds something else.
const KEY_FILE_BYTES_MAX: u64 = 16 * 1024;

/// A text that is wiped when it is dropped and never shown.
#[derive(Clone)]
pub struct SecretText(Zeroizing<String>);

impl From<String> for SecretText {
    fn from(text: String) -> Self {
        Self(Zeroizing::new(text))
    }
}

impl SecretText {
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(…)")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySource {
    Keychain,
    Environment,
    File,
}

impl KeySource {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Keychain => "keychain",
            Self::Environment => "environment",
            Self::File => "file",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        [Self::Keychain, Self::Environment, Self::File].into_iter().find(|s| s.as_str() == text)
    }
}

/// The operating system's keychain, or what stands for it in a test.
pub trait Keychain: Send + Sync + fmt::Debug + 'static {
    /// `Ok(None)`: the keychain works and has no such entry.
    fn get(&self, name: &str) -> Result<Option<SecretText>, KeychainUnavailable>;
    fn set(&self, name: &str, text: &SecretText) -> Result<(), KeychainUnavailable>;
}

#[derive(Clone, Debug, thiserror::Error)]
#[error("The keychain cannot be used: {why}")]
pub struct KeychainUnavailable {
    pub why: String,
}

/// Where keys may be taken from.
#[derive(Clone, Debug)]
pub struct KeySettings {
    /// For a new store: the first of these that works.
    pub order: Vec<KeySource>,
    /// The value of `PITON_KEY`: keys in hex, separated by commas, the newest first.
    pub environment: Option<SecretText>,
    /// `OsKeychain`, if the feature `keychain` is on and the caller wants it.
    pub keychain: Option<Arc<dyn Keychain>>,
}

impl Default for KeySettings {
    /// Without a keychain and an environment: the key file.
    fn default() -> Self {
        Self {
            order: vec![KeySource::Keychain, KeySource::Environment, KeySource::File],
            environment: None,
            keychain: None,
        }
    }
}

/// The keys of one open store.
#[derive(Debug)]
pub(crate) struct Keys {
    settings: KeySettings,
    folder: PathBuf,
    /// The store's name in the keychain.
    name: String,
    source: KeySource,
    ring: RwLock<Ring>,
}

#[derive(Debug)]
struct Ring {
    /// As the source lists them, the newest first.
    keys: Vec<Arc<Subkeys>>,
    /// The one that the store writes with.
    current: Arc<Subkeys>,
}

impl Keys {
    /// Finds or makes the key of a new store called `name`.
    pub(crate) fn create(
        folder: &Path,
        settings: KeySettings,
        name: String,
        entropy: &dyn Entropy,
    ) -> Result<Self> {
        for source in settings.order.clone() {
            let text = match source {
                KeySource::Keychain => new_in_keychain(&settings, &name, entropy)?,
                KeySource::Environment => settings.environment.clone(),
                KeySource::File => Some(new_in_file(folder, entropy)?),
            };
            let Some(text) = text else { continue };
            let keys = parse(&text, &place(source, folder))?;
            let current = keys[0].clone();
            let ring = RwLock::new(Ring { keys, current });
            return Ok(Self { settings, folder: folder.to_owned(), name, source, ring });
        }
        let tried: Vec<_> = settings.order.iter().map(|source| source.as_str()).collect();
        Err(Error::KeyMissing { key_id: "for a new store".into(), place: tried.join(", ") })
    }

    /// Finds the key that an existing store names, in the source that it names.
    pub(crate) fn open(
        folder: &Path,
        settings: KeySettings,
        name: String,
        source: KeySource,
        key_id: &str,
    ) -> Result<Self> {
        let place = place(source, folder);
        let Some(text) = load(&settings, folder, &name, source)? else {
            return Err(Error::KeyMissing { key_id: key_id.to_owned(), place });
        };
        let keys = parse(&text, &place)?;
        let current = keys.iter().find(|key| &**key.id() == key_id).cloned();
        let current =
            current.ok_or_else(|| Error::KeyWrong { key_id: key_id.to_owned(), place })?;
        let ring = RwLock::new(Ring { keys, current });
        Ok(Self { settings, folder: folder.to_owned(), name, source, ring })
    }

    pub(crate) fn source(&self) -> KeySource {
        self.source
    }

    pub(crate) fn current(&self) -> Arc<Subkeys> {
        self.ring.read().unwrap_or_else(PoisonError::into_inner).current.clone()
    }

    /// The key of a given id. One that is not known may have been made by another process since:
    /// the source is asked once more.
    pub(crate) fn get(&self, key_id: &str) -> Result<Arc<Subkeys>> {
        let find = |keys: &[Arc<Subkeys>]| keys.iter().find(|k| &**k.id() == key_id).cloned();
        {
            let ring = self.ring.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(key) = find(&ring.keys) {
                return Ok(key);
            }
        }
        let place = place(self.source, &self.folder);
        let missing = || Error::KeyMissing { key_id: key_id.to_owned(), place: place.clone() };
        let text = load(&self.settings, &self.folder, &self.name, self.source)?;
        let keys = parse(&text.ok_or_else(missing)?, &place)?;
        let found = find(&keys).ok_or_else(missing)?;
        self.ring.write().unwrap_or_else(PoisonError::into_inner).keys = keys;
        Ok(found)
    }

    /// Makes the key that the store names the current one, if another process changed it.
    pub(crate) fn follow(&self, key_id: &str) -> Result<()> {
        if &**self.current().id() != key_id {
            self.make_current(self.get(key_id)?);
        }
        Ok(())
    }

    /// The key to rotate to, durably in its source. If the source's first key is not the current
    /// one, a rotation was begun (by an operator, or before a crash): that key is taken.
    ///
    /// Reads the source, and writes it with one key more: only for a caller that keeps every other
    /// process from doing the same meanwhile, or one's key would be lost.
    pub(crate) fn stage_next(&self, entropy: &dyn Entropy) -> Result<Arc<Subkeys>> {
        let place = place(self.source, &self.folder);
        let text =
            load(&self.settings, &self.folder, &self.name, self.source)?.ok_or_else(|| {
                Error::KeyMissing { key_id: self.current().id().to_string(), place: place.clone() }
            })?;
        let mut keys = parse(&text, &place)?;
        if keys[0].id() == self.current().id() {
            let longer = with_new_key(Some(&text), entropy)?;
            // Parsed before it is kept: a list that could not be read again must not be written.
            keys = parse(&longer, &place)?;
            match self.source {
                KeySource::File => replace_file(&self.folder, &longer)?,
                KeySource::Keychain => match &self.settings.keychain {
                    Some(keychain) => keychain.set(&self.name, &longer).map_err(|e| {
                        tracing::warn!(error = %e, "The new key could not be kept");
                        Error::KeyMissing { key_id: "to rotate to".into(), place: place.clone() }
                    })?,
                    None => return Err(Error::KeyMissing { key_id: "to rotate to".into(), place }),
                },
                // Only the operator can write there: the new key goes in front of the old one.
                KeySource::Environment => {
                    return Err(Error::KeyMissing { key_id: "to rotate to".into(), place });
                }
            }
        }
        let next = keys[0].clone();
        self.ring.write().unwrap_or_else(PoisonError::into_inner).keys = keys;
        Ok(next)
    }

    pub(crate) fn make_current(&self, key: Arc<Subkeys>) {
        self.ring.write().unwrap_or_else(PoisonError::into_inner).current = key;
    }
}

fn place(source: KeySource, folder: &Path) -> String {
    match source {
        KeySource::Keychain => "keychain".to_owned(),
        KeySource::Environment => "environment (PITON_KEY)".to_owned(),
        KeySource::File => format!("key file {}", folder.join(KEY_FILE).display()),
    }
}

/// Reads a source; `None` if it holds nothing or cannot be asked.
fn load(
    settings: &KeySettings,
    folder: &Path,
    name: &str,
    source: KeySource,
) -> Result<Option<SecretText>> {
    match source {
        KeySource::Environment => Ok(settings.environment.clone()),
        KeySource::File => read_file(folder),
        KeySource::Keychain => {
            let Some(keychain) = &settings.keychain else { return Ok(None) };
            Ok(keychain.get(name).unwrap_or_else(|e| {
                tracing::warn!(error = %e, "The keychain did not return the store's key");
                None
            }))
        }
    }
}

/// Keys in hex, separated by commas or white space. Never empty.
fn parse(text: &SecretText, place: &str) -> Result<Vec<Arc<Subkeys>>> {
    let invalid = || Error::KeyInvalid { place: place.to_owned() };
    let mut keys = Vec::new();
    let words = text.reveal().split([',', ' ', '\n', '\r', '\t']).filter(|word| !word.is_empty());
    for word in words {
        let mut bytes = Zeroizing::new([0; 32]);
        hex::decode_to_slice(word, bytes.as_mut_slice()).map_err(|_| invalid())?;
        keys.push(Arc::new(Subkeys::derive(&bytes)));
    }
    if keys.is_empty() || keys.len() > KEYS_MAX { Err(invalid()) } else { Ok(keys) }
}

fn with_new_key(old: Option<&SecretText>, entropy: &dyn Entropy) -> Result<SecretText> {
    let mut bytes = Zeroizing::new([0; 32]);
    entropy.fill(bytes.as_mut_slice())?;
    let mut text = Zeroizing::new(hex::encode(bytes.as_slice()));
    text.push('\n');
    if let Some(old) = old {
        text.push_str(old.reveal());
    }
    Ok(SecretText(text))
}

/// The keychain's key for a new store, made if there is none; `None` if there is no keychain.
fn new_in_keychain(
    settings: &KeySettings,
    name: &str,
    entropy: &dyn Entropy,
) -> Result<Option<SecretText>> {
    let Some(keychain) = &settings.keychain else { return Ok(None) };
    let made = with_new_key(None, entropy)?;
    let kept = keychain.get(name).and_then(|found| match found {
        Some(found) => Ok(Some(found)),
        // Read back: a keychain that forgets at once must not hold the only key.
        None => keychain.set(name, &made).and_then(|()| keychain.get(name)),
    });
    match kept {
        Ok(Some(text)) => Ok(Some(text)),
        Ok(None) => {
            tracing::warn!("The keychain did not keep the key; another source is used");
            Ok(None)
        }
        Err(e) => {
            tracing::info!(error = %e, "No keychain; another source is used for the key");
            Ok(None)
        }
    }
}

fn read_file(folder: &Path) -> Result<Option<SecretText>> {
    let path = folder.join(KEY_FILE);
    let unreadable = |e: io::Error| Error::Unreadable {
        path: folder.join(KEY_FILE),
        source: Some(Arc::new(e) as Cause),
    };
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(unreadable(e)),
    };
    let metadata = file.metadata().map_err(unreadable)?;
    let invalid = || Error::KeyInvalid { place: place(KeySource::File, folder) };
    if !metadata.is_file() {
        return Err(invalid());
    }
    // Checked on the open file, so that it cannot be swapped in between.
    if metadata.permissions().mode() & 0o077 != 0 {
        return Err(Error::KeyPermissions { path });
    }
    let mut bytes = Zeroizing::new(Vec::new());
    file.take(KEY_FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(unreadable)?;
    let text = std::str::from_utf8(&bytes).map_err(|_| invalid())?;
    Ok(Some(SecretText::from(text.to_owned())))
}

/// The key file's text for a new store, made if there is none.
fn new_in_file(folder: &Path, entropy: &dyn Entropy) -> Result<SecretText> {
    if let Some(text) = read_file(folder)? {
        return Ok(text);
    }
    let text = with_new_key(None, entropy)?;
    let temporary = write_temporary(folder, &text)?;
    // A link never replaces: if another process was faster, its key is the one.
    let linked = fs::hard_link(&temporary, folder.join(KEY_FILE));
    let removed = fs::remove_file(&temporary);
    match linked {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        Err(e) => return Err(crate::folder::write_failed(folder, e)),
    }
    removed.map_err(|e| crate::folder::write_failed(folder, e))?;
    crate::folder::sync(folder)?;
    read_file(folder)?.ok_or_else(|| Error::KeyMissing {
        key_id: "for a new store".into(),
        place: place(KeySource::File, folder),
    })
}

fn replace_file(folder: &Path, text: &SecretText) -> Result<()> {
    let temporary = write_temporary(folder, text)?;
    fs::rename(&temporary, folder.join(KEY_FILE))
        .map_err(|e| crate::folder::write_failed(folder, e))?;
    crate::folder::sync(folder)
}

fn write_temporary(folder: &Path, text: &SecretText) -> Result<PathBuf> {
    let path = folder.join(format!("{KEY_FILE}.{}.new", std::process::id()));
    // A leftover of a dead process with our id; its content was never used.
    let _ = fs::remove_file(&path);
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all(text.reveal().as_bytes())?;
        file.sync_all()
    };
    write().map_err(|e| crate::folder::write_failed(folder, e))?;
    Ok(path)
}

#[cfg(test)]
#[path = "keys_tests.rs"]
mod tests;
