//! The way from a volume's root to the directory that is being emptied.
//!
//! It may be as long as a tenant likes, and yet the number of open directories is bounded: those
//! further up are closed, and opened again *from above*, one component at a time and compared with
//! what they were. Never through `..`, which leads to wherever the directory has been moved.

use std::collections::VecDeque;
use std::ffi::{CStr, CString};
use std::iter;
use std::sync::Arc;

use nix::Result;
use nix::errno::Errno;

use super::bounds::Bounds;
use super::frame::{Frame, Listing};
use crate::wipe::dirfd::{DirFd, FileId};
use crate::wipe::escape::ShownPath;

/// The directories from the root (always there) to the one that is being emptied, the *top*.
pub(super) struct DirStack {
    bounds: Bounds,
    root: Arc<DirFd>,
    frames: Vec<Frame>,
    /// Open directories, with their depth, deepest last; the root is apart.
    open: VecDeque<(usize, Arc<DirFd>)>,
}

impl DirStack {
    pub(super) fn new(bounds: Bounds, root: DirFd) -> Result<Self> {
        Ok(Self {
            bounds,
            frames: vec![Frame::new(CString::default(), root.id()?)],
            root: root.into(),
            open: VecDeque::new(),
        })
    }

    /// The directory that is being emptied.
    pub(super) fn top(&mut self) -> &mut Frame {
        let depth = self.depth();
        &mut self.frames[depth]
    }

    pub(super) fn root(&self) -> &DirFd {
        &self.root
    }

    /// How far below the root the top is.
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

    /// Makes the top the deepest open directory. `false`: the way there has changed. It is now
    /// shorter, and the new top may not be open.
    ///
    /// # Errors
    /// Those of opening a directory, which is then the top.
    pub(super) fn open_top(&mut self) -> Result<bool> {
        let (from, top) = (self.deepest_open(), self.depth());
        // Some on the way are kept open too, evenly spread, so that going all the way up from depth n
        // takes n log n openings and not n²: as many as leave the same again for the ways between.
        let free = self.bounds.open_dirs - self.open.len();
        let stride = ((top - from) / (free / 2).max(2)).max(1);
        let mut passing: Option<DirFd> = None;
        for depth in from + 1..=top {
            let frame = &self.frames[depth];
            let above = passing.as_ref().unwrap_or_else(|| self.dir());
            match above.open_identified(&frame.name) {
                Ok((id, dir)) if id == frame.id => {
                    passing = if (top - depth).is_multiple_of(stride) {
                        self.hold(depth, dir);
                        None
                    } else {
                        Some(dir)
                    };
                }
                // Moved, removed or replaced by another hand: back to what is still in its place.
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

    /// Goes down into a subdirectory of the top.
    pub(super) fn descend(&mut self, name: CString, id: FileId, dir: DirFd) {
        self.frames.push(Frame::new(name, id));
        self.hold(self.depth(), dir);
    }

    /// Goes down into a subdirectory of the top where it was before; it is not open.
    pub(super) fn return_to(&mut self, frame: Frame) {
        self.frames.push(frame);
    }

    /// Goes up; `None` in the root.
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

    /// Keeps a directory open, at the cost of the one that is furthest up.
    fn hold(&mut self, depth: usize, dir: DirFd) {
        self.open.push_back((depth, dir.into()));
        if self.open.len() > self.bounds.open_dirs
            && let Some((closed, _)) = self.open.pop_front()
        {
            // A tenant may make any number of levels: names are kept for the first ones.
            let Bounds {
                batch, kept_names, ..
            } = self.bounds;
            let kept = if closed < batch / 2 / kept_names {
                kept_names
            } else {
                0
            };
            let frame = &mut self.frames[closed];
            frame.keep(kept);
            if frame.listing == Listing::Partly {
                frame.listing = Listing::Lost;
            }
        }
    }

    /// Forgets names of the directories above the top, those furthest up first, until the open ones
    /// have as many as they may. Those are returned to last; and what is read again was forgotten
    /// only because as much was read below, so that reading does not take longer than a few times
    /// reading everything once.
    pub(super) fn bound_names(&mut self) {
        let top = self.depth();
        let open = || iter::once(0).chain(self.open.iter().map(|(depth, _)| *depth));
        let names: usize = open().map(|depth| self.frames[depth].pending.cost()).sum();
        let mut surplus = names.saturating_sub(self.bounds.names);
        for depth in open().filter(|depth| *depth < top) {
            if surplus == 0 {
                break;
            }
            let frame = &mut self.frames[depth];
            let before = frame.pending.cost();
            frame.keep(before.saturating_sub(surplus));
            surplus = surplus.saturating_sub(before - frame.pending.cost());
        }
    }

    /// The path of the top, or of an entry of it.
    pub(super) fn path(&self, name: Option<&CStr>) -> ShownPath {
        let names = self.frames[1..].iter().map(|frame| frame.name.as_c_str());
        ShownPath::new(names.chain(name))
    }

    /// The path of the subvolume that the top lies in: each has a device number of its own.
    pub(super) fn subvolume(&self) -> Option<ShownPath> {
        let begins = self
            .frames
            .windows(2)
            .rposition(|pair| pair[0].id.device != pair[1].id.device)?;
        let frames = &self.frames[1..=begins + 1];
        Some(ShownPath::new(
            frames.iter().map(|frame| frame.name.as_c_str()),
        ))
    }

    /// The memory that remembered names take.
    #[cfg(test)]
    pub(super) fn names(&self) -> usize {
        self.frames.iter().map(|frame| frame.pending.cost()).sum()
    }
}
