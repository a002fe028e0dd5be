//! The limits for memory and descriptors when a tree is emptied.

/// Limits that hold for any tree.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    /// The bytes of entries that are read before they are sorted and removed.
    pub(super) batch: usize,
    /// The bytes of files in a batch that is left to the helper, which has a few batches at a time.
    pub(super) helper_batch: usize,
    /// The bytes of subdirectory names kept for all open directories; at least one batch. Names above the
    /// limit are dropped, those nearest to the root first, and read again.
    pub(super) names: usize,
    /// The directories open at a time, in addition to the root and those of the helper.
    pub(super) open_dirs: usize,
    /// The bytes of names kept for a closed directory, up to half a batch in total. The others are read
    /// again.
    pub(super) kept_names: usize,
}

/// Sorting is useful up to about 65,536 entries, which is a batch with names of usual length. The total is
/// below 16 MiB, without the names on the path to the current directory. A process may be limited to 64
/// descriptors.
pub(super) const BOUNDS: Bounds = Bounds {
    batch: 4 << 20,
    helper_batch: 64 << 10,
    names: 6 << 20,
    open_dirs: 32,
    kept_names: 2 << 10,
};
