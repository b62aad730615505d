//! A configuration of our own for one command.
//!
//! git reads a repository's configuration from its *common folder*, and `GIT_COMMON_DIR` says where
//! that is. A sealed command gets a common folder that was made for it: objects, references and the
//! like are links to the repository's, `config` is a file of ours. `GIT_DIR` is the repository's own
//! folder: `HEAD` and the index are the real ones; `config.worktree` beside them is read only if
//! `config` says so, and ours does not. The user's and the system's configuration are switched off.
//!
//! Settings that change how files are compared and written are copied from a listing: the ones in
//! [`ALLOWED`], none of which names a program. If the listing is out of date a moment later, a line
//! ending may be wrong; nothing is run.
//!
//! An explicit `GIT_DIR` skips git's check of a repository's owner, so the folder is looked up by
//! git itself first, which makes that check.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::{Error, Git, OUTPUT_BYTES_MAX, Result};

/// Settings that are taken over; a key that ends in `.` stands for all below it.
const ALLOWED: &[&str] = &[
    "core.abbrev",
    "core.attributesfile",
    "core.autocrlf",
    "core.bigfilethreshold",
    "core.checkroundtripencoding",
    "core.checkstat",
    "core.eol",
    "core.excludesfile",
    "core.filemode",
    "core.ignorecase",
    "core.ignorestat",
    "core.logallrefupdates",
    "core.precomposeunicode",
    "core.protecthfs",
    "core.protectntfs",
    "core.safecrlf",
    "core.sharedrepository",
    "core.sparsecheckout",
    "core.sparsecheckoutcone",
    "core.splitindex",
    "core.symlinks",
    "core.trustctime",
    "core.untrackedcache",
    "core.usereplacerefs",
    "core.whitespace",
    "diff.algorithm",
    "diff.context",
    "diff.dstprefix",
    "diff.indentheuristic",
    "diff.interhunkcontext",
    "diff.mnemonicprefix",
    "diff.noprefix",
    "diff.renamelimit",
    "diff.renames",
    "diff.srcprefix",
    "diff.suppressblankempty",
    "index.",
    "status.",
    "user.email",
    "user.name",
];
/// Settings of a kind of file (`diff.NAME.KEY`) that are taken over.
const ALLOWED_OF_KIND: &[&str] = &["algorithm", "binary", "funcname", "xfuncname"];
/// The repository's format must be in its file. These parts of it are not wanted: the one would
/// have git read another file, the other fetch what is missing.
const NOT_EXTENSIONS: &[&str] = &["extensions.worktreeconfig", "extensions.partialclone"];
/// What a common folder has, besides its configuration.
const LINKS: &[&str] = &[
    "info",
    "logs",
    "modules",
    "objects",
    "packed-refs",
    "refs",
    "reftable",
    "shallow",
    "worktrees",
];
const PREFIX: &str = "git-";
/// Longer than any git runs: older folders were left by a process that was killed.
const LEFT_AFTER: Duration = Duration::from_hours(1);

/// A private common folder, removed when this is dropped, and the environment that points to it.
pub(super) struct Sealed {
    folder: PathBuf,
    env: Vec<(OsString, OsString)>,
}

impl Sealed {
    pub(super) fn env(&self) -> &[(OsString, OsString)] {
        &self.env
    }
}

impl Drop for Sealed {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Git {
    pub(super) async fn seal(&self) -> Result<Sealed> {
        let args = [
            "rev-parse",
            "--path-format=absolute",
            "--git-dir",
            "--git-common-dir",
            "--show-toplevel",
        ];
        let found = self.run(&args, &[], OUTPUT_BYTES_MAX, None).await?.good()?;
        let lines: Vec<&[u8]> = found.bytes.split(|byte| *byte == b'\n').collect();
        let [git_dir, common, top, b""] = lines[..] else {
            let message = "The repository's path has a line break".to_owned();
            return Err(Error::Failed { message });
        };
        let listed = self.run(&["config", "--list", "--null"], &[], OUTPUT_BYTES_MAX, None).await?;
        let listed = listed.good()?;
        if listed.truncated {
            let message = "Its configuration is too long".to_owned();
            return Err(Error::Failed { message });
        }
        let settings = parse(&listed.bytes);
        let format = format_of(&settings)?;
        let folder = make(&self.runner.private, Path::new(OsStr::from_bytes(common)), &format)?;
        let path = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        let mut env = vec![
            ("GIT_DIR".into(), path(git_dir)),
            ("GIT_WORK_TREE".into(), path(top)),
            ("GIT_COMMON_DIR".into(), folder.clone().into_os_string()),
            ("GIT_CONFIG_GLOBAL".into(), "/dev/null".into()),
            ("GIT_CONFIG_NOSYSTEM".into(), "1".into()),
        ];
        env.extend(taken_over(&settings));
        Ok(Sealed { folder, env })
    }
}

/// Keys as git spells them, with their last values; `None`: a key without a value, which is true.
type Settings = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

fn parse(listed: &[u8]) -> Settings {
    let mut settings = Settings::new();
    for entry in listed.split(|byte| *byte == 0).filter(|entry| !entry.is_empty()) {
        let mut parts = entry.splitn(2, |byte| *byte == b'\n');
        let key = parts.next().unwrap_or_default();
        settings.insert(key.to_vec(), parts.next().map(<[u8]>::to_vec));
    }
    settings
}

fn is_allowed(key: &str) -> bool {
    let listed = ALLOWED.iter().any(|allowed| match allowed.strip_suffix('.') {
        Some(_) => key.strip_prefix(allowed).is_some_and(|rest| !rest.contains('.')),
        None => key == *allowed,
    });
    let of_kind = || {
        let (name, key) = key.strip_prefix("diff.")?.rsplit_once('.')?;
        Some(!name.is_empty() && ALLOWED_OF_KIND.contains(&key))
    };
    listed || of_kind().unwrap_or(false)
}

/// As variables, since a value may have any character in it.
fn taken_over(settings: &Settings) -> Vec<(OsString, OsString)> {
    let mut env = Vec::new();
    let mut count = 0;
    for (key, value) in settings {
        let Some(key) = std::str::from_utf8(key).ok().filter(|key| is_allowed(key)) else {
            continue;
        };
        let value = value.as_deref().unwrap_or(b"true").to_vec();
        env.push((format!("GIT_CONFIG_KEY_{count}").into(), key.into()));
        env.push((format!("GIT_CONFIG_VALUE_{count}").into(), OsString::from_vec(value)));
        count += 1;
    }
    env.push(("GIT_CONFIG_COUNT".into(), count.to_string().into()));
    env
}

/// The text of a configuration that says what format the repository has, and nothing else.
fn format_of(settings: &Settings) -> Result<String> {
    let mut text = String::new();
    for (key, value) in settings {
        let Ok(key) = std::str::from_utf8(key) else { continue };
        let is_format = key == "core.repositoryformatversion"
            || (key.starts_with("extensions.") && !NOT_EXTENSIONS.contains(&key));
        let Some((section, name)) = key.split_once('.').filter(|_| is_format) else { continue };
        let value = value.as_deref().unwrap_or(b"true");
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(byte);
        let value = Some(value).filter(|value| value.iter().all(is_plain));
        let value = value.and_then(|value| std::str::from_utf8(value).ok());
        let Some(value) = value.filter(|_| name.bytes().all(|byte| is_plain(&byte))) else {
            let message = format!("The repository's format is not understood: {key}");
            return Err(Error::Failed { message });
        };
        text.extend(["[", section, "]\n\t", name, " = ", value, "\n"]);
    }
    Ok(text)
}

/// Makes a common folder below `private`.
fn make(private: &Path, common: &Path, config: &str) -> io::Result<PathBuf> {
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    builder.recursive(true).create(private)?;
    // git is run in another folder.
    let private = private.canonicalize()?;
    remove_left(&private);
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
    let folder = private.join(format!("{PREFIX}{}", hex::encode(random)));
    builder.recursive(false).create(&folder)?;
    let filled = fill(&folder, common, config);
    if filled.is_err() {
        let _ = fs::remove_dir_all(&folder);
    }
    filled.map(|()| folder)
}

fn fill(folder: &Path, common: &Path, config: &str) -> io::Result<()> {
    fs::write(folder.join("config"), config)?;
    // A link to what is not there is as good as nothing.
    LINKS.iter().try_for_each(|name| symlink(common.join(name), folder.join(name)))
}

/// Removes what a process that was killed left behind.
fn remove_left(private: &Path) {
    let Ok(entries) = fs::read_dir(private) else { return };
    for entry in entries.flatten() {
        let is_ours = entry.file_name().as_bytes().starts_with(PREFIX.as_bytes());
        let made = entry.metadata().and_then(|found| found.modified());
        let age = made.ok().and_then(|made| SystemTime::now().duration_since(made).ok());
        if is_ours && age.is_some_and(|age| age > LEFT_AFTER) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_settings_that_name_no_program_are_taken_over() {
        let listed = b"core.autocrlf\ninput\0core.autocrlf\ntrue\0core.fsmonitor\n/evil\0\
            filter.a.clean\n/evil\0filter.core.eol.clean\n/evil\0diff.external\n/evil\0\
            diff.a.b.textconv\n/evil\0diff.a.b.xfuncname\n^x\n^y\0core.symlinks\0\
            status.renames\ncopies\0include.path\n/evil\0core.worktree\n/\0";
        let env = taken_over(&parse(listed));
        let value = |text: &str| Some(OsString::from(text));
        let get = |name: String| env.iter().find(|(n, _)| *n == *name).map(|(_, v)| v.clone());
        assert_eq!(get("GIT_CONFIG_COUNT".to_owned()), value("4"));
        let pairs: Vec<_> = (0..4)
            .map(|n| (get(format!("GIT_CONFIG_KEY_{n}")), get(format!("GIT_CONFIG_VALUE_{n}"))))
            .collect();
        let expected = [
            ("core.autocrlf", "true"),
            ("core.symlinks", "true"),
            ("diff.a.b.xfuncname", "^x\n^y"),
            ("status.renames", "copies"),
        ]
        .map(|(key, text)| (value(key), value(text)));
        assert_eq!(pairs, expected);
    }

    #[test]
    fn the_format_is_kept_without_what_reads_other_files() {
        let listed = b"core.repositoryformatversion\n1\0extensions.objectformat\nsha256\0\
            extensions.worktreeconfig\ntrue\0extensions.partialclone\norigin\0core.bare\nfalse\0";
        let text = "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tobjectformat = sha256\n";
        assert_eq!(format_of(&parse(listed)).unwrap(), text);
        let listed = b"extensions.objectformat\nsha256\n[filter \"a\"]\nclean = /evil\0";
        assert!(format_of(&parse(listed)).is_err());
    }
}
