//! The program dies at each of its crash points, for each way to clean.
//!
//! While it is dead, the API and the disk show that nothing in use was wiped and nothing is offered with data. The
//! next process then finishes the cleanup.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolume;
use local_volume_provisioner::crash::CRASH_POINTS;
use support::names::FINALIZER;
use support::stage::{is_terminating, phase, uid};
use support::{Program, Stage, killed_by};

use super::{BINARY, Disk, cleaners_of, disk, kinds, volumes};

/// Before a bound volume is recorded as used, on the disk and on its PV.
const AS_BOUND: [&str; 2] = ["write-mark", "record-on-pv"];

/// Ways to clean, and where the program dies at each: `point`, or `point:pass` for a later pass of it.
const CASES: [(&str, &[&str]); 8] = [
    // 256 files in 24 directories.
    ("contents", &["remove-entry", "remove-entry:140", "remove-entry:280", "verify"]),
    ("reformat", &["reformat", "make-filesystem", "mount"]),
    ("quick", &["drop-contents", "write-chunk", "verify"]),
    // 65 markers, and 4 MiB of zeros.
    ("zero", &["write-chunk", "drop-contents", "write-chunk:66", "write-chunk:69", "verify"]),
    // 4 MiB of random bytes, and as many zeros.
    ("overwrite", &["write-chunk", "write-chunk:4", "write-chunk:5", "write-chunk:8", "verify"]),
    ("discard", &["write-chunk:65", "drop-contents", "verify"]),
    ("command", &["verify"]),
    ("job", &["create-job", "add-finalizer:2", "verify", "delete-job"]),
];
/// What all of them pass, the cleaner of a Job excepted.
const ALL: [&str; 11] = [
    AS_BOUND[0],
    AS_BOUND[1],
    "add-finalizer",
    "delete-pv",
    "wipe",
    "mark-wiping",
    "mark-free",
    "remove-finalizer",
    // Of a new PV: before its creation, and once it exists.
    "write-mark:2",
    "create-pv",
    "write-mark:3",
];

fn points_of(case: &str) -> impl Iterator<Item = &'static str> {
    let (_, own) = CASES.into_iter().find(|(name, _)| *name == case).unwrap();
    let all = ALL
        .into_iter()
        .filter(move |point| case != "job" || !["wipe", "mark-wiping"].contains(point));
    all.chain(own.iter().copied())
}

/// The program refuses to pass a point that is not in this list.
#[test]
fn every_crash_point_of_the_program_is_in_a_case() {
    let points = CASES.into_iter().flat_map(|(case, _)| points_of(case));
    let covered: BTreeSet<_> = points.map(|at| at.split(':').next().unwrap()).collect();
    assert_eq!(covered, BTreeSet::from(CRASH_POINTS));
}

/// A volume that is cleaned again and again, beside one of the same class that stays in use.
struct Case<'a> {
    stage: &'a Stage,
    path: &'a Path,
    disk: Disk,
    in_use: Disk,
}

impl Case<'_> {
    fn dies_at(&self, at: &str) {
        let stage = self.stage;
        let environment = [("CRASH_AT", at)];
        let program = stage.provisioner_with(&environment);
        let claim = format!("dies-at-{}", at.replace(':', "-"));
        let bound = stage.bind(&claim, self.path);
        if AS_BOUND.contains(&at) {
            self.is_dead(program);
            self.disk.write(&claim);
            stage.delete_claim(&claim);
        } else {
            stage.used(&bound);
            self.disk.write(&claim);
            stage.delete_claim(&claim);
            self.is_dead(program);
        }
        let pvs = stage.pvs_at(self.path);
        let old = pvs.iter().find(|pv| uid(pv) == uid(&bound));
        match old {
            Some(pv) if is_terminating(pv) => {
                assert!(pv.metadata.finalizers.iter().flatten().any(|it| it == FINALIZER));
            }
            Some(pv) => {
                assert_ne!(phase(pv), "Available");
                assert!(self.disk.is_intact(&claim), "{at}: wiped before the PV was deleted");
            }
            None => {}
        }
        if old.is_none() || at == "remove-finalizer" {
            assert!(self.disk.is_clean(), "{at}: released with data");
        }
        self.is_recovered(at, &bound);
    }

    /// The next process cleans the volume and offers it again.
    fn is_recovered(&self, at: &str, old: &PersistentVolume) {
        let _provisioner = self.stage.provisioner();
        self.stage.available(self.path, old.metadata.uid.as_deref());
        assert!(self.disk.is_clean(), "{at}: offered with data");
        assert_eq!(self.stage.pvs_at(self.path).len(), 1, "{at}");
        assert_eq!(cleaners_of(self.path), [""; 0], "{at}");
        assert!(self.in_use.is_intact("in-use"), "{at}: another volume was wiped");
    }

    fn is_dead(&self, mut program: Program) {
        let status = program.wait(self.stage.timeout()).unwrap();
        assert_eq!(killed_by(status), Some(9), "{status}");
    }
}

fn dies_at_each_point(case: &str) {
    let mut stage = or_skip!(Stage::set(BINARY));
    if case == "reformat" {
        // A disk has to be there for a minute.
        stage.set_timeout(Duration::from_secs(100));
    }
    let class = if case == "job" { "zero" } else { case };
    let kinds = kinds(&stage);
    let kind = kinds.iter().find(|kind| kind.class == class).unwrap();
    let dir = stage.class(class, &kind.settings);
    if case == "job" {
        stage.configure("useJobForCleaning", "true");
    }
    let [(path, _device), (in_use_at, _other)] = volumes(&stage, kind, &dir);
    let volumes = Case {
        stage: &stage,
        disk: disk(kind, &path),
        in_use: disk(kind, &in_use_at),
        path: &path,
    };
    let first = stage.provisioner();
    let bound = stage.bind("in-use", &in_use_at);
    stage.used(&bound);
    volumes.in_use.write("in-use");
    stage.available(&path, None);
    drop(first);
    for at in points_of(case) {
        eprintln!("dies at {at}");
        volumes.dies_at(at);
    }
    let now = stage.in_phase(&support::stage::name(&bound), "Bound");
    assert_eq!(uid(&now), uid(&bound));
}

#[test]
fn emptied_filesystem() {
    dies_at_each_point("contents");
}

#[test]
fn filesystem_that_is_made_again() {
    dies_at_each_point("reformat");
}

#[test]
fn device_by_quick_reset() {
    dies_at_each_point("quick");
}

#[test]
fn device_by_zeros() {
    dies_at_each_point("zero");
}

#[test]
fn device_by_random_bytes() {
    dies_at_each_point("overwrite");
}

#[test]
fn device_by_discard() {
    dies_at_each_point("discard");
}

#[test]
fn device_by_a_command() {
    dies_at_each_point("command");
}

#[test]
fn device_by_a_job() {
    dies_at_each_point("job");
}
