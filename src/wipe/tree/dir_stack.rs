//! The directories from a volume's root to the one that is being emptied.
//!
//! The depth is unlimited, but the number of open directories is bounded. Directories nearer to the root are
//! closed and later opened again *from above*, one component at a time, with a check of their identity. `..`
//! is never used: it leads to wherever the directory was moved.
//!
//! The number of directories is bounded too, and with it the memory: at the limit, the stack forgets all above its
//! top. After that directory is empty, the walk starts again from the volume's root.

use std::collections::VecDeque;
use std::ffi::{CStr, CString};
use std::mem;
use std::sync::Arc;

use nix::Result;
use nix::errno::Errno;

use super::frame::{Frame, Listing};
use super::{LOST_AND_FOUND, has_lost_and_found};
use crate::escape::shown;
use crate::wipe::dirfd::DirFd;

/// The directories open at a time, in addition to the root and those of the helper. A process may be limited to 64
/// descriptors.
const MAX_OPEN: usize = if cfg!(test) { 3 } else { 32 };

/// Closed directories that are deeper keep no names. They are read again.
const MAX_CLOSED_LEVELS: usize = if cfg!(test) { 6 } else { 1 << 10 };

/// The maximum number of directories. With names of 255 bytes, they need 24 MiB.
pub(super) const MAX_LEVELS: usize = if cfg!(test) { 20 } else { 1 << 16 };

/// The directories from the root (always present) to the one that is being emptied, the *top*.
pub(super) struct DirStack {
    /// The volume's root.
    pub(super) volume: Arc<DirFd>,
    /// The volume's root, or a directory below it.
    root: Arc<DirFd>,
    /// The path of a root below the volume's, for messages.
    root_path: Option<String>,
    pub(super) frames: Vec<Frame>,
    /// The open directories below the root with their depth, deepest last.
    open: VecDeque<(usize, Arc<DirFd>)>,
}

impl DirStack {
    pub(super) fn new(volume: Arc<DirFd>) -> Self {
        Self {
            frames: vec![root_frame(&volume)],
            root: volume.clone(),
            root_path: None,
            volume,
            open: VecDeque::new(),
        }
    }

    /// Makes the top, which must be open, the root.
    pub(super) fn forget_above(&mut self) {
        self.root_path = Some(self.path(None));
        self.root = self.dir().clone();
        self.frames = vec![root_frame(&self.root)];
        self.open.clear();
    }

    /// Returns to the volume's root. Returns `false` if it is the root already.
    pub(super) fn start_again(&mut self) -> bool {
        let is_below = self.root_path.is_some();
        if is_below {
            *self = Self::new(self.volume.clone());
        }
        is_below
    }

    /// Whether a directory at this depth is emptied but not removed: the root, and the volume's `lost+found`.
    pub(super) fn keeps(&self, depth: usize, name: &CStr) -> bool {
        let is_lost_and_found = || *name == *LOST_AND_FOUND && has_lost_and_found(&self.volume);
        depth == 0 || depth == 1 && self.root_path.is_none() && is_lost_and_found()
    }

    /// The directory that is being emptied.
    pub(super) fn top(&mut self) -> &mut Frame {
        let depth = self.depth();
        &mut self.frames[depth]
    }

    /// The depth of the top below the root.
    pub(super) fn depth(&self) -> usize {
        self.frames.len() - 1
    }

    /// The deepest open directory: the top's, after [`open_top`](Self::open_top).
    pub(super) fn dir(&self) -> &Arc<DirFd> {
        self.open.back().map_or(&self.root, |(_, dir)| dir)
    }

    fn deepest_open(&self) -> usize {
        self.open.back().map_or(0, |(depth, _)| *depth)
    }

    pub(super) fn top_is_open(&self) -> bool {
        self.deepest_open() == self.depth()
    }

    /// Makes the top the deepest open directory. Returns `false` if the path has changed: the stack is then
    /// shorter, and the new top may not be open.
    ///
    /// # Errors
    /// Those of opening a directory. That directory is then the top.
    pub(super) fn open_top(&mut self) -> Result<bool> {
        let (from, top) = (self.deepest_open(), self.depth());
        // Some directories on the path stay open too, evenly spread, so that ascending from depth n needs
        // n log n opens instead of n². They use half of the free descriptors; the rest is for the gaps.
        let free = MAX_OPEN - self.open.len();
        let stride = ((top - from) / (free / 2).max(2)).max(1);
        let mut passing: Option<DirFd> = None;
        for depth in from + 1..=top {
            let frame = &self.frames[depth];
            let above = passing.as_ref().unwrap_or_else(|| self.dir());
            match above.open_dir(&frame.name) {
                Ok(dir) if dir.id == frame.id => {
                    passing = if (top - depth).is_multiple_of(stride) {
                        self.hold(depth, dir);
                        None
                    } else {
                        Some(dir)
                    };
                }
                // Another process moved, removed or replaced it: continue above it.
                Ok(_) | Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => {
                    self.frames.truncate(depth);
                    self.open.retain(|(open, _)| *open < depth);
                    return Ok(false);
                }
                Err(errno) => {
                    self.frames.truncate(depth + 1);
                    return Err(errno);
                }
            }
        }
        Ok(true)
    }

    /// Descends into an open subdirectory of the top.
    pub(super) fn descend(&mut self, name: CString, dir: DirFd) {
        self.frames.push(Frame { name, id: dir.id, ..Frame::default() });
        self.hold(self.depth(), dir);
    }

    /// Ascends. `None` in the root.
    pub(super) fn ascend(&mut self) -> Option<Frame> {
        let depth = self.depth();
        if depth == 0 {
            return None;
        }
        if self.deepest_open() == depth {
            self.open.pop_back();
        }
        self.frames.pop()
    }

    /// Adds an open directory. At the limit, the one nearest to the root is closed.
    fn hold(&mut self, depth: usize, dir: DirFd) {
        self.open.push_back((depth, dir.into()));
        if self.open.len() > MAX_OPEN
            && let Some((closed, _)) = self.open.pop_front()
        {
            let frame = &mut self.frames[closed];
            let forgets = closed > MAX_CLOSED_LEVELS && !mem::take(&mut frame.pending).is_empty();
            if forgets || frame.listing == Listing::Partial {
                frame.listing = Listing::Lost;
            }
        }
    }

    /// The path of the top or of one of its entries; below a root that is not the volume's, only the path of that.
    pub(super) fn path(&self, name: Option<&CStr>) -> String {
        if let Some(path) = &self.root_path {
            return path.clone();
        }
        let names = self.frames[1..].iter().map(|frame| frame.name.as_c_str());
        shown(names.chain(name))
    }

    /// Whether the top is in a subvolume (btrfs) of the volume. Each subvolume has its own device number.
    pub(super) fn is_in_subvolume(&self) -> bool {
        self.frames[self.depth()].id.device != self.volume.id.device
    }
}

/// The frame of a root, which is read from its first entry.
fn root_frame(root: &DirFd) -> Frame {
    Frame { id: root.id, listing: Listing::Lost, ..Frame::default() }
}
