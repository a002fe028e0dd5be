//! The checks of a volume in their order, and what follows from its state.
//!
//! A provisioner reports the first check that fails. Those before it passed, and those after it were not made. A reason
//! that several checks can give belongs to the first of them. So no check counts as passed that was not made.

use serde_json::Value;

use crate::args::Verb;
use crate::cmd::status::show::text;
use crate::cmd::volume::consents;

/// One check of a volume.
pub(super) struct Check {
    pub name: &'static str,
    /// Whether it passed, if it was made.
    pub passed: Option<bool>,
}

/// The checks before a volume is offered, with the reasons (`SkipReason`) that each gives.
pub(super) const BEFORE_OFFER: [(&str, &[&str]); 13] = [
    ("its name matches namePattern", &["NameNotUtf8", "NamePatternMismatch"]),
    ("the kernel can read it", &["TimedOut", "Unreadable"]),
    (
        "it is a mount point or a block device, as its class",
        &["NotADirectoryOrBlockDevice", "ModeMismatch", "NotMounted"],
    ),
    ("nothing else uses the device", &["DeviceInUse"]),
    ("it has a size", &["NoCapacity"]),
    ("no other PV has its path, and no cleanup runs", &["PathClaimedByOtherPV", "CleanupRunning"]),
    ("no other volume shares its storage", &["DuplicateDevice", "NestedVolume"]),
    ("no other PV has the disk", &["IdentityOnOtherPV"]),
    ("its mark names no tenant", &["Dirty"]),
    ("it is empty, if its class requires that", &["NotEmpty"]),
    ("a PV can be bound to the disk, if its class does that", &["NotBindable"]),
    ("its StorageClass exists and is valid", &["ClassMissing", "ClassInvalid"]),
    (
        "it is local, not of the system, and no pod uses it",
        &["VolumeInUse", "SystemStorage", "NotLocal"],
    ),
];

/// The checks of a PV, with the states (`VolumeState`) that each gives.
pub(super) const OF_PV: [(&str, &[&str]); 6] = [
    ("this provisioner manages the PV", &["Foreign", "Failed", "Refused"]),
    ("its class is configured", &["ClassGone"]),
    ("its volume is there and mounted", &["Missing", "NotMounted", "Unhealthy"]),
    ("the disk is that of the PV", &["IdentityMismatch"]),
    ("the mark on the disk agrees", &["MarkMismatch", "Unlinked"]),
    ("cleaning works", &["CleaningFailed"]),
];

/// The checks of a volume in their order, with the results.
pub(super) fn checks(report: &Value) -> Vec<Check> {
    let (all, failed): (&[(&str, &[&str])], _) = match text(report, "state") {
        "Skipped" => (&BEFORE_OFFER, text(report, "reason")),
        _ => (&OF_PV, decisive_state(report)),
    };
    let at = all.iter().position(|(_, reasons)| reasons.contains(&failed));
    let is_unknown = text(report, "state") == "Skipped" && at.is_none();
    let passed = |number| match at {
        _ if is_unknown => None,
        Some(at) if number > at => None,
        at => Some(at != Some(number)),
    };
    let all = all.iter().enumerate();
    all.map(|(number, (name, _))| Check { name, passed: passed(number) }).collect()
}

/// The state of the check that fails. A cleanup that waits for a consent failed because of the mark or the disk.
fn decisive_state(report: &Value) -> &str {
    let state = text(report, "state");
    let consents = consents(report);
    let is_asked = |verb| state == "CleaningFailed" && consents.contains_key(&verb);
    if is_asked(Verb::Accept) {
        "MarkMismatch"
    } else if is_asked(Verb::Wipe) {
        "IdentityMismatch"
    } else {
        state
    }
}

/// What happens next and when, and what an operator can do.
pub(super) fn next(report: &Value) -> String {
    let cleanup = &report["cleanup"];
    let retry = cleanup["retryInSeconds"].as_u64();
    match decisive_state(report) {
        "Skipped" => of_reason(text(report, "reason")).into(),
        "Waiting" => format!(
            "it is cleaned when it no longer waits: {}",
            text(cleanup, "waitingFor")
        ),
        "CleaningFailed" => match retry {
            Some(seconds) => format!(
                "it is cleaned again in {seconds} s; remove the cause before that, or forget the PV"
            ),
            None => "no attempt is planned; remove the cause, or forget the PV".into(),
        },
        "IdentityMismatch" if text(report, "phase") == "Bound" => {
            "nothing is touched until the right disk is back; to consent, first delete the claim and its pods"
                .into()
        }
        "Due" if !text(report, "detail").is_empty() => {
            format!("it is cleaned later: {}", text(report, "detail"))
        }
        state => of_state(state).into(),
    }
}

fn of_state(state: &str) -> &'static str {
    match state {
        "Creating" => "its PV is created within seconds",
        "Available" => "a claim can bind to it",
        "Bound" => {
            "it is cleaned after its claim and its pods are deleted, if the PV's policy is Delete"
        }
        "Unlinked" => {
            "no new pod of the claim starts until the disk is verified; do what the failed check says"
        }
        "Retained" => {
            "it is kept until you delete the PV, or set the policy Delete, after which it is wiped"
        }
        "Due" => "it is cleaned within seconds",
        "Cleaning" => "its PV is deleted when it is clean, and the volume is offered again",
        "Cleaned" => "its PV is deleted within seconds, and the volume is offered again",
        "Refused" => "it is not cleaned until you remove the cause of the failed check",
        "Paused" => {
            "it is cleaned after you resume the PV, its node, and the configuration (pauseCleaning)"
        }
        "Terminating" => {
            "the PV is deleted when its claim and pods are gone; a volume that was used is cleaned first"
        }
        "IdentityMismatch" => "nothing is touched until the right disk is back, or you consent",
        "MarkMismatch" => {
            "nothing is touched until you consent; first check whether the application reads its own data"
        }
        "Missing" => {
            "it is checked again at each scan; bring the disk back, or release the PV if it is lost"
        }
        "NotMounted" => "it is checked again at each scan; mount the volume",
        "Unhealthy" => "it is checked again at each scan; repair the disk",
        "Foreign" => "nothing is touched until this provisioner may adopt the PV, or you consent",
        "ClassGone" => "nothing is touched until its class is configured again",
        "Failed" => "it is neither cleaned nor kept by rule: set the policy Delete or Retain",
        _ => "this command does not know the state; use the one of the provisioner's version",
    }
}

fn of_reason(reason: &str) -> &'static str {
    match reason {
        "NotMounted" => "it is offered as soon as it is mounted",
        "NotADirectoryOrBlockDevice" => {
            "remove the entry, or bind-mount the directory that the link leads to"
        }
        "ModeMismatch" => "move it to a class with volumeMode Filesystem",
        "NoCapacity" | "Unreadable" => {
            "it is probed again at each scan; check the disk and the kernel's log (dmesg)"
        }
        "NameNotUtf8" => "rename the entry",
        "DuplicateDevice" => {
            "it is offered when it is the only one: remove one of the two, or narrow namePattern"
        }
        "NestedVolume" => "remove one of the two: cleaning the outer one would empty the inner one",
        "DeviceInUse" | "VolumeInUse" => "it is offered within seconds after its user is gone",
        "SystemStorage" | "NotLocal" => "it is never offered: remove the entry",
        "NamePatternMismatch" => "it is not offered: namePattern excludes it",
        "ClassMissing" => "it is offered as soon as the StorageClass exists: create it",
        "ClassInvalid" => {
            "correct the class (docs/why-no-pv.md); a StorageClass has to be created again"
        }
        "CleanupRunning" => "it is offered when it is clean",
        "PathClaimedByOtherPV" => {
            "delete the PV that is wrong; the volume is offered within a minute"
        }
        "IdentityOnOtherPV" => "mount the disk where that PV names it, or delete that PV",
        "NotEmpty" => {
            "if its data is not needed, clean it by hand (docs/clean-by-hand.md); otherwise remove the entry"
        }
        "Dirty" => "it is not offered until you consent; first save the data, if it is needed",
        "NotBindable" => "it is offered when what the failed check names is there",
        "TimedOut" => {
            "it is looked at again as soon as it answers; repair the disk, or unmount the filesystem"
        }
        _ => "this command does not know the reason; use the one of the provisioner's version",
    }
}
