//! What is remembered of a directory that is being emptied, open or not.

use std::ffi::CString;
use std::sync::Arc;

use super::batch::{Batch, Outcome};
use super::names::Names;
use crate::wipe::dirfd::FileId;

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
    /// Files that were read and are not certainly gone.
    pub(super) batch: Option<Arc<Batch>>,
    /// Subdirectories that were read and not yet entered, the next one last.
    pub(super) pending: Names,
    /// Subdirectories of which the helper still has the files. They are removed after that.
    pub(super) helped: Vec<Self>,
    pub(super) listing: Listing,
    /// A file resisted. So each is looked at closely, and none is left to the helper.
    pub(super) resists: bool,
    /// Whether this pass found anything to remove.
    pub(super) found: bool,
    /// Finished passes that found something.
    pub(super) passes: u32,
    /// Something in it could not be removed, so it need not be tried itself.
    pub(super) failed: bool,
    /// How many entries had been removed from the tree when it was last begun.
    pub(super) begun_at: u64,
}

impl Frame {
    pub(super) fn new(name: CString, id: FileId) -> Self {
        Self {
            name,
            id,
            batch: None,
            pending: Names::default(),
            helped: Vec::new(),
            listing: Listing::Partly,
            resists: false,
            found: false,
            passes: 0,
            failed: false,
            begun_at: 0,
        }
    }

    /// Whether there may be entries that this pass has not seen, now that so many were removed from
    /// the tree. What could not be removed must not be met again and again: a directory that has such
    /// entries is begun anew only if there were others.
    pub(super) fn is_to_be_read(&self, removed: u64) -> bool {
        match self.listing {
            Listing::Partly => true,
            Listing::Lost => !self.failed || removed > self.begun_at,
            Listing::Whole => false,
        }
    }

    /// Forgets pending names but for the next ones, as many as fit into `limit` bytes.
    pub(super) fn keep(&mut self, limit: usize) {
        if self.pending.forget_beyond(limit) {
            self.listing = Listing::Lost;
        }
    }

    /// Whether nobody is removing files of it.
    pub(super) fn is_settled(&self) -> bool {
        self.batch
            .as_ref()
            .is_none_or(|batch| batch.outcome().is_some())
    }

    /// A subdirectory that the helper has done with.
    pub(super) fn take_settled(&mut self) -> Option<Self> {
        let index = self.helped.iter().position(Self::is_settled)?;
        Some(self.helped.swap_remove(index))
    }

    /// Waits until nobody is removing files of it, and removes them with the others. Whether one
    /// resisted; then it is to be read again, from the beginning.
    pub(super) fn settle(&mut self) -> bool {
        let outcome = self.batch.take().map(|batch| batch.finish());
        let resisted = outcome == Some(Outcome::Resisted);
        if resisted {
            self.resists = true;
            self.listing = Listing::Partly;
        }
        resisted
    }
}
