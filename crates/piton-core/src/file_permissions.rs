//! Who can change a file: the one rule for the data folder, for what is in it, and for sockets and
//! programs outside of it. A user who can write to a file decides what Piton executes and believes.

/// A file's owner and mode, as the file system reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permissions {
    pub owner_uid: u32,
    pub mode: u32,
}

/// Who can get at a file beside its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exposure {
    /// The file is ours, and no other user can use it.
    Private,
    /// The file is ours; others can read it or enter it, and cannot change it.
    Readable,
    /// Others can write to the file, or own it.
    Writable,
}

impl Permissions {
    const ROOT_UID: u32 = 0;
    const OTHERS: u32 = 0o077;
    const OTHERS_WRITE: u32 = 0o022;

    /// `our_uid` is the user whom this process acts for.
    pub fn exposure(self, our_uid: u32) -> Exposure {
        if self.owner_uid != our_uid || self.mode & Self::OTHERS_WRITE != 0 {
            Exposure::Writable
        } else if self.mode & Self::OTHERS != 0 {
            Exposure::Readable
        } else {
            Exposure::Private
        }
    }

    /// Whether a program can be executed safely. An installed one may belong to root, who can
    /// change everything anyway.
    pub fn is_safe_program(self, our_uid: u32) -> bool {
        let is_owner_trusted = self.owner_uid == our_uid || self.owner_uid == Self::ROOT_UID;
        is_owner_trusted && self.mode & Self::OTHERS_WRITE == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_and_mode_decide() {
        use Exposure::{Private, Readable, Writable};
        for (owner_uid, mode, exposure, is_safe_program) in [
            (7, 0o700, Private, true),
            (7, 0o600, Private, true),
            (7, 0o100_600, Private, true),
            (7, 0o755, Readable, true),
            (7, 0o711, Readable, true),
            (7, 0o640, Readable, true),
            (7, 0o720, Writable, false),
            (7, 0o702, Writable, false),
            (7, 0o777, Writable, false),
            (8, 0o700, Writable, false),
            (0, 0o755, Writable, true),
            (0, 0o775, Writable, false),
        ] {
            let found = Permissions { owner_uid, mode };
            assert_eq!(
                (found.exposure(7), found.is_safe_program(7)),
                (exposure, is_safe_program),
                "{owner_uid} {mode:o}"
            );
        }
    }
}
