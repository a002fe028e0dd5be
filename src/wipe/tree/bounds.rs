//! The limits for memory and descriptors when a tree is emptied.

use std::ffi::CStr;

/// Limits that hold for any tree.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    /// The bytes of files that are read before they are sorted and removed.
    pub(super) batch: usize,
    /// The bytes of files in a batch that is left to the helper, which has a few batches at a time.
    pub(super) helper_batch: usize,
    /// The bytes of subdirectory names that are read before they are entered: in the root, and at least. A
    /// directory has half as many as the one above it.
    pub(super) names: (usize, usize),
    /// The directories open at a time, in addition to the root and those of the helper.
    pub(super) open_dirs: usize,
    /// Closed directories that are deeper keep no names. They are read again.
    pub(super) closed_levels: usize,
}

/// Sorting is useful up to about 65,536 entries, which is a batch with names of usual length. The total is
/// below 16 MiB, without the names on the path to the current directory. A process may be limited to 64
/// descriptors.
pub(super) const BOUNDS: Bounds = Bounds {
    batch: 4 << 20,
    helper_batch: 64 << 10,
    names: (4 << 20, 2 << 10),
    open_dirs: 32,
    closed_levels: 1 << 10,
};

impl Bounds {
    /// The bytes of names that are read at this depth before they are entered.
    pub(super) fn names_at(&self, depth: usize) -> usize {
        let (most, least) = self.names;
        (most >> depth.min(63)).max(least)
    }
}

/// The memory of a name: its bytes, the pointer, the rest of its directory entry and the overhead of the
/// allocator.
pub(super) fn cost(name: &CStr) -> usize {
    48 + name.count_bytes()
}
