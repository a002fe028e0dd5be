//! What is said about a claim that has no volume.

use serde_json::json;

use crate::{
    controllers::tests::{World, but, claim, class, volume},
    pv_controller::MIGRATED_TO,
    resource::{
        PERSISTENT_VOLUME_CLAIMS as CLAIMS, PERSISTENT_VOLUMES as VOLUMES,
        STORAGE_CLASSES as CLASSES,
    },
};

#[test]
fn a_claim_without_a_volume_says_what_it_waits_for() {
    let external = but(class("external", "Immediate"), |c| {
        c["provisioner"] = json!("example.com/p");
    });
    let selected = |late: &str| {
        but(claim("c", "1Gi"), |c| {
            c["spec"]["storageClassName"] = json!(late);
            c["metadata"]["annotations"] = json!({"volume.kubernetes.io/selected-node": "n1"});
        })
    };
    let of = |class: &str| {
        but(claim("c", "1Gi"), |c| {
            c["spec"]["storageClassName"] = json!(class);
        })
    };
    for (what, wanted, reasons) in [
        ("no class", of(""), ["FailedBinding"]),
        (
            "a class that is not there",
            of("absent"),
            ["ProvisioningFailed"],
        ),
        (
            "a class that nobody provisions",
            of("fast"),
            ["ProvisioningFailed"],
        ),
        (
            "a class from outside",
            of("external"),
            ["ExternalProvisioning"],
        ),
        ("late binding", of("late"), ["WaitForFirstConsumer"]),
        (
            "late binding on a selected node",
            selected("late"),
            ["ProvisioningFailed"],
        ),
    ] {
        let mut world = World::new();
        for class in [
            class("fast", "Immediate"),
            class("late", "WaitForFirstConsumer"),
            external.clone(),
        ] {
            world.create(&CLASSES, class);
        }
        world.create(&CLAIMS, wanted);
        assert_eq!(world.phase(&CLAIMS, "c"), "Pending", "{what}");
        assert_eq!(world.reasons("c"), reasons, "{what}");
        let asked = &world.claim("c")["metadata"]["annotations"]["volume.kubernetes.io/storage-provisioner"];
        assert_eq!(
            asked == "example.com/p",
            what == "a class from outside",
            "{what}"
        );
    }
}

#[test]
fn a_claim_that_names_a_volume_is_told_why_it_does_not_get_it() {
    let mut world = World::new();
    let held = but(volume("v", "1Gi"), |v| {
        v["metadata"]["finalizers"] = json!(["example.com/held"]);
    });
    world.create(&VOLUMES, held);
    world.delete(&VOLUMES, "v");
    let naming = |name: &str| {
        but(claim(name, "5Gi"), |c| {
            c["spec"]["volumeName"] = json!("v");
        })
    };
    world.create(&CLAIMS, naming("c"));
    assert_eq!(
        world.messages("c"),
        [r#"Cannot bind to requested volume "v": the volume is marked for deletion "v""#]
    );
    world.change(&VOLUMES, "v", |v| v["metadata"]["finalizers"] = json!([]));
    world.create(&VOLUMES, volume("v", "1Gi"));
    world.create(&CLAIMS, naming("d"));
    assert_eq!(
        world.messages("d"),
        [r#"Cannot bind to requested volume "v": requested PV is too small"#]
    );
}

#[test]
fn who_would_make_a_volume_is_said_as_the_plug_ins_say_it() {
    let waiting = |name: &str| {
        format!(
            "Waiting for a volume to be created either by the external provisioner '{name}' or \
             manually by the system administrator. If volume creation is delayed, please verify \
             that the provisioner is running and correctly registered."
        )
    };
    for (provisioner, asked, message) in [
        (
            "example.com/p",
            Some("example.com/p"),
            waiting("example.com/p"),
        ),
        (
            "kubernetes.io/aws-ebs",
            Some("ebs.csi.aws.com"),
            waiting("ebs.csi.aws.com"),
        ),
        (
            "kubernetes.io/host-path",
            Some("kubernetes.io/host-path"),
            "Failed to create provisioner: provisioning in volume plugin \
             \"kubernetes.io/host-path\" is disabled"
                .to_owned(),
        ),
        (
            "kubernetes.io/nfs",
            None,
            "no provisionable volume plugin matched".to_owned(),
        ),
        (
            "kubernetes.io/rbd",
            None,
            "no volume plugin matched name: kubernetes.io/rbd".to_owned(),
        ),
        (
            "kubernetes.io/iscsi",
            None,
            "no volume plugin matched name: kubernetes.io/iscsi".to_owned(),
        ),
    ] {
        let mut world = World::new();
        let class = but(class("fast", "Immediate"), |c| {
            c["provisioner"] = json!(provisioner);
        });
        world.create(&CLASSES, class);
        world.create(&CLAIMS, claim("c", "1Gi"));
        assert_eq!(world.messages("c"), [message], "{provisioner}");
        let annotations = world.claim("c")["metadata"]["annotations"].clone();
        for key in [
            "volume.kubernetes.io/storage-provisioner",
            "volume.beta.kubernetes.io/storage-provisioner",
        ] {
            assert_eq!(annotations[key].as_str(), asked, "{provisioner}");
        }
        assert!(annotations[MIGRATED_TO].is_null(), "{provisioner}");
    }
}

#[test]
fn a_claim_says_which_driver_took_over_from_its_provisioner() {
    let asked = |provisioner: &str| json!({"volume.kubernetes.io/storage-provisioner": provisioner, MIGRATED_TO: "wrong"});
    let beta = json!({"volume.beta.kubernetes.io/storage-provisioner": "kubernetes.io/cinder"});
    for (what, annotations, driver) in [
        (
            "migrated",
            asked("kubernetes.io/gce-pd"),
            Some("pd.csi.storage.gke.io"),
        ),
        ("by the older key", beta, Some("cinder.csi.openstack.org")),
        ("not migrated", asked("example.com/p"), None),
        ("nobody asked", json!({MIGRATED_TO: "wrong"}), Some("wrong")),
    ] {
        let mut world = World::new();
        let noted = but(claim("c", "1Gi"), |c| {
            c["metadata"]["annotations"] = annotations;
            c["spec"]["storageClassName"] = json!("");
        });
        world.create(&CLAIMS, noted);
        let driver_now = world.claim("c")["metadata"]["annotations"][MIGRATED_TO].clone();
        assert_eq!(driver_now.as_str(), driver, "{what}");
    }
}
