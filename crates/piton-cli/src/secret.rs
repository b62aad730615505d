//! Secrets that a command is given: from a file, the environment, stdin or the terminal. Never from
//! an argument, which the shell's history and the list of processes show to others.

use std::env;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use piton_core::Code;
use piton_store::SecretText;
use rustix::termios::{self, LocalModes, OptionalActions};

use crate::error::{Error, Result};

/// A secret that is longer is something else.
const BYTES_MAX: u64 = 1024 * 1024;

/// Where a passphrase comes from.
#[derive(Debug, clap::Args)]
pub(crate) struct PassphraseArgs {
    /// Take the passphrase from the first line of this file
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
    /// Take the passphrase from this environment variable
    #[arg(long, value_name = "NAME", conflicts_with = "passphrase_file")]
    passphrase_env: Option<String>,
}

impl PassphraseArgs {
    /// The passphrase, if the options say where it is.
    pub(crate) fn given(&self) -> Result<Option<SecretText>> {
        let text = match (&self.passphrase_file, &self.passphrase_env) {
            (Some(path), _) => {
                let text = from_file(path)?;
                text.reveal().lines().next().unwrap_or_default().to_owned()
            }
            (None, Some(name)) => from_variable(name)?.reveal().to_owned(),
            (None, None) => return Ok(None),
        };
        if text.is_empty() {
            return Err(Error::new(Code::PassphraseRequired, "The passphrase is empty"));
        }
        Ok(Some(text.into()))
    }

    /// The passphrase of something that is encrypted: asked for if nothing says where it is and
    /// there is a terminal.
    pub(crate) fn needed(&self) -> Result<Option<SecretText>> {
        match self.given()? {
            None => asked("Passphrase: "),
            given => Ok(given),
        }
    }
}

/// Where the passphrase of a new bundle comes from.
#[derive(Debug, clap::Args)]
pub(crate) struct NewPassphraseArgs {
    #[command(flatten)]
    from: PassphraseArgs,
    /// Encrypt with a passphrase that is typed at the terminal, twice
    #[arg(long, conflicts_with_all = ["passphrase_file", "passphrase_env"])]
    encrypt: bool,
}

impl NewPassphraseArgs {
    /// The passphrase to encrypt with; `None` if the user did not ask for encryption.
    pub(crate) fn given(&self) -> Result<Option<SecretText>> {
        if !self.encrypt {
            return self.from.given();
        }
        let no_terminal = || {
            let message = "There is no terminal to type the passphrase at";
            Error::new(Code::PassphraseRequired, message)
                .with_hint("Use --passphrase-file or --passphrase-env.")
        };
        let first = asked("New passphrase: ")?.ok_or_else(no_terminal)?;
        let second = asked("The same again: ")?.ok_or_else(no_terminal)?;
        if first.reveal().is_empty() {
            return Err(Error::new(Code::PassphraseRequired, "The passphrase is empty"));
        }
        if first.reveal() != second.reveal() {
            return Err(Error::new(Code::PassphraseWrong, "The two passphrases are not the same")
                .with_hint("Try again; nothing was written."));
        }
        Ok(Some(first))
    }
}

pub(crate) fn from_file(path: &Path) -> Result<SecretText> {
    let failed = |e: io::Error| {
        let message = format!("The file {} cannot be read", path.display());
        Error::new(Code::SecretUnreadable, message).because(&e)
    };
    let file = File::open(path).map_err(failed)?;
    from_reader(file, &format!("The file {}", path.display()))
}

pub(crate) fn from_stdin() -> Result<SecretText> {
    from_reader(io::stdin().lock(), "Stdin")
}

fn from_reader(from: impl Read, what: &str) -> Result<SecretText> {
    let mut text = String::new();
    let read = from.take(BYTES_MAX + 1).read_to_string(&mut text);
    // Kept from here on, so that it is wiped whatever comes.
    let text = SecretText::from(text);
    if let Err(e) = read {
        let message = format!("{what} does not hold a text");
        return Err(Error::new(Code::SecretUnreadable, message).because(&e));
    }
    if text.reveal().len() as u64 > BYTES_MAX {
        let message = format!("{what} holds more than 1 MiB, which is no secret");
        return Err(Error::new(Code::SecretUnreadable, message));
    }
    Ok(text)
}

pub(crate) fn from_variable(name: &str) -> Result<SecretText> {
    env::var(name).map(Into::into).map_err(|e| {
        Error::new(
            Code::SecretUnreadable,
            format!("The variable {name} has no value that can be used"),
        )
        .because(&e)
    })
}

/// Asks at the terminal, which does not show what is typed; `None` if there is no terminal.
fn asked(question: &str) -> Result<Option<SecretText>> {
    let Ok(mut terminal) = OpenOptions::new().read(true).write(true).open("/dev/tty") else {
        return Ok(None);
    };
    let before = termios::tcgetattr(&terminal).map_err(io::Error::from)?;
    let mut quiet = before.clone();
    quiet.local_modes.remove(LocalModes::ECHO);
    termios::tcsetattr(&terminal, OptionalActions::Flush, &quiet).map_err(io::Error::from)?;
    let answer = ask_at(&mut terminal, question);
    let restored = termios::tcsetattr(&terminal, OptionalActions::Flush, &before);
    // The line end that was typed was not shown either.
    writeln!(terminal)?;
    restored.map_err(io::Error::from)?;
    Ok(Some(answer?))
}

fn ask_at(terminal: &mut File, question: &str) -> Result<SecretText> {
    write!(terminal, "{question}")?;
    terminal.flush()?;
    let mut line = String::new();
    BufReader::new(terminal).read_line(&mut line)?;
    let line = SecretText::from(line);
    Ok(line.reveal().trim_end_matches(['\r', '\n']).to_owned().into())
}
