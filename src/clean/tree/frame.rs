//! What is remembered of a directory that is being emptied, open or not.

use std::ffi::CString;

use super::names::Names;
use crate::clean::dirfd::FileId;

/// How much of a directory was read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Listing {
    /// Not all; the descriptor knows where to go on.
    Partly,
    /// Not all, and the place to go on was lost with the descriptor: it begins anew.
    Lost,
    /// All there was in this pass.
    Whole,
}

/// A directory that is being emptied.
pub(super) struct Frame {
    /// Its name in the directory above; empty for the root.
    pub(super) name: CString,
    pub(super) id: FileId,
    /// Subdirectories that were read and not yet entered, the next one last.
    pub(super) pending: Names,
    pub(super) listing: Listing,
    /// Whether this pass found anything to remove.
    pub(super) found: bool,
    /// Finished passes that found something.
    pub(super) passes: u32,
    /// Something in it could not be removed, so it need not be tried itself.
    pub(super) failed: bool,
}

impl Frame {
    pub(super) fn new(name: CString, id: FileId) -> Self {
        Self {
            name,
            id,
            pending: Names::default(),
            listing: Listing::Partly,
            found: false,
            passes: 0,
            failed: false,
        }
    }

    /// Whether there may be entries that this pass has not seen. What could not be removed must not
    /// be met again and again: a directory that has such entries is not begun anew.
    pub(super) fn is_to_be_read(&self) -> bool {
        match self.listing {
            Listing::Partly => true,
            Listing::Lost => !self.failed,
            Listing::Whole => false,
        }
    }

    /// Forgets pending names but for the next ones, as many as fit into `limit` bytes.
    pub(super) fn keep(&mut self, limit: usize) {
        if self.pending.forget_beyond(limit) {
            self.listing = Listing::Lost;
        }
    }
}
