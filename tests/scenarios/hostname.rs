//! The Node's hostname label changes, from a short name to a fully qualified one; name and UID stay.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::PersistentVolume;
use serde_json::json;
use support::names::{LABEL_HOSTNAME, pv_name, second_pv_name};
use support::stage::{name, uid};
use support::{Program, Stage};

use crate::kit::*;
use crate::stage;

const REASON: &str = "VolumeHostnameMismatch";

fn qualified(stage: &Stage) -> String {
    format!("{}.example.com", stage.node())
}

/// Adds a volume and waits until it is offered under this hostname: a pass after the change has ended.
fn is_offered_as(stage: &Stage, entry: &str, hostname: &str) {
    let fresh = format!("disks/fast/{entry}");
    let fresh = tmpfs(stage, &fresh);
    let pv = stage.available(&fresh, None);
    let labels = pv.metadata.labels.unwrap();
    assert_eq!(labels[LABEL_HOSTNAME], hostname);
}

/// A Bound volume with the tenant's file and an Available one, made under the short hostname.
struct Volumes {
    bound_at: PathBuf,
    free_at: PathBuf,
    bound: PersistentVolume,
    free: PersistentVolume,
}

impl Volumes {
    fn new(stage: &Stage) -> (Self, Program) {
        let [bound_at, free_at] = fast_volumes(stage, ["bound", "free"]);
        let provisioner = stage.provisioner();
        let bound = stage.used(&stage.bind("claim", &bound_at));
        let free = stage.available(&free_at, None);
        keep_secret(&bound_at);
        let volumes = Self { bound_at, free_at, bound, free };
        (volumes, provisioner)
    }

    fn are_untouched(&self, stage: &Stage, phase: &str) {
        assert!(has_secret(&self.bound_at));
        for (pv, path, phase) in
            [(&self.bound, &self.bound_at, phase), (&self.free, &self.free_at, "Available")]
        {
            assert!(is_untouched(stage, pv, phase), "{}", path.display());
            assert_eq!(stage.pvs_at(path).len(), 1, "{}", path.display());
        }
    }

    /// What must hold after the change, up to the change back.
    fn survive(&self, stage: &Stage, provisioner: &mut Program) {
        is_offered_as(stage, "first", &qualified(stage));
        self.are_untouched(stage, "Bound");
        for (pv, path) in [(&self.bound, &self.bound_at), (&self.free, &self.free_at)] {
            let event = stage.event(REASON, path.to_str().unwrap());
            let command = format!(
                "kubectl label node {node} {LABEL_HOSTNAME}={node} --overwrite",
                node = stage.node()
            );
            assert!(event.contains(&qualified(stage)), "{event}");
            assert!(event.contains(&command), "{event}");
            in_state(stage, provisioner, path, "Refused");
            assert_eq!(status_of(provisioner, path)["pv"], name(pv));
        }
        // Each pass would ask for it again.
        let mark = stage.requests().mark();
        is_offered_as(stage, "second", &qualified(stage));
        let asked = stage.requests().since(mark);
        let about_free = asked.iter().filter(|it| it.name == name(&self.free));
        assert_eq!(about_free.count(), 0);

        stage.delete_claim("claim");
        stage.in_phase(&name(&self.bound), "Released");
        is_offered_as(stage, "third", &qualified(stage));
        self.are_untouched(stage, "Released");

        set_hostname_label(stage, &stage.node());
        offered_again(stage, &self.bound_at, &self.bound);
        assert!(entries(&self.bound_at).is_empty());
        assert_eq!(uid(&stage.available(&self.free_at, None)), uid(&self.free));
    }
}

#[test]
fn changed_hostname_label_gives_no_disk_a_second_pv() {
    let stage = or_skip!(stage());
    let (volumes, mut provisioner) = Volumes::new(&stage);
    set_hostname_label(&stage, &qualified(&stage));
    // Until its watch shows the change, the provisioner offers disks under the old hostname.
    stage.event(REASON, volumes.bound_at.to_str().unwrap());
    volumes.survive(&stage, &mut provisioner);
}

/// The names that the provisioner gives the PV of `disks/fast/vol-1`.
fn names(stage: &Stage) -> [String; 2] {
    let (node, class) = (stage.node(), stage.named("fast"));
    [pv_name("vol-1", &node, &class), second_pv_name("vol-1", &node, &class)]
}

/// Makes the PV that the provisioner would make under this name and hostname.
fn make(stage: &Stage, pv: &str, path: &Path, hostname: &str) -> PersistentVolume {
    let mut pv = pv_by_hand(stage, pv, "fast", path, "20Mi");
    pv["metadata"]["labels"] = json!({ LABEL_HOSTNAME: hostname });
    let term = "/spec/nodeAffinity/required/nodeSelectorTerms/0/matchExpressions/0/values";
    *pv.pointer_mut(term).unwrap() = json!([hostname]);
    stage.create_pv(pv)
}

#[test]
fn pv_of_an_old_hostname_under_the_second_name_is_found_before_the_first_is_made() {
    let (stage, [path]) = or_skip!(fast_stage(["vol-1"]));
    let [_, second] = names(&stage);
    let pv = make(&stage, &second, &path, &stage.node());
    set_hostname_label(&stage, &qualified(&stage));
    let _provisioner = stage.provisioner();
    stage.event(REASON, path.to_str().unwrap());
    is_offered_as(&stage, "first", &qualified(&stage));
    assert!(is_same(&stage, &pv, "Available"));
    assert_eq!(stage.pvs_at(&path).len(), 1);
}

/// As an earlier version made it.
#[test]
fn second_pv_of_a_disk_is_not_cleaned_while_one_of_another_hostname_exists() {
    for released in [0, 1] {
        let (stage, [path]) = or_skip!(fast_stage(["vol-1"]));
        let hostnames = [stage.node(), qualified(&stage)];
        let claims = ["of-first", "of-second"];
        let names = names(&stage);
        let pvs = [0, 1].map(|at| {
            make(&stage, &names[at], &path, &hostnames[at]);
            stage.claim(claims[at], "fast", Some(&names[at]));
            stage.in_phase(&names[at], "Bound")
        });
        keep_secret(&path);
        set_hostname_label(&stage, &hostnames[released]);
        let _provisioner = stage.provisioner();
        stage.used(&pvs[released]);
        stage.delete_claim(claims[released]);
        let event = stage.event("VolumeDuplicate", &names[1 - released]);
        assert!(event.contains(path.to_str().unwrap()), "{event}");
        is_offered_as(&stage, "first", &hostnames[released]);
        assert!(has_secret(&path));
        assert!(is_same(&stage, &pvs[released], "Released"));

        stage.delete_claim(claims[1 - released]);
        stage.in_phase(&names[1 - released], "Released");
        stage.delete_pv(&names[1 - released]);
        offered_again(&stage, &path, &pvs[released]);
        assert!(entries(&path).is_empty());
    }
}
