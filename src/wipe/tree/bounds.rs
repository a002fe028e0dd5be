//! How much memory, and how many descriptors, emptying a tree may take.

/// Limits, whatever the tree looks like.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    /// Bytes of entries that are read before they are sorted and removed.
    pub(super) batch: usize,
    /// Bytes of files that are left to the helper while the walk goes on elsewhere. It has a few
    /// such batches at a time.
    pub(super) left: usize,
    /// Bytes of names of subdirectories remembered for all open directories; never less than a
    /// batch. More is forgotten, furthest up first, and read again.
    pub(super) names: usize,
    /// Directories open at a time, beside the root and those that the helper has.
    pub(super) open_dirs: usize,
    /// Bytes of names remembered for a directory that was closed, as long as these come to no more
    /// than half a batch altogether; the rest is read again.
    pub(super) kept_names: usize,
}

/// Sorting pays off up to about 65,536 entries: so many are a batch, unless a tenant made the names
/// long. All of it together stays below 16 MiB, bar the names of the directories that we are in. A
/// process may be limited to 64 descriptors.
pub(super) const BOUNDS: Bounds = Bounds {
    batch: 4 << 20,
    left: 64 << 10,
    names: 6 << 20,
    open_dirs: 32,
    kept_names: 2 << 10,
};
