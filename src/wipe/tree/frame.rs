//! The state of a directory that is being emptied, open or closed.

use std::ffi::CString;
use std::sync::Arc;

use super::batch::Batch;
use crate::wipe::dirfd::FileId;

/// How much of a directory was read in this pass.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Listing {
    /// A part. The descriptor has the position.
    #[default]
    Partial,
    /// A part. The position was lost with the descriptor, so reading starts from the beginning.
    Lost,
    /// Everything.
    Complete,
}

/// A directory that is being emptied.
#[derive(Default)]
pub(super) struct Frame {
    /// Its name in the directory above; empty for the root.
    pub(super) name: CString,
    pub(super) id: FileId,
    /// Files that were read and may not be removed yet.
    pub(super) batch: Option<Arc<Batch>>,
    /// Subdirectories that were read but not entered, in reverse order.
    pub(super) pending: Vec<CString>,
    /// Subdirectories whose files the helper still unlinks. They are removed after that.
    pub(super) delegated: Vec<Self>,
    pub(super) listing: Listing,
    /// A file could not be unlinked. So files are removed one by one, without the helper.
    pub(super) one_by_one: bool,
    /// Whether this pass found anything to remove.
    pub(super) found: bool,
    /// The finished passes that found something.
    pub(super) passes: u32,
    /// An entry could not be removed, so the directory cannot be removed either.
    pub(super) failed: bool,
    /// The number of entries removed from the tree before this pass.
    pub(super) removed_before: u64,
}

impl Frame {
    /// Whether this pass may have missed entries. `removed` is the number of entries removed from the tree so
    /// far. A directory with failures is read again only after other removals, so that its undeletable
    /// entries do not cause an endless loop.
    pub(super) fn needs_read(&self, removed: u64) -> bool {
        match self.listing {
            Listing::Partial => true,
            Listing::Lost => !self.failed || removed > self.removed_before,
            Listing::Complete => false,
        }
    }

    /// Whether no thread is unlinking its files.
    pub(super) fn is_idle(&self) -> bool {
        self.batch.as_ref().is_none_or(|batch| batch.has_ended())
    }

    /// Takes a subdirectory whose files the helper has finished.
    pub(super) fn take_finished(&mut self) -> Option<Self> {
        let index = self.delegated.iter().position(Self::is_idle)?;
        Some(self.delegated.swap_remove(index))
    }

    /// Unlinks the remaining files and waits for the helper. Returns whether a file could not be unlinked:
    /// then the directory must be read again from the beginning.
    pub(super) fn finish_batch(&mut self) -> bool {
        let incomplete = self.batch.take().is_some_and(|batch| !batch.finish());
        if incomplete {
            self.one_by_one = true;
            self.listing = Listing::Partial;
        }
        incomplete
    }
}
