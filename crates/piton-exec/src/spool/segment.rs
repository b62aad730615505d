//! Reads one segment, frame by frame.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use piton_core::spool::Pos;

use super::Error;
use super::format::{self, FRAME_HEAD, Header, Sealer};

/// An entry as a spool stores it: its JSON, not parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    pub pos: Pos,
    pub json: Vec<u8>,
}

/// What is at a place of a segment.
enum Found {
    Frame(Vec<u8>),
    End,
    /// Cut off, with nothing behind it.
    Torn,
    /// Something else, with more behind it.
    Damaged,
}

/// One segment, from a position on.
#[derive(Debug)]
pub struct SegmentReader {
    path: PathBuf,
    file: BufReader<File>,
    sealer: Sealer,
    next: Pos,
    /// Of the frame at `next`.
    offset: u64,
    /// The last look found a frame that was cut off.
    is_torn: bool,
}

impl SegmentReader {
    /// `None` if the segment was torn before its header was whole.
    pub fn open(path: &Path, first: Pos, key: &[u8; 32]) -> Result<Option<Self>, Error> {
        let failed = |source| Error::Io { path: path.to_owned(), source };
        let mut file = File::open(path).map_err(failed)?;
        let mut beginning = vec![0; format::HEADER_BYTES_MAX];
        let read = read_up_to(&mut file, &mut beginning).map_err(failed)?;
        beginning.truncate(read);
        let path = path.to_owned();
        match format::parse_header(&beginning) {
            Header::Whole { spool_id, bytes } => {
                let offset = bytes as u64;
                file.seek(SeekFrom::Start(offset))
                    .map_err(|source| Error::Io { path: path.clone(), source })?;
                let sealer = Sealer::new(key, &spool_id);
                let file = BufReader::with_capacity(64 * 1024, file);
                Ok(Some(Self { path, file, sealer, next: first, offset, is_torn: false }))
            }
            Header::Torn => Ok(None),
            Header::TooOld(version) => Err(Error::TooOld { path, version }),
            Header::Newer(version) => Err(Error::Newer { path, version }),
            Header::Foreign => Err(Error::Foreign { path }),
        }
    }

    pub fn spool_id(&self) -> &str {
        self.sealer.spool_id()
    }

    /// The position of the entry that comes next.
    pub fn next_pos(&self) -> Pos {
        self.next
    }

    /// Whether it ends, as far as it was read, in the middle of an entry.
    pub fn is_torn(&self) -> bool {
        self.is_torn
    }

    /// Goes to a place that is known to be the beginning of the frame at `pos`.
    pub fn jump(&mut self, pos: Pos, offset: u64) -> Result<(), Error> {
        self.file.seek(SeekFrom::Start(offset)).map_err(|source| self.failed(source))?;
        (self.next, self.offset) = (pos, offset);
        Ok(())
    }

    /// Passes one frame without opening it; false at the end.
    pub fn skip(&mut self) -> Result<bool, Error> {
        Ok(self.body()?.is_some())
    }

    /// The next entry; `None` at the end, also at one that a crash cut off.
    pub fn next_entry(&mut self) -> Result<Option<Sealed>, Error> {
        let pos = self.next;
        let Some(body) = self.body()? else { return Ok(None) };
        match self.sealer.open(pos, &body) {
            Some(json) => Ok(Some(Sealed { pos, json })),
            None => Err(Error::Key { path: self.path.clone(), pos }),
        }
    }

    fn body(&mut self) -> Result<Option<Vec<u8>>, Error> {
        match self.find().map_err(|source| self.failed(source))? {
            Found::Frame(body) => {
                self.offset += (FRAME_HEAD + body.len()) as u64;
                self.next += 1;
                Ok(Some(body))
            }
            found @ (Found::End | Found::Torn) => {
                self.is_torn = matches!(found, Found::Torn);
                // A live writer may finish it: the next look begins at its beginning again.
                let offset = self.offset;
                self.file.seek(SeekFrom::Start(offset)).map_err(|source| self.failed(source))?;
                Ok(None)
            }
            Found::Damaged => Err(Error::Damaged { path: self.path.clone(), pos: self.next }),
        }
    }

    fn find(&mut self) -> io::Result<Found> {
        let mut head = [0; FRAME_HEAD];
        match read_up_to(&mut self.file, &mut head)? {
            0 => return Ok(Found::End),
            FRAME_HEAD => {}
            _ => return Ok(Found::Torn),
        }
        let Some(length) = format::body_length(&head) else {
            return if head == [0; FRAME_HEAD] { self.zeros() } else { Ok(Found::Damaged) };
        };
        let end = self.offset + (FRAME_HEAD + length) as u64;
        let file_end = self.file.get_ref().metadata()?.len();
        if end > file_end {
            return Ok(Found::Torn);
        }
        let mut body = vec![0; length];
        self.file.read_exact(&mut body)?;
        if format::is_whole(&head, &body) {
            Ok(Found::Frame(body))
        } else if end == file_end {
            // The file was made longer, and the power went before the bytes were there.
            Ok(Found::Torn)
        } else {
            Ok(Found::Damaged)
        }
    }

    /// Room that was made and never written to, up to the end, is torn off as well.
    fn zeros(&mut self) -> io::Result<Found> {
        let mut piece = [0; 4096];
        loop {
            match read_up_to(&mut self.file, &mut piece)? {
                0 => return Ok(Found::Torn),
                read if piece[..read].iter().any(|byte| *byte != 0) => return Ok(Found::Damaged),
                _ => {}
            }
        }
    }

    fn failed(&self, source: io::Error) -> Error {
        Error::Io { path: self.path.clone(), source }
    }
}

fn read_up_to(from: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < into.len() {
        match from.read(&mut into[done..]) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}
