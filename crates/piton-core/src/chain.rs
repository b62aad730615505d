//! The keyed hash chain over a session's records. Pure: a store keeps the hashes, `verify` walks
//! them. Each link covers its predecessor, the record's header, and a keyed hash of its payload,
//! so that a payload can be taken out later without breaking the chain.

use crate::event::Seq;
use crate::time::Timestamp;

pub type Hash = [u8; 32];

/// The link before the first record.
pub const GENESIS: Hash = [0; 32];

/// One random key per session; without it nobody can forge a link.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; 32]);

/// The parts of a record that a link covers, as first written.
#[derive(Clone, Copy, Debug)]
pub struct Link<'a> {
    pub seq: Seq,
    pub ts: Timestamp,
    pub kind: &'a str,
    pub header: &'a str,
    pub payload_hash: Option<Hash>,
    /// How many records of the same batch follow.
    pub batch_left: u32,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("chain::Key(…)")
    }
}

impl Key {
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The hash that stands for a payload in its record's link.
    pub fn payload_hash(&self, plaintext: &[u8]) -> Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(b"payload\0");
        hasher.update(plaintext);
        *hasher.finalize().as_bytes()
    }

    pub fn link(&self, previous: &Hash, link: Link<'_>) -> Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(b"record\0\0");
        hasher.update(previous);
        hasher.update(&link.seq.to_le_bytes());
        hasher.update(&link.ts.as_millis().to_le_bytes());
        hasher.update(&link.batch_left.to_le_bytes());
        for part in [link.kind, link.header] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        match &link.payload_hash {
            Some(hash) => hasher.update(&[1]).update(hash),
            None => hasher.update(&[0]),
        };
        *hasher.finalize().as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every covered part changes the link, and so does moving a byte from one part to the next.
    #[test]
    fn each_part_is_covered() {
        let key = Key::new([7; 32]);
        let base = Link {
            seq: 1,
            ts: Timestamp::from_millis(5),
            kind: "a.b",
            header: "{}",
            payload_hash: Some(key.payload_hash(b"x")),
            batch_left: 0,
        };
        let variants = [
            key.link(&GENESIS, base),
            Key::new([8; 32]).link(&GENESIS, base),
            key.link(&[1; 32], base),
            key.link(&GENESIS, Link { seq: 2, ..base }),
            key.link(&GENESIS, Link { ts: Timestamp::from_millis(6), ..base }),
            key.link(&GENESIS, Link { kind: "a.b{", header: "}", ..base }),
            key.link(&GENESIS, Link { payload_hash: None, ..base }),
            key.link(&GENESIS, Link { payload_hash: Some(key.payload_hash(b"y")), ..base }),
            key.link(&GENESIS, Link { batch_left: 1, ..base }),
        ];
        for (i, one) in variants.iter().enumerate() {
            assert_eq!(variants.iter().filter(|other| *other == one).count(), 1, "variant {i}");
        }
    }
}
