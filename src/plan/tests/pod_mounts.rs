//! What the kubelet has mounted for a PV is the volume that is seen at its path.

use super::kit::*;
use crate::host::footprint::Footprint;
use crate::inventory::Candidate;
use crate::plan::Contradictions;

const MISMATCH: &str = "VolumeIdentityMismatch of pv-a";
const FAULT: &str = "ClassInvalid of our Pod";

impl World {
    /// The kubelet has mounted what `found` is for this PV.
    fn mounted(mut self, pv: &str, found: &Candidate) -> Self {
        let (device, root) = match &found.footprint {
            Footprint::Filesystem { fs, root, .. } => (*fs, root.clone()),
            Footprint::Device { number, .. } => (*number, "/".into()),
        };
        let fast = self.snapshot.observed.get_mut("fast").unwrap();
        let of_pv = fast.pod_mounts.entry(pv.into()).or_default();
        of_pv.insert((device, root));
        self
    }

    fn contradicted(mut self, before: Contradictions) -> Self {
        self.snapshot.contradictions = before;
        self
    }

    fn contradictions(&self) -> Contradictions {
        self.plan().occupied.contradictions.clone()
    }
}

/// `fast/a` is `found`, and has a Bound PV.
fn used(found: &Candidate) -> World {
    let a = pv("pv-a", "/mnt/fast/a", found);
    world().fast("a", found).pv(bound(a))
}

/// The same after the release.
fn due(found: &Candidate) -> World {
    let a = pv("pv-a", "/mnt/fast/a", found);
    world().fast("a", found).pv(released(a))
}

#[test]
fn only_another_mount_of_the_recorded_disk_contradicts() {
    let seen = directory(1, "/seen");
    let same = &["a is Bound"][..];
    for (situation, world, expected) in [
        ("no mount", used(&seen), same),
        ("the same", used(&seen).mounted("pv-a", &seen), same),
        ("of another PV", used(&seen).mounted("pv-b", &directory(1, "/host")), same),
        (
            "one of two agrees",
            used(&seen).mounted("pv-a", &directory(1, "/host")).mounted("pv-a", &seen),
            same,
        ),
        (
            "another directory",
            used(&seen).mounted("pv-a", &directory(1, "/host")),
            &[MISMATCH, FAULT, "a is IdentityMismatch"],
        ),
        (
            "another filesystem",
            used(&seen).mounted("pv-a", &directory(2, "/seen")),
            &[MISMATCH, "a is IdentityMismatch"],
        ),
        (
            "the kubelet has formatted the device",
            used(&partition(1)).mounted("pv-a", &partition(1)),
            same,
        ),
        (
            "another device",
            used(&partition(1)).mounted("pv-a", &partition(2)),
            &[MISMATCH, "a is IdentityMismatch"],
        ),
        (
            "another disk is at the path",
            world()
                .fast("a", &directory(2, "/seen"))
                .pv(bound(pv("pv-a", "/mnt/fast/a", &seen)))
                .mounted("pv-a", &directory(1, "/host")),
            &[MISMATCH, "a is IdentityMismatch"],
        ),
        (
            "the directory cannot be read",
            used(&seen).mounted("pv-a", &directory(1, "/host")).incomplete("fast"),
            same,
        ),
        (
            "of another provisioner",
            world()
                .fast("a", &seen)
                .pv(with(bound(pv("pv-a", "/mnt/fast/a", &seen)), |pv| {
                    pv.provisioned_by = Some(FOREIGN.into());
                }))
                .mounted("pv-a", &directory(1, "/host")),
            &["a is Skipped as PathClaimedByOtherPV"],
        ),
    ] {
        world.expect(situation, expected);
    }
}

#[test]
fn contradiction_outlasts_the_mount_until_the_directories_change_or_a_mount_agrees() {
    let seen = directory(1, "/seen");
    let cleaned = &["clean pv-a", "a is Due"][..];
    due(&seen).expect("control", cleaned);
    for (situation, mounted, expected) in [
        ("another directory", directory(1, "/host"), &[FAULT, FAULT_OF_A, "a is Refused"][..]),
        ("another filesystem", directory(2, "/seen"), &[MISMATCH, "a is IdentityMismatch"]),
    ] {
        let before = used(&seen).mounted("pv-a", &mounted).contradictions();
        let later = || due(&seen).contradicted(before.clone());
        later().expect(situation, expected);
        assert_eq!(later().contradictions(), before, "{situation}: it stays");
        later().mounted("pv-a", &seen).expect(situation, cleaned);
        let moved = later().change_class("fast", |it| it.mount_dir = "/b".parse().unwrap());
        moved.expect(situation, cleaned);
        let unrelated = later().config(|config| config.protect_released_data = true);
        assert_eq!(unrelated.contradictions(), before, "{situation}: it stays");
    }
}

const FAULT_OF_A: &str = "ClassInvalid of pv-a";

#[test]
fn class_of_two_directories_neither_offers_nor_cleans_although_its_pv_is_gone() {
    let seen = directory(1, "/seen");
    let before = used(&seen).mounted("pv-a", &directory(1, "/host")).contradictions();
    let others = || {
        let c = pv("pv-c", "/mnt/fast/c", &fs(3));
        let world = world().fast("b", &fs(2)).fast("c", &fs(3));
        let world = world.class(class("slow")).entry("slow", "d", fs(4));
        world.pv(released(c))
    };
    let elsewhere = ["create /mnt/slow/d", "d is Creating"];
    let control = ["create /mnt/fast/b", "b is Creating", "clean pv-c", "c is Due"];
    others().expect("control", &[&elsewhere[..], &control].concat());
    let refused = [FAULT, "b is Skipped as ClassInvalid", "ClassInvalid of pv-c", "c is Refused"];
    let faulty = others().contradicted(before);
    faulty.expect("the PV is gone", &[&elsewhere[..], &refused].concat());
    let not_ready = faulty.plan().not_ready;
    assert!(not_ready[0].contains("must be one directory"), "{not_ready:?}");
}

#[test]
fn another_filesystem_of_two_pvs_is_a_fault_of_their_class() {
    let (a, b) = (fs(1), fs(2));
    let world = |of_b: &Candidate| {
        let world = used(&a).fast("b", &b);
        let world = world.pv(bound(pv("pv-b", "/mnt/fast/b", &b)));
        world.mounted("pv-a", &fs(3)).mounted("pv-b", of_b)
    };
    let held = [MISMATCH, "a is IdentityMismatch"];
    world(&b).expect("one", &[&held[..], &["b is Bound"]].concat());
    let other = ["VolumeIdentityMismatch of pv-b", "b is IdentityMismatch", FAULT];
    world(&fs(4)).expect("two", &[&held[..], &other].concat());
}
