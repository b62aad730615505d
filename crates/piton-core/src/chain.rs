//! The keyed hash chain over a session's records. Pure: a store keeps the hashes, `verify` walks
//! them. Each link covers its predecessor, the record's header, and a keyed hash of its payload,
//! so that a payload can be taken out later without breaking the chain.

use crate::event::Seq;
use crate::time::Timestamp;

pub type Hash = [u8; 32];

/// The link before the first record.
pub const GENESIS: Hash = [0; 32];

/// One random key per session; without it no link can be forged.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; 32]);

/// The parts of a record that a link covers, as first written.
#[derive(Clone, Copy, Debug)]
pub struct LinkInput<'a> {
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

    /// A secret for something that belongs to the session, which need not be kept: who has the
    /// session's key can make it again.
    pub fn derive(&self, of: &str) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(b"secret\0");
        hasher.update(of.as_bytes());
        *hasher.finalize().as_bytes()
    }

    /// The hash that stands for a payload in its record's link.
    pub fn payload_hash(&self, plaintext: &[u8]) -> Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(b"payload\0");
        hasher.update(plaintext);
        *hasher.finalize().as_bytes()
    }

    pub fn link(&self, previous: &Hash, link: LinkInput<'_>) -> Hash {
        // In few pieces: a link is short, and every record that is read is checked by one.
        let mut start = [0; 68];
        let parts: [&[u8]; 6] = [
            b"record\0\0",
            previous,
            &link.seq.to_le_bytes(),
            &link.ts.as_millis().to_le_bytes(),
            &link.batch_left.to_le_bytes(),
            &(link.kind.len() as u64).to_le_bytes(),
        ];
        let mut at = 0;
        for part in parts {
            start[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        debug_assert_eq!(at, start.len());
        let mut end = [0; 33];
        let end = match &link.payload_hash {
            Some(hash) => {
                end[0] = 1;
                end[1..].copy_from_slice(hash);
                &end[..]
            }
            None => &end[..1],
        };
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(&start);
        hasher.update(link.kind.as_bytes());
        hasher.update(&(link.header.len() as u64).to_le_bytes());
        hasher.update(link.header.as_bytes());
        hasher.update(end);
        *hasher.finalize().as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stored log is checked by these very bytes.
    #[test]
    fn links_do_not_change() {
        let key = Key::new([7; 32]);
        let link = LinkInput {
            seq: 3,
            ts: Timestamp::from_millis(5),
            kind: "a.b",
            header: "{\"x\":1}",
            payload_hash: Some(key.payload_hash(b"x")),
            batch_left: 2,
        };
        let hex = |hash: Hash| blake3::Hash::from(hash).to_hex().to_string();
        assert_eq!(
            hex(key.link(&GENESIS, link)),
            "1856c35f13e3034ca8c1fd744730f20dc12e088e62c54446175dd81fe0e73b8d"
        );
        assert_eq!(
            hex(key.link(&[9; 32], LinkInput { payload_hash: None, ..link })),
            "cdacaf8f6320f290518ae0b7ec46e23483612340a5b0d04c39983be175cc1aa8"
        );
    }

    /// Every covered part changes the link, and so does moving a byte from one part to the next.
    #[test]
    fn each_part_is_covered() {
        let key = Key::new([7; 32]);
        let base = LinkInput {
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
            key.link(&GENESIS, LinkInput { seq: 2, ..base }),
            key.link(&GENESIS, LinkInput { ts: Timestamp::from_millis(6), ..base }),
            key.link(&GENESIS, LinkInput { kind: "a.b{", header: "}", ..base }),
            key.link(&GENESIS, LinkInput { payload_hash: None, ..base }),
            key.link(&GENESIS, LinkInput { payload_hash: Some(key.payload_hash(b"y")), ..base }),
            key.link(&GENESIS, LinkInput { batch_left: 1, ..base }),
        ];
        for (i, one) in variants.iter().enumerate() {
            assert_eq!(variants.iter().filter(|other| *other == one).count(), 1, "variant {i}");
        }
    }
}
