//! What may come between the controllers and their next writes. Of this thread alone, as the tests'
//! worlds are.

use std::cell::RefCell;

use crate::{status::Status, store::Store};

pub(crate) enum Disturbance {
    /// Another client writes first.
    Rival(Box<dyn FnOnce(&Store)>),
    /// The write fails.
    Fault,
    /// The write fails, and so do all after it.
    Crash,
}

#[derive(Default)]
struct Plan {
    /// What comes, and how many writes before it are left alone.
    coming: Vec<(usize, Disturbance)>,
    crashed: bool,
}

thread_local! {
    static PLAN: RefCell<Plan> = RefCell::default();
}

/// Lets something happen before one of the next writes.
pub(crate) fn plan(after: usize, by: Disturbance) {
    PLAN.with_borrow_mut(|plan| plan.coming.push((after, by)));
}

pub(super) fn clear() {
    PLAN.take();
}

/// Whether the controllers cannot write any more.
pub(crate) fn has_crashed() -> bool {
    PLAN.with_borrow(|plan| plan.crashed)
}

/// Comes before each write of the controllers.
pub(in crate::controllers) fn before_write(store: &Store) -> Result<(), Status> {
    let due = PLAN.with_borrow_mut(|plan| {
        let (due, coming) = std::mem::take(&mut plan.coming)
            .into_iter()
            .partition::<Vec<_>, _>(|(after, _)| *after == 0);
        plan.coming = coming;
        for (after, _) in &mut plan.coming {
            *after -= 1;
        }
        due
    });
    let mut fails = false;
    for (_, disturbance) in due {
        match disturbance {
            Disturbance::Rival(write) => write(store),
            Disturbance::Fault => fails = true,
            Disturbance::Crash => PLAN.with_borrow_mut(|plan| plan.crashed = true),
        }
    }
    if fails || has_crashed() {
        return Err(Status::new(500, "InternalError", "injected fault"));
    }
    Ok(())
}
