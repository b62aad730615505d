//! The bytes of a bundle; `docs/reference/bundle.md` is their description.

use piton_core::limits::{HEADER_BYTES_MAX, PAYLOAD_BYTES_MAX};

pub(super) const MAGIC: [u8; 8] = *b"\x89PITON\r\n";
pub(super) const VERSION: u16 = 2;

pub(super) const PLAIN: u8 = 0;
pub(super) const SEALED: u8 = 1;

/// What a part of the body begins with.
pub(super) const HEAD: u8 = b'H';
pub(super) const RECORD: u8 = b'R';
pub(super) const END: u8 = b'E';

pub(super) const NONE: u8 = 0;
pub(super) const SOME: u8 = 1;
pub(super) const REDACTED: u8 = 2;

/// What a length may say, before anything is allocated for it.
pub(super) const ID_BYTES_MAX: usize = 128;
pub(super) const KIND_BYTES_MAX: usize = 1024;
pub(super) const HEADER_MAX: usize = HEADER_BYTES_MAX;
pub(super) const PAYLOAD_MAX: usize = PAYLOAD_BYTES_MAX;

/// How far back compressed bytes may refer, which is what a reader has to keep.
pub(super) const WINDOW_LOG_MAX: u32 = 23;
pub(super) const LEVEL: i32 = 3;

/// Text inside one sealed piece.
pub(super) const PIECE_BYTES: usize = 64 * 1024;
