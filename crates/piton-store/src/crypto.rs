//! Encryption of contents. One data key; a subkey per purpose, so that no key is ever used twice
//! for different things; the data key itself is dropped once its subkeys are derived.

use std::fmt;
use std::sync::Arc;

use chacha20poly1305::XChaCha20Poly1305;
use chacha20poly1305::aead::{Aead, AeadInOut, KeyInit, Payload};
use piton_core::planted::{self, Bug};
use piton_core::{Seq, chain};
use zeroize::Zeroizing;

use crate::contract::Entropy;
use crate::error::Result;

const NONCE_BYTES: usize = 24;
const TAG_BYTES: usize = 16;
const ID_CONTEXT: &str = "piton store 2026 key id";
const PAYLOAD_CONTEXT: &str = "piton store 2026 payload";
const WRAP_CONTEXT: &str = "piton store 2026 chain key wrap";
const BLOB_CONTEXT: &str = "piton store 2026 blob";
const ADDRESS_CONTEXT: &str = "piton store 2026 blob address";

/// What is sealed does not open: another key, another place, or other bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("The content does not open under its key")]
pub(crate) struct Unsealed;

/// The keys derived from one data key, and its public name.
pub(crate) struct Subkeys {
    id: Arc<str>,
    payload: Zeroizing<[u8; 32]>,
    wrap: Zeroizing<[u8; 32]>,
    blob: Zeroizing<[u8; 32]>,
    address: Zeroizing<[u8; 32]>,
}

impl fmt::Debug for Subkeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Subkeys({})", self.id)
    }
}

/// Where a sealed content belongs; it opens nowhere else.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ContentBinding<'a> {
    pub(crate) session: &'a str,
    pub(crate) seq: Seq,
    pub(crate) kind: &'a str,
}

impl ContentBinding<'_> {
    fn aad(&self) -> Vec<u8> {
        if planted::is(Bug::ContentNotBound) {
            return Vec::new();
        }
        let mut aad = Vec::with_capacity(16 + self.session.len() + self.kind.len());
        aad.extend_from_slice(&(self.session.len() as u64).to_le_bytes());
        aad.extend_from_slice(self.session.as_bytes());
        aad.extend_from_slice(&self.seq.to_le_bytes());
        aad.extend_from_slice(self.kind.as_bytes());
        aad
    }
}

impl Subkeys {
    pub(crate) fn derive(data_key: &[u8; 32]) -> Self {
        let derive = |context| Zeroizing::new(blake3::derive_key(context, data_key));
        let id = blake3::derive_key(ID_CONTEXT, data_key);
        Self {
            id: hex::encode(&id[..8]).into(),
            payload: derive(PAYLOAD_CONTEXT),
            wrap: derive(WRAP_CONTEXT),
            blob: derive(BLOB_CONTEXT),
            address: derive(ADDRESS_CONTEXT),
        }
    }

    /// The key's public name; says nothing about the key.
    pub(crate) fn id(&self) -> &Arc<str> {
        &self.id
    }

    pub(crate) fn seal_payload(
        &self,
        binding: ContentBinding<'_>,
        plaintext: &[u8],
        entropy: &dyn Entropy,
    ) -> Result<Vec<u8>> {
        seal(&self.payload, &binding.aad(), plaintext, entropy)
    }

    pub(crate) fn open_payload(
        &self,
        binding: ContentBinding<'_>,
        sealed: &[u8],
    ) -> Result<Vec<u8>, Unsealed> {
        open(&self.payload, &binding.aad(), sealed)
    }

    /// The same where it lies: what is only looked at needs no memory of its own.
    pub(crate) fn open_payload_in_place<'a>(
        &self,
        binding: ContentBinding<'_>,
        sealed: &'a mut [u8],
    ) -> Result<&'a [u8], Unsealed> {
        let (nonce, sealed) = sealed.split_first_chunk_mut::<NONCE_BYTES>().ok_or(Unsealed)?;
        let (text, tag) = sealed.split_last_chunk_mut::<TAG_BYTES>().ok_or(Unsealed)?;
        let cipher = XChaCha20Poly1305::new((&*self.payload).into());
        cipher
            .decrypt_inout_detached(
                &(*nonce).into(),
                &binding.aad(),
                (&mut *text).into(),
                &(*tag).into(),
            )
            .map_err(|_| Unsealed)?;
        Ok(text)
    }

    /// A blob's address: the same content has the same one, within one key.
    pub(crate) fn address(&self, plaintext: &[u8]) -> [u8; 32] {
        *blake3::keyed_hash(&self.address, plaintext).as_bytes()
    }

    pub(crate) fn seal_blob(
        &self,
        address: &[u8; 32],
        bytes: &[u8],
        entropy: &dyn Entropy,
    ) -> Result<Vec<u8>> {
        seal(&self.blob, address, bytes, entropy)
    }

    pub(crate) fn open_blob(&self, address: &[u8], sealed: &[u8]) -> Result<Vec<u8>, Unsealed> {
        open(&self.blob, address, sealed)
    }

    pub(crate) fn wrap_chain_key(
        &self,
        session: &str,
        key: &chain::Key,
        entropy: &dyn Entropy,
    ) -> Result<Vec<u8>> {
        seal(&self.wrap, session.as_bytes(), key.as_bytes(), entropy)
    }

    pub(crate) fn unwrap_chain_key(
        &self,
        session: &str,
        sealed: &[u8],
    ) -> Result<chain::Key, Unsealed> {
        let bytes = Zeroizing::new(open(&self.wrap, session.as_bytes(), sealed)?);
        let bytes: &[u8; 32] = bytes.as_slice().try_into().map_err(|_| Unsealed)?;
        Ok(chain::Key::new(*bytes))
    }
}

fn seal(key: &[u8; 32], aad: &[u8], plaintext: &[u8], entropy: &dyn Entropy) -> Result<Vec<u8>> {
    let mut nonce = [0; NONCE_BYTES];
    // Random nonces of 24 bytes do not repeat in any store's life.
    entropy.fill(&mut nonce)?;
    let cipher = XChaCha20Poly1305::new(key.into());
    let sealed = cipher
        .encrypt(&nonce.into(), Payload { msg: plaintext, aad })
        // Fails only for contents of 256 GB and more, which no limit lets through.
        .map_err(|_| crate::Error::BatchInvalid { why: "its content cannot be encrypted" })?;
    let mut out = Vec::with_capacity(NONCE_BYTES + sealed.len());
    out.extend_from_slice(&nonce);
    out.extend_from_slice(&sealed);
    Ok(out)
}

fn open(key: &[u8; 32], aad: &[u8], sealed: &[u8]) -> Result<Vec<u8>, Unsealed> {
    let (nonce, sealed) = sealed.split_first_chunk::<NONCE_BYTES>().ok_or(Unsealed)?;
    let cipher = XChaCha20Poly1305::new(key.into());
    cipher.decrypt(&(*nonce).into(), Payload { msg: sealed, aad }).map_err(|_| Unsealed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::OsEntropy;

    /// A content opens under its own key in its own place, and nowhere else.
    #[test]
    fn sealed_content_is_bound_to_key_and_place() {
        let keys = Subkeys::derive(&[1; 32]);
        let other = Subkeys::derive(&[2; 32]);
        assert_ne!(keys.id(), other.id());
        assert_eq!(keys.id(), Subkeys::derive(&[1; 32]).id());
        let binding = ContentBinding { session: "s", seq: 1, kind: "message.user" };
        let sealed = keys.seal_payload(binding, b"secret", &OsEntropy).unwrap();
        assert_eq!(keys.open_payload(binding, &sealed).unwrap(), b"secret");
        let in_place = |binding, sealed: &[u8]| {
            keys.open_payload_in_place(binding, &mut sealed.to_vec()).map(<[u8]>::to_vec)
        };
        assert_eq!(in_place(binding, &sealed).unwrap(), b"secret");
        for elsewhere in [
            ContentBinding { session: "t", ..binding },
            ContentBinding { seq: 2, ..binding },
            ContentBinding { kind: "message.delta", ..binding },
        ] {
            assert_eq!(keys.open_payload(elsewhere, &sealed), Err(Unsealed));
            assert_eq!(in_place(elsewhere, &sealed), Err(Unsealed));
        }
        assert_eq!(other.open_payload(binding, &sealed), Err(Unsealed));
        let mut bent = sealed.clone();
        bent[30] ^= 1;
        assert_eq!(keys.open_payload(binding, &bent), Err(Unsealed));
        assert_eq!(in_place(binding, &bent), Err(Unsealed));
        for short in [0, 10, 24, 39, sealed.len() - 1] {
            assert_eq!(keys.open_payload(binding, &sealed[..short]), Err(Unsealed));
            assert_eq!(in_place(binding, &sealed[..short]), Err(Unsealed));
        }
        let again = keys.seal_payload(binding, b"secret", &OsEntropy).unwrap();
        assert_ne!(again, sealed, "a nonce was used twice");
    }

    #[test]
    fn chain_keys_and_blobs_round_trip() {
        let keys = Subkeys::derive(&[1; 32]);
        let chain_key = chain::Key::new([9; 32]);
        let wrapped = keys.wrap_chain_key("s", &chain_key, &OsEntropy).unwrap();
        assert_eq!(keys.unwrap_chain_key("s", &wrapped).unwrap(), chain_key);
        assert_eq!(keys.unwrap_chain_key("t", &wrapped), Err(Unsealed));
        let address = keys.address(b"blob");
        let sealed = keys.seal_blob(&address, b"blob", &OsEntropy).unwrap();
        assert_eq!(keys.open_blob(&address, &sealed).unwrap(), b"blob");
        assert_eq!(keys.open_blob(&[0; 32], &sealed), Err(Unsealed));
    }
}
