//! The spans of steps: each log line of a step shows the PV, the path or the disk that the step concerns.

use tracing::{Span, error_span};

use crate::cleanup::release::Wiped;
use crate::plan::Action;

/// The span of an action that runs as a task. It is logged at every level, as its lines are incomplete without it.
pub(super) fn of(action: &Action) -> Span {
    match action {
        Action::Create(it) => error_span!("create", path = %it.volume.path),
        Action::Patch(it) => error_span!("patch", pv = it.pv.name),
        Action::Clean(it) => error_span!("clean", pv = it.pv.name, path = %it.volume.path),
        Action::Withdraw(it) => error_span!("withdraw", pv = it.pv.name),
        Action::WriteMark(it) => error_span!("mark", path = %it.volume.path),
        Action::FindPv(it) => error_span!("find", path = %it.path),
        Action::TakeOver(it) => error_span!("takeover", path = %it.path),
        Action::Link(it) => error_span!("link", pv = it.pv.name, path = %it.volume.path),
        Action::TakeIn(it) => error_span!("intake", disk = it.link),
        Action::WriteJob(it, _) => error_span!("job", pv = it.pv, job = it.name),
        Action::Cancel(it) => error_span!(
            "cancel",
            pv = it.pv.as_ref().map(|pv| &*pv.name),
            job = it.job.as_ref().map(|job| &*job.name),
            uid = it.tenancy.pv_uid
        ),
        // A release: see `of_release`. The others are not tasks, or concern the whole node.
        Action::Release(_)
        | Action::Suspend(..)
        | Action::Track(_)
        | Action::Forget(_)
        | Action::FindOwners(_)
        | Action::Unlink(_)
        | Action::LabelNode(_) => Span::none(),
    }
}

/// The span of a release.
pub(super) fn of_release(wiped: &Wiped) -> Span {
    let order = wiped.order();
    error_span!("release", pv = order.pv.name, path = %order.volume.path)
}
