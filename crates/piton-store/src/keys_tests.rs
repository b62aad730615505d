use std::collections::HashMap;
use std::sync::Mutex;

use super::*;
use crate::contract::OsEntropy;

/// A keychain that works, or does not.
#[derive(Debug, Default)]
struct FakeKeychain {
    entries: Mutex<HashMap<String, SecretText>>,
    broken: bool,
}

impl Keychain for FakeKeychain {
    fn get(&self, name: &str) -> Result<Option<SecretText>, KeychainUnavailable> {
        if self.broken {
            return Err(KeychainUnavailable { why: "no secret service".into() });
        }
        Ok(self.entries.lock().unwrap().get(name).cloned())
    }

    fn set(&self, name: &str, text: &SecretText) -> Result<(), KeychainUnavailable> {
        self.entries.lock().unwrap().insert(name.to_owned(), text.clone());
        Ok(())
    }
}

fn create(folder: &Path, settings: KeySettings) -> Result<Keys> {
    Keys::create(folder, settings, "store".into(), &OsEntropy)
}

fn reopen(folder: &Path, settings: KeySettings, keys: &Keys) -> Result<Keys> {
    Keys::open(folder, settings, "store".into(), keys.source(), keys.current().id())
}

fn environment(text: &str) -> KeySettings {
    KeySettings { environment: Some(text.to_owned().into()), ..KeySettings::default() }
}

#[test]
fn the_first_source_that_works_is_used() {
    let temp = tempfile::tempdir().unwrap();
    let key = "ab".repeat(32);
    let keychain: Arc<dyn Keychain> = Arc::new(FakeKeychain::default());
    let broken: Arc<dyn Keychain> =
        Arc::new(FakeKeychain { broken: true, ..FakeKeychain::default() });
    for (keychain, environment, expected) in [
        (Some(keychain), Some(key.clone()), KeySource::Keychain),
        (Some(broken), Some(key), KeySource::Environment),
        (None, None, KeySource::File),
    ] {
        let environment = environment.map(SecretText::from);
        let settings = KeySettings { environment, keychain, ..KeySettings::default() };
        let keys = create(temp.path(), settings.clone()).unwrap();
        assert_eq!(keys.source(), expected);
        let again = reopen(temp.path(), settings, &keys).unwrap();
        assert_eq!(again.current().id(), keys.current().id());
    }
}

#[test]
fn the_key_file_is_private_and_kept() {
    let temp = tempfile::tempdir().unwrap();
    let keys = create(temp.path(), KeySettings::default()).unwrap();
    let path = temp.path().join(KEY_FILE);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let names: Vec<_> = fs::read_dir(temp.path()).unwrap().collect();
    assert_eq!(names.len(), 1, "a temporary file was left behind");
    // A second store's creation in the same folder finds it.
    let again = create(temp.path(), KeySettings::default()).unwrap();
    assert_eq!(again.current().id(), keys.current().id());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let exposed = reopen(temp.path(), KeySettings::default(), &keys).unwrap_err();
    assert!(matches!(exposed, Error::KeyPermissions { .. }));
}

#[test]
fn missing_wrong_and_unreadable_keys_are_distinguished() {
    let temp = tempfile::tempdir().unwrap();
    let keys = create(temp.path(), KeySettings::default()).unwrap();
    let path = temp.path().join(KEY_FILE);
    let put = |text: &str| {
        fs::write(&path, text).unwrap();
        reopen(temp.path(), KeySettings::default(), &keys).unwrap_err()
    };
    assert!(matches!(put(&"00".repeat(32)), Error::KeyWrong { .. }));
    for garbage in ["", "zz", &"0".repeat(63), "\u{1F511}", &"00 ".repeat(40)] {
        assert!(matches!(put(garbage), Error::KeyInvalid { .. }), "{garbage:?}");
    }
    fs::remove_file(&path).unwrap();
    let missing = reopen(temp.path(), KeySettings::default(), &keys).unwrap_err();
    assert!(matches!(missing, Error::KeyMissing { .. }));
    let only = KeySettings { order: vec![KeySource::Environment], ..KeySettings::default() };
    assert!(matches!(create(temp.path(), only), Err(Error::KeyMissing { .. })));
    assert!(matches!(create(temp.path(), environment("x")), Err(Error::KeyInvalid { .. })));
    assert!(!path.exists(), "a key was made though another source failed");
}

#[test]
fn rotation_keeps_old_keys_and_continues_after_a_crash() {
    let temp = tempfile::tempdir().unwrap();
    let keys = create(temp.path(), KeySettings::default()).unwrap();
    let old = keys.current().id().clone();
    let next = keys.stage_next(&OsEntropy).unwrap();
    // The crash: staged, and never made current.
    let keys = reopen(temp.path(), KeySettings::default(), &keys).unwrap();
    assert_eq!(*keys.current().id(), old);
    let staged = keys.stage_next(&OsEntropy).unwrap();
    assert_eq!(staged.id(), next.id(), "a begun rotation is finished, not begun again");
    keys.make_current(staged);
    assert_eq!(keys.current().id(), next.id());
    assert_eq!(*keys.get(&old).unwrap().id(), old);
    // A key that another process made meanwhile is found.
    let other = reopen(temp.path(), KeySettings::default(), &keys).unwrap();
    let third = other.stage_next(&OsEntropy).unwrap();
    assert_eq!(keys.get(third.id()).unwrap().id(), third.id());
    assert!(matches!(keys.get("0000"), Err(Error::KeyMissing { .. })));
}

#[test]
fn the_environment_is_rotated_by_its_operator() {
    let temp = tempfile::tempdir().unwrap();
    let (old, new) = ("aa".repeat(32), "bb".repeat(32));
    let keys = create(temp.path(), environment(&old)).unwrap();
    assert!(matches!(keys.stage_next(&OsEntropy), Err(Error::KeyMissing { .. })));
    let keys = reopen(temp.path(), environment(&format!("{new},{old}")), &keys).unwrap();
    let next = keys.stage_next(&OsEntropy).unwrap();
    assert_ne!(next.id(), keys.current().id());
}

#[test]
fn secrets_are_not_shown() {
    let shown = format!("{:?}", environment(&"ab".repeat(32)));
    assert!(!shown.contains("abab"), "{shown}");
}
