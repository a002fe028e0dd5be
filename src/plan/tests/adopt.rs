//! The owner of a PV: this provisioner, the node's former registration, or another provisioner.

use super::kit::*;
use crate::names::pv_name;
use crate::plan::consent::{consent as naming, forget};
use crate::view::PvView;

fn a() -> PvView {
    pv("pv-a", "/mnt/fast/a", &fs(1))
}

fn made_by(name: &str) -> PvView {
    with(a(), |pv| pv.provisioned_by = Some(name.into()))
}

fn name_only(world: World) -> World {
    world.config(|config| config.use_node_name_only = true)
}

#[test]
fn a_pv_without_the_label_is_adopted() {
    let unlabelled = with(a(), |pv| pv.hostname_label = None);
    let adopted = ["patch pv-a: label=host-1 (VolumeAdopted)", "a is Available"];
    world().fast("a", &fs(1)).pv(unlabelled.clone()).expect("ours", &adopted);
    let due = ["patch pv-a: label=host-1 (VolumeAdopted)", "a is Due"];
    world()
        .fast("a", &fs(1))
        .pv(released(unlabelled.clone()))
        .expect("ours, before it is cleaned", &due);
    let foreign = with(unlabelled.clone(), |pv| {
        pv.provisioned_by = Some(FOREIGN.into());
    });
    let skipped = ["a is Skipped as PathClaimedByOtherPV"];
    world().fast("a", &fs(1)).pv(foreign).expect("another provisioner's", &skipped);
    let elsewhere = with(unlabelled, |pv| pv.hostnames = vec!["host-2".into()]);
    let found = words(&world().pv(elsewhere).plan());
    assert!(!found.iter().any(|word| word.starts_with("patch")), "not on this node: {found:?}");
}

#[test]
fn a_pv_of_the_node_s_former_self_is_taken_over() {
    let patch = |rest: &str| format!("patch pv-a: provisioned-by={OURS}{rest} (VolumeAdopted)");
    let taken = |pv, rest: &str| {
        let expected = [&*patch(rest), "a is Foreign"];
        world().fast("a", &fs(1)).pv(pv).expect("taken over", &expected);
    };
    taken(made_by(FORMER), "");
    taken(made_by("local-volume-provisioner-node-1"), "");
    taken(bound(made_by(FORMER)), "");
    taken(released(made_by(FORMER)), "");
    taken(with(made_by(FORMER), |pv| pv.hostname_label = None), " label=host-1");
    // In the same request: the garbage collector deletes what belongs to a Node that is gone.
    taken(
        with(made_by(FORMER), |pv| {
            pv.owners = vec![owner("Node", "former-uid"), owner("Machine", "other-uid")];
        }),
        " owners=Machine/other-uid,Node/node-uid",
    );
}

#[test]
fn a_pv_of_the_node_s_former_self_must_be_for_the_same_disk() {
    let told = |state: &'static str| ["VolumeIdentityMismatch of pv-a", state];
    let former = || made_by(FORMER);
    for (situation, world, pv, state) in [
        ("another disk", world().fast("a", &fs(2)), former(), "a is Foreign"),
        ("no identity", world().fast("a", &fs(1)), without_identity(former()), "a is Foreign"),
        ("no disk", world(), former(), "a is Foreign"),
        (
            "an incomplete scan",
            world().fast("a", &fs(1)).incomplete("fast"),
            former(),
            "a is Foreign",
        ),
        (
            "a device that cannot prove itself",
            world().fast("a", &nameless(1, "now")),
            with(pv("pv-a", "/mnt/fast/a", &nameless(1, "before")), |pv| {
                pv.provisioned_by = Some(FORMER.into());
            }),
            "a is Foreign",
        ),
        (
            "a forged label: its affinity is to another node",
            world().fast("a", &fs(1)),
            with(former(), |pv| pv.hostnames = vec!["host-2".into()]),
            "a is Foreign",
        ),
    ] {
        let found = words(&world.pv(pv).plan());
        for word in told(state) {
            assert!(found.contains(&word.to_owned()), "{situation}: {found:?}");
        }
        let quiet =
            !found.iter().any(|word| word.starts_with("patch") || word.starts_with("clean"));
        assert!(quiet, "{situation}: {found:?}");
    }
}

#[test]
fn consents_count_for_a_pv_of_the_node_s_former_self() {
    let former = |text: &str| consent(made_by(FORMER), text);
    let wipe = naming("wipe", Some(&made_by(FORMER)), &fs(2));
    let forget = forget(&made_by(FORMER));
    let taken = format!("patch pv-a: provisioned-by={OURS} (VolumeAdopted)");
    let taken = [taken.as_str(), "a is Foreign"];
    let dropped = ["delete pv-a", "a is Terminating"];
    let left = ["VolumeIdentityMismatch of pv-a", "a is Foreign"];
    let nameless_forget = without_identity(made_by(FORMER));
    let nameless_forget =
        consent(nameless_forget.clone(), crate::plan::consent::forget(&nameless_forget));
    for (situation, pv, expected) in [
        ("Available, wipe", former(&wipe), &taken[..]),
        ("Bound, wipe", bound(former(&wipe)), &taken),
        ("due, wipe", released(former(&wipe)), &taken),
        ("no identity, wipe", without_identity(former(&wipe)), &taken),
        ("another disk, wipe", former(&naming("wipe", Some(&made_by(FORMER)), &fs(1))), &left),
        ("Available, forget", former(&forget), &dropped),
        ("Bound, forget", bound(former(&forget)), &left),
        ("due, forget", released(former(&forget)), &dropped),
        (
            "Terminating, forget",
            terminating(released(former(&forget))),
            &["let pv-a go", "a is Terminating"],
        ),
        (
            "Terminating without our finalizer, forget",
            with(former(&forget), |pv| pv.deleting = true),
            &["a is Terminating"],
        ),
        ("kept, forget", retained(released(former(&forget))), &left),
        ("no identity, forget", nameless_forget, &dropped),
    ] {
        let world = world().fast("a", &fs(2)).pv(pv);
        world.expect(situation, expected);
    }
    let gone = world().pv(released(former(&forget)));
    gone.expect("no disk, forget", &dropped);
    let told = world().pv(former(&wipe)).plan();
    let told = told.notices.first().unwrap();
    assert!(told.message.contains(&forget), "{}", told.message);
}

#[test]
fn pv_of_an_old_hostname_keeps_its_volume_from_being_offered_or_cleaned() {
    let name = &pv_name("a", "node-1", "fast");
    let old = |by: &str| {
        with(pv(name, "/mnt/fast/a", &fs(1)), |pv| {
            pv.provisioned_by = Some(by.into());
            pv.hostnames = vec!["host-0".into()];
            pv.hostname_label = Some("host-0".into());
        })
    };
    let mismatch = format!("VolumeHostnameMismatch of {name}");
    for pv in [
        old(OURS),
        bound(old(OURS)),
        released(old(OURS)),
        terminating(released(old(OURS))),
        consent(released(old(OURS)), naming("wipe", Some(&old(OURS)), &fs(1))),
    ] {
        let situation = format!("{:?}, deleting: {}", pv.phase, pv.deleting);
        let world = world().fast("a", &fs(1)).pv(pv);
        world.expect(&situation, &[&mismatch, "a is Refused"]);
    }
    let mismatch = format!("VolumeIdentityMismatch of {name}");
    for pv in [old(FORMER), released(old(FORMER))] {
        let world = world().fast("a", &fs(1)).pv(pv);
        world.expect("registered again, too", &[&mismatch, "a is Foreign"]);
    }
    let another = old("local-volume-provisioner-node-2-uid");
    let world = world().fast("a", &fs(1)).pv(another);
    world.expect("another node's", &["create /mnt/fast/a", "a is Creating"]);
}

#[test]
fn with_node_names_only_a_node_registered_again_is_the_same() {
    let bare = "local-volume-provisioner-node-1";
    let world = || name_only(world()).fast("a", &fs(1));
    for by in [bare, OURS, FORMER] {
        world().pv(made_by(by)).expect(by, &["a is Available"]);
        world().pv(released(made_by(by))).expect(by, &["clean pv-a", "a is Due"]);
    }
    let unlabelled = with(made_by(FORMER), |pv| pv.hostname_label = None);
    let taken = format!("patch pv-a: provisioned-by={bare} label=host-1 (VolumeAdopted)");
    world().pv(unlabelled).expect("by affinity alone", &[&taken, "a is Foreign"]);
}

#[test]
fn the_pvs_of_others_are_left_alone() {
    let skipped = ["a is Skipped as PathClaimedByOtherPV"];
    for by in [
        "local-volume-provisioner-node-2-uid",
        "local-volume-provisioner-node-10",
        "local-volume-provisioner-node-",
        "kubernetes.io/no-provisioner",
        "",
    ] {
        for pv in [made_by(by), released(made_by(by)), terminating(released(made_by(by)))] {
            world().fast("a", &fs(1)).pv(pv.clone()).expect(by, &skipped);
            name_only(world()).fast("a", &fs(1)).pv(pv).expect(by, &skipped);
        }
    }
}
