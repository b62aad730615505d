//! Reads a whole spool.

use std::fs;
use std::path::{Path, PathBuf};

use piton_core::planted::{self, Bug};
use piton_core::spool::{Entry, Pos};
use zeroize::Zeroizing;

use super::segment::{Sealed, SegmentReader};
use super::{Error, format};

/// A spool whose writer is dead, or whose written part is known.
#[derive(Debug)]
pub struct SpoolReader {
    key: Zeroizing<[u8; 32]>,
    spool_id: Option<String>,
    /// By first position.
    segments: Vec<(Pos, PathBuf)>,
    /// Up to where the writer had flushed, as it wrote beside the segments; 0 if that is not known.
    flushed: Pos,
}

impl SpoolReader {
    /// A folder that is not there is a spool without entries: its writer died before the first.
    pub fn open(folder: &Path, key: &[u8; 32]) -> Result<Self, Error> {
        let mut segments = Vec::new();
        let failed = |source| Error::Io { path: folder.to_owned(), source };
        match fs::read_dir(folder) {
            Ok(names) => {
                for name in names {
                    let name = name.map_err(failed)?;
                    let first = name.file_name().to_str().and_then(format::segment_first);
                    segments.extend(first.map(|first| (first, name.path())));
                }
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(failed(e)),
        }
        segments.sort();
        let key = Zeroizing::new(*key);
        let mut spool_id = None;
        for (index, (first, path)) in segments.iter().enumerate() {
            match SegmentReader::open(path, *first, &key)? {
                Some(segment) if spool_id.is_none() => {
                    spool_id = Some(segment.spool_id().to_owned());
                }
                Some(segment) if spool_id.as_deref() == Some(segment.spool_id()) => {}
                Some(_) => return Err(Error::Mixed { path: path.clone() }),
                // Only the last one can have been under way.
                None if index + 1 == segments.len() => {}
                None => return Err(Error::Foreign { path: path.clone() }),
            }
        }
        let flushed = fs::read(folder.join(format::FLUSHED_FILE)).ok();
        let flushed = match flushed.as_deref().and_then(format::parse_flushed) {
            Some((of, pos)) if spool_id.as_ref().is_none_or(|known| *known == of) => {
                // Also if no segment is left that says so.
                spool_id.get_or_insert(of);
                pos
            }
            _ => 0,
        };
        Ok(Self { key, spool_id, segments, flushed })
    }

    /// `None`: its writer died before it wrote anything.
    pub fn spool_id(&self) -> Option<&str> {
        self.spool_id.as_deref()
    }

    /// The first position that can still be there; 1 in an empty spool.
    pub fn first(&self) -> Pos {
        self.segments.first().map_or(1, |(first, _)| *first)
    }

    /// The entries behind `pos`. An end that is missing, though it was flushed, is an error after the
    /// last one; what was trimmed is missing without a word: compare with
    /// [`Self::first`].
    pub fn after(&self, pos: Pos) -> Entries<'_> {
        let wanted = pos.saturating_add(1).max(self.first());
        let index = self.segments.iter().rposition(|(first, _)| *first <= wanted).unwrap_or(0);
        Entries { reader: self, index, open: None, next: wanted, over: false, torn: false }
    }
}

/// Gives entries in order; the first error is the last item.
#[derive(Debug)]
pub struct Entries<'a> {
    reader: &'a SpoolReader,
    index: usize,
    open: Option<SegmentReader>,
    next: Pos,
    over: bool,
    /// The last segment ends in the middle of an entry.
    torn: bool,
}

impl Entries<'_> {
    /// The next one as its JSON.
    pub fn next_sealed(&mut self) -> Result<Option<Sealed>, Error> {
        while let Some((first, path)) = self.reader.segments.get(self.index) {
            let until = self.reader.segments.get(self.index + 1).map(|(first, _)| *first);
            if self.open.is_none() {
                self.open = SegmentReader::open(path, *first, &self.reader.key)?;
            }
            if let Some(segment) = &mut self.open {
                while segment.next_pos() < self.next && segment.skip()? {}
                // From `until` on the next segment counts.
                if segment.next_pos() == self.next
                    && until.is_none_or(|until| self.next < until)
                    && let Some(found) = segment.next_entry()?
                {
                    self.next += 1;
                    return Ok(Some(found));
                }
            }
            if let Some(until) = until.filter(|until| self.next < *until) {
                return Err(Error::Missing { first: self.next, last: until - 1 });
            }
            self.torn = self.open.as_ref().is_none_or(SegmentReader::is_torn);
            self.index += 1;
            self.open = None;
        }
        if self.next <= self.reader.flushed && !planted::is(Bug::SpoolEndMissing) {
            return Err(Error::Missing { first: self.next, last: self.reader.flushed });
        }
        Ok(None)
    }

    /// The entry that was cut off at the very end, once everything before it was read. It was never
    /// acknowledged, and may be all that is missing.
    pub fn cut_off(&self) -> Option<Pos> {
        (self.torn && self.over).then_some(self.next)
    }

    fn entry(&mut self) -> Result<Option<Entry>, Error> {
        let Some(Sealed { pos, json }) = self.next_sealed()? else { return Ok(None) };
        let entry = serde_json::from_slice(&json).map_err(|source| {
            let path = self.reader.segments.get(self.index).map(|(_, path)| path.clone());
            Error::Entry { path: path.unwrap_or_default(), pos, source }
        })?;
        Ok(Some(entry))
    }
}

impl Iterator for Entries<'_> {
    type Item = Result<Entry, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let next = self.entry().transpose();
        self.over = !matches!(next, Some(Ok(_)));
        next
    }
}
