//! The ConfigMap, as the program itself reads it.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use local_volume_provisioner::config::{
    self, AccessMode, Approve, Binding, Bytes, CleanMethod, Cleaner, Config, DEFAULT_TAINT_KEY,
    DiscoveryPolicy, MissingVolumePolicy, WeakIdentity,
};
use local_volume_provisioner::types::FsType;
use serde_json::{Value, json};
use tracing::level_filters::LevelFilter;

use crate::compat::mounts;
use crate::helm::{Helm, Objects, chart_dir};

/// The configuration, which the program has nothing to say against.
fn read(objects: &Objects) -> Config {
    let files: BTreeMap<String, String> = serde_json::from_value(objects.config().clone()).unwrap();
    let loaded = config::from_files(&files).unwrap();
    assert_eq!(loaded.faults, [], "{files:#?}");
    assert_eq!(loaded.warnings, Vec::<String>::new(), "{files:#?}");
    loaded.config
}

#[test]
fn every_key_arrives_in_the_program() {
    let helm = or_skip!(Helm::find());
    let objects = helm.render_file("everything.yaml", &[]);
    assert_eq!(objects.only("ConfigMap")["metadata"]["name"], "disks-config");
    let config = read(&objects);
    assert!(config.set_pv_owner_ref);
    assert!(config.use_job_for_cleaning);
    assert!(config.use_node_name_only);
    assert!(config.remove_node_not_ready_taint);
    assert_eq!(config.provisioner_not_ready_node_taint_key, "example.com/disks-missing");
    let labels: Vec<_> = config.labels_for_pv.iter().map(|(k, v)| (&**k, &**v)).collect();
    assert_eq!(
        labels,
        [("encrypted", "true"), ("speed", "10"), ("tier", "fast"), ("version", "1.10")]
    );
    assert_eq!(config.node_labels_for_pv, ["topology.kubernetes.io/zone"]);
    // A Job has to go wherever the DaemonSet's pod is.
    let keys: Vec<_> = config.job_tolerations.iter().map(|t| t.key.as_deref()).collect();
    assert_eq!(keys, [Some("dedicated"), Some("example.com/disks-missing")]);
    // Our key, which is on by default.
    assert!(config.protect_released_data);

    let fast = &config.classes["fast"];
    assert_eq!(fast.host_dir.to_string(), "/mnt/fast");
    assert_eq!(fast.mount_dir.to_string(), "/fast");
    assert_eq!(fast.volume_mode.as_str(), "Filesystem");
    assert_eq!(fast.access_mode, AccessMode::ReadWriteOncePod);
    assert_eq!(fast.fs_type.as_deref(), Some("xfs"));
    assert_eq!(fast.name_pattern.to_string(), "nvme*,sd[b-z]");
    let command = vec!["/scripts/dd_zero.sh".into(), "2".into()];
    assert_eq!(fast.cleaner, Cleaner::Command(command));
    assert_eq!(fast.cleanup_timeout, None);
    let expressions = fast.selector[0].match_expressions.as_ref().unwrap();
    assert_eq!(expressions[0].key, "example.com/rack");

    let raw = &config.classes["raw.block"];
    assert_eq!(raw.volume_mode.as_str(), "Block");
    assert_eq!(raw.mount_dir.to_string(), "/mnt/raw");
}

#[test]
fn the_keys_that_the_other_program_lacks_arrive_too() {
    let helm = or_skip!(Helm::find());
    let config = read(&helm.render(&[
        "protectReleasedData=false,maxConcurrentCleanups=65535,pauseCleaning=yes,logLevel=trace",
        "classes[0].name=a,classes[0].hostDir=/mnt/a,classes[0].weakIdentity=Accept",
        "classes[0].discoveryPolicy=EmptyOnly,classes[0].missingVolumePolicy=Delete",
        "classes[0].cleanMethod=auto,classes[0].cleanupTimeout=1h30m,classes[0].trim=false",
        "classes[0].binding=disk",
    ]));
    assert!(!config.protect_released_data && config.pause_cleaning);
    assert_eq!(config.max_concurrent_cleanups.get(), 65535);
    assert_eq!(config.log_level, Some(LevelFilter::TRACE));
    let class = &config.classes["a"];
    assert_eq!(class.weak_identity, WeakIdentity::Accept);
    assert_eq!(class.discovery_policy, DiscoveryPolicy::EmptyOnly);
    assert_eq!(class.missing_volume_policy, MissingVolumePolicy::Delete);
    assert_eq!(class.cleaner, Cleaner::Method(CleanMethod::Auto));
    assert_eq!(class.cleanup_timeout, Some(Duration::from_mins(90)));
    assert!(!class.trim);
    assert_eq!(class.binding, Binding::Disk);
}

/// The rule, and what the program requires to follow it.
#[test]
fn rule_for_disks_arrives_with_what_it_requires() {
    let helm = or_skip!(Helm::find());
    let class = |devices: Value| {
        json!({ "classes": [{
            "name": "a", "hostDir": "/mnt/a", "mountDir": "/a", "binding": "disk", "devices": devices,
        }] })
    };
    let objects = helm.render_values(&class(json!({
        "match": ["/dev/disk/by-id/nvme-*", "/dev/disk/by-path/pci-*"],
        "exclude": ["/dev/disk/by-id/nvme-Boot_*"],
        "minSize": "500Gi",
        "maxSize": "8Ti",
        "rotational": "no",
        "model": "Fast_*",
        "filesystem": "xfs",
        "mountOptions": ["noatime", "discard"],
        "approve": "Auto",
    })));
    let config = read(&objects);
    let rule = config.classes["a"].devices.as_ref().unwrap();
    assert!(rule.matches("/dev/disk/by-path/pci-1") && !rule.matches("/dev/disk/by-id/ata-1"));
    assert!(rule.excludes("/dev/disk/by-id/nvme-Boot_1"));
    assert_eq!(rule.min_size, Some(Bytes(500 << 30)));
    assert_eq!(rule.max_size, Some(Bytes(8 << 40)));
    assert_eq!(rule.rotational, Some(false));
    assert!(rule.model.matches("Fast_SSD") && !rule.model.matches("Slow"));
    assert_eq!(rule.filesystem.map(FsType::as_str), Some("xfs"));
    assert_eq!(rule.mount_options, ["noatime", "discard"]);
    assert_eq!(rule.approve, Approve::Auto);

    // Disks are opened, and a link to each is created in the directory of the class.
    let container = objects.container();
    assert_eq!(container["securityContext"]["privileged"], true);
    let mounts = container["volumeMounts"].as_array().unwrap();
    for path in ["/dev", "/a"] {
        let mount = mounts.iter().find(|it| it["mountPath"] == path).unwrap();
        assert_eq!(mount.get("readOnly"), None, "{mount}");
    }
    let volumes = objects.pod()["volumes"].as_array().unwrap();
    let volume = volumes.iter().find(|it| it["name"] == "a").unwrap();
    let expected = json!({ "path": "/mnt/a", "type": "DirectoryOrCreate" });
    assert_eq!(volume["hostPath"], expected);

    for unset in [
        json!({ "match": ["/dev/disk/by-id/a"] }),
        json!({ "match": ["/dev/disk/by-id/a"], "filesystem": null, "mountOptions": null }),
    ] {
        let config = read(&helm.render_values(&class(unset)));
        let rule = config.classes["a"].devices.as_ref().unwrap();
        assert_eq!(rule.approve, Approve::Plan);
        assert_eq!((rule.rotational, rule.min_size), (None, None));
        assert!(rule.filesystem.is_none() && rule.mount_options.is_empty());
    }
}

/// What the provisioner mounts reaches the kubelet. No other directory lets mounts of the container out.
#[test]
fn only_directories_of_filesystems_that_are_made_are_bidirectional() {
    let helm = or_skip!(Helm::find());
    let by_hand =
        |name: &str, dir: &str| json!({ "name": name, "hostDir": dir, "namePattern": "by-hand-*" });
    let ruled = |name: &str, dir: &str, filesystem: Value| {
        json!({
            "name": name, "hostDir": dir, "mountDir": format!("/c{dir}/"), "binding": "disk",
            "devices": { "match": [format!("/dev/disk/by-id/{name}-*")], "filesystem": filesystem },
        })
    };
    let shared = |name: &str, filesystem: Value| {
        let mut class = ruled(name, "/shared", filesystem);
        class["namePattern"] = format!("{name}*").into();
        class
    };
    let classes = json!([
        by_hand("mounts", "/mounts"),
        ruled("raw", "/raw", Value::Null),
        ruled("made", "/made", "ext4".into()),
        shared("first", Value::Null),
        shared("second", "xfs".into()),
        by_hand("last", "/made/below"),
    ]);
    let objects = helm.render_values(&json!({
        "classes": classes,
        "nodeCleanup": { "enabled": true },
        "test": { "enabled": true },
    }));
    let of_classes: Vec<_> = mounts(objects.container())
        .into_iter()
        .filter(|(name, ..)| !name.starts_with("provisioner-"))
        .map(|(name, path, propagation, _)| (name, path, propagation))
        .collect();
    assert_eq!(
        of_classes,
        [
            ("mounts", "/mounts", "HostToContainer"),
            ("raw", "/c/raw", "HostToContainer"),
            ("made", "/c/made", "Bidirectional"),
            ("first", "/c/shared", "Bidirectional"),
            ("last", "/made/below", "HostToContainer"),
        ]
    );
    // Nor do mounts of the kubelet's directories, or those of other workloads.
    let text = serde_json::to_string(&objects.0).unwrap();
    assert_eq!(text.matches("Bidirectional").count(), 2);
}

/// The program's own defaults, but for what the chart is safer in.
#[test]
fn nothing_but_the_classes_has_to_be_given() {
    let helm = or_skip!(Helm::find());
    let config = read(&helm.render_file("minimal.yaml", &[]));
    let expected = Config {
        protect_released_data: true,
        log_level: Some(LevelFilter::INFO),
        classes: config.classes.clone(),
        ..Config::default()
    };
    assert_eq!(config, expected);
    assert_eq!(config.provisioner_not_ready_node_taint_key, DEFAULT_TAINT_KEY);
    let class = &config.classes["fast-disks"];
    assert_eq!(class.mount_dir.to_string(), "/mnt/fast-disks");
    assert!(class.selector.is_empty() && class.fs_type.is_none());
}

#[test]
fn program_accepts_no_classes() {
    let helm = or_skip!(Helm::find());
    let objects = helm.render_values(&json!({ "classes": [] }));
    let files: BTreeMap<String, String> = serde_json::from_value(objects.config().clone()).unwrap();
    let loaded = config::from_files(&files).unwrap();
    assert_eq!(loaded.faults, []);
    assert!(loaded.config.classes.is_empty());
    let [warning] = &loaded.warnings[..] else {
        panic!("{:?}", loaded.warnings);
    };
    assert!(warning.contains("no class is configured"), "{warning}");
}

/// YAML has more than one way to say no, and in a template each quoted one is as good as true.
#[test]
fn no_means_no() {
    let helm = or_skip!(Helm::find());
    // Nothing said is no `no`.
    let config = read(&helm.render(&["protectReleasedData=null,useJobForCleaning=null"]));
    assert!(config.protect_released_data && !config.use_job_for_cleaning);
    for no in ["no", "off", "False", "n"] {
        let config = read(&helm.render(&[&format!(
            "protectReleasedData={no},useJobForCleaning={no},removeNodeNotReadyTaint={no},enableWindows={no}"
        )]));
        assert!(!config.protect_released_data, "{no}");
        assert!(!config.use_job_for_cleaning, "{no}");
        assert!(!config.remove_node_not_ready_taint, "{no}");
    }
}

/// The program warns of nothing in the examples, in `deploy/` too.
#[test]
fn every_example_is_understood() {
    let helm = or_skip!(Helm::find());
    let examples = fs::read_dir(chart_dir().join("examples")).unwrap();
    let examples: Vec<_> = examples.map(|entry| entry.unwrap().path()).collect();
    assert!(examples.len() >= 4, "{examples:?}");
    for example in examples {
        let objects = helm.template(std::slice::from_ref(&example), &[]).unwrap();
        let config = read(&objects);
        // Each is complete with its StorageClasses.
        let classes: Vec<_> = config.classes.keys().map(String::as_str).collect();
        let mut made = objects.names("StorageClass");
        made.sort_unstable();
        assert_eq!(made, classes, "{example:?}");
    }
}
