//! The names of subdirectories that are not entered yet, and their memory.

use std::ffi::{CStr, CString};

/// The memory of a name in addition to its bytes: the pointer, the rest of its directory entry and the
/// overhead of the allocator.
const OVERHEAD: usize = 48;

/// The memory of a name.
pub(super) fn cost(name: &CStr) -> usize {
    OVERHEAD + name.count_bytes()
}

/// A stack of names.
#[derive(Default)]
pub(super) struct Names {
    names: Vec<CString>,
    cost: usize,
}

impl Names {
    pub(super) fn pop(&mut self) -> Option<CString> {
        let name = self.names.pop()?;
        self.cost -= cost(&name);
        Some(name)
    }

    /// The memory of all names.
    pub(super) fn cost(&self) -> usize {
        self.cost
    }

    /// Drops the names that would be popped last until the rest fits into `limit` bytes. Returns whether any
    /// were dropped.
    pub(super) fn drop_beyond(&mut self, limit: usize) -> bool {
        let mut surplus = 0;
        for name in &self.names {
            if self.cost <= limit {
                break;
            }
            self.cost -= cost(name);
            surplus += 1;
        }
        self.names.drain(..surplus);
        self.names.shrink_to_fit();
        surplus > 0
    }
}

impl From<Vec<CString>> for Names {
    /// The last name is popped first.
    fn from(mut names: Vec<CString>) -> Self {
        names.shrink_to_fit();
        let cost = names.iter().map(|name| cost(name)).sum();
        Self { names, cost }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_popped_last_are_dropped_first() {
        let all = [c"last", c"2", c"1", c""];
        let total: usize = all.iter().map(|name| cost(name)).sum();
        for (limit, kept) in [
            (usize::MAX, &all[..]),
            (total, &all),
            (total - 1, &all[1..]),
            (OVERHEAD, &all[3..]),
            (OVERHEAD - 1, &[]),
            (0, &[]),
        ] {
            let mut names = Names::from(all.map(CStr::to_owned).to_vec());
            assert_eq!(names.drop_beyond(limit), kept.len() < all.len());
            assert!(names.cost() <= limit);
            for name in kept.iter().rev() {
                assert_eq!(names.pop().as_deref(), Some(*name));
            }
            assert_eq!((names.pop(), names.cost()), (None, 0));
        }
    }
}
