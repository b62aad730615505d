//! Encryption of a bundle with a passphrase: Argon2id makes the key, XChaCha20-Poly1305 seals
//! numbered pieces of which the last says that it is, so that nothing can be cut off, moved or
//! added.

use std::io::{self, BufRead, Read, Write};

use argon2::{Algorithm, Argon2, Params, Version};
use chacha20poly1305::XChaCha20Poly1305;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use zeroize::Zeroizing;

use super::error::Error;
use super::format::PIECE_BYTES;
use crate::keys::SecretText;

const ARGON2ID: u8 = 1;
const SALT_BYTES: usize = 16;
const CHECK_BYTES: usize = 16;
const TAG_BYTES: usize = 16;
pub(super) const HEAD_BYTES: usize = 1 + 4 + 4 + 4 + SALT_BYTES + CHECK_BYTES;

const KEY_CONTEXT: &str = "piton bundle 2026 key";
const CHECK_CONTEXT: &str = "piton bundle 2026 passphrase check";

/// The work that each guess of a passphrase costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    pub memory_kib: u32,
    pub passes: u32,
    pub lanes: u32,
}

impl Default for Cost {
    fn default() -> Self {
        Self { memory_kib: 64 * 1024, passes: 3, lanes: 1 }
    }
}

/// A bundle cannot make its reader work more than this.
const COST_MAX: Cost = Cost { memory_kib: 256 * 1024, passes: 10, lanes: 8 };

/// How a bundle is sealed; written in the clear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SealHead {
    cost: Cost,
    salt: [u8; SALT_BYTES],
    check: [u8; CHECK_BYTES],
}

pub(super) struct SealKey(Zeroizing<[u8; 32]>);

fn derive(
    passphrase: &SecretText,
    cost: Cost,
    salt: &[u8; SALT_BYTES],
) -> Option<(SealKey, [u8; CHECK_BYTES])> {
    let params = Params::new(cost.memory_kib, cost.passes, cost.lanes, Some(32)).ok()?;
    let mut made = Zeroizing::new([0; 32]);
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    argon2.hash_password_into(passphrase.reveal().as_bytes(), salt, &mut *made).ok()?;
    let mut check = [0; CHECK_BYTES];
    check.copy_from_slice(&blake3::derive_key(CHECK_CONTEXT, &*made)[..CHECK_BYTES]);
    Some((SealKey(Zeroizing::new(blake3::derive_key(KEY_CONTEXT, &*made))), check))
}

impl SealHead {
    pub(super) fn make(
        passphrase: &SecretText,
        cost: Cost,
        salt: [u8; SALT_BYTES],
    ) -> Option<(Self, SealKey)> {
        if !cost.is_bearable() {
            return None;
        }
        let (key, check) = derive(passphrase, cost, &salt)?;
        Some((Self { cost, salt, check }, key))
    }

    pub(super) fn to_bytes(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[0] = ARGON2ID;
        bytes[1..5].copy_from_slice(&self.cost.memory_kib.to_le_bytes());
        bytes[5..9].copy_from_slice(&self.cost.passes.to_le_bytes());
        bytes[9..13].copy_from_slice(&self.cost.lanes.to_le_bytes());
        bytes[13..29].copy_from_slice(&self.salt);
        bytes[29..].copy_from_slice(&self.check);
        bytes
    }

    /// `None`: not what any version writes, or more work than a reader is ready to do.
    pub(super) fn from_bytes(bytes: &[u8; HEAD_BYTES]) -> Option<Self> {
        let number = |at: usize| bytes[at..at + 4].try_into().map(u32::from_le_bytes).ok();
        let cost = Cost { memory_kib: number(1)?, passes: number(5)?, lanes: number(9)? };
        let (salt, check) = (bytes[13..29].try_into().ok()?, bytes[29..].try_into().ok()?);
        (bytes[0] == ARGON2ID && cost.is_bearable()).then_some(Self { cost, salt, check })
    }

    pub(super) fn open(&self, passphrase: &SecretText) -> Result<SealKey, Error> {
        match derive(passphrase, self.cost, &self.salt) {
            Some((key, check)) if check == self.check => Ok(key),
            _ => Err(Error::PassphraseWrong),
        }
    }
}

impl Cost {
    fn is_bearable(self) -> bool {
        self.memory_kib <= COST_MAX.memory_kib
            && self.passes <= COST_MAX.passes
            && self.lanes <= COST_MAX.lanes
            && Params::new(self.memory_kib, self.passes, self.lanes, Some(32)).is_ok()
    }
}

/// The key is made for one bundle, so numbers are enough to never use a nonce twice.
fn nonce(number: u64, last: bool) -> [u8; 24] {
    let mut nonce = [0; 24];
    nonce[..8].copy_from_slice(&number.to_le_bytes());
    nonce[8] = u8::from(last);
    nonce
}

/// Seals what is written to it. What comes before the body is bound to every piece.
pub(super) struct Sealer<W> {
    to: W,
    cipher: XChaCha20Poly1305,
    bound: Vec<u8>,
    number: u64,
    piece: Vec<u8>,
}

impl<W: Write> Sealer<W> {
    pub(super) fn new(to: W, key: &SealKey, bound: Vec<u8>) -> Self {
        let cipher = XChaCha20Poly1305::new((&*key.0).into());
        Self { to, cipher, bound, number: 0, piece: Vec::with_capacity(PIECE_BYTES) }
    }

    fn seal(&mut self, last: bool) -> io::Result<()> {
        let payload = Payload { msg: &self.piece, aad: &self.bound };
        let nonce = nonce(self.number, last);
        let sealed = self.cipher.encrypt(&nonce.into(), payload);
        let sealed = sealed.map_err(|_| io::Error::other("a piece cannot be encrypted"))?;
        let length = u32::try_from(sealed.len()).map_err(io::Error::other)?;
        self.to.write_all(&length.to_le_bytes())?;
        self.to.write_all(&sealed)?;
        self.number += 1;
        self.piece.clear();
        Ok(())
    }

    pub(super) fn finish(mut self) -> io::Result<W> {
        self.seal(true)?;
        Ok(self.to)
    }
}

impl<W: Write> Write for Sealer<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.piece.len() == PIECE_BYTES {
            self.seal(false)?;
        }
        let taken = bytes.len().min(PIECE_BYTES - self.piece.len());
        self.piece.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        // A piece is sealed when it is full, or the last: a flush would only make it shorter.
        self.to.flush()
    }
}

/// Opens what was sealed, piece by piece.
pub(super) struct Opener<R> {
    from: R,
    cipher: XChaCha20Poly1305,
    bound: Vec<u8>,
    number: u64,
    piece: Vec<u8>,
    read: usize,
    ended: bool,
}

impl<R: BufRead> Opener<R> {
    pub(super) fn new(from: R, key: &SealKey, bound: Vec<u8>) -> Self {
        let cipher = XChaCha20Poly1305::new((&*key.0).into());
        Self { from, cipher, bound, number: 0, piece: Vec::new(), read: 0, ended: false }
    }

    fn next(&mut self) -> io::Result<()> {
        let invalid = |why| io::Error::new(io::ErrorKind::InvalidData, why);
        let mut length = [0; 4];
        self.from.read_exact(&mut length)?;
        let length = u32::from_le_bytes(length) as usize;
        if !(TAG_BYTES..=PIECE_BYTES + TAG_BYTES).contains(&length) {
            return Err(invalid("a sealed piece has an impossible length"));
        }
        let mut sealed = vec![0; length];
        self.from.read_exact(&mut sealed)?;
        // The last piece is the one behind which there is nothing; it was sealed as the last.
        let last = self.from.fill_buf()?.is_empty();
        let payload = Payload { msg: &sealed, aad: &self.bound };
        let opened = self.cipher.decrypt(&nonce(self.number, last).into(), payload);
        self.piece = opened.map_err(|_| invalid("a sealed piece does not open"))?;
        (self.read, self.ended) = (0, last);
        self.number += 1;
        Ok(())
    }
}

impl<R: BufRead> Read for Opener<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.read == self.piece.len() {
            if self.ended {
                return Ok(0);
            }
            self.next()?;
        }
        let taken = into.len().min(self.piece.len() - self.read);
        into[..taken].copy_from_slice(&self.piece[self.read..self.read + taken]);
        self.read += taken;
        Ok(taken)
    }
}
