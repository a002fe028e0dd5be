//! The rules of the configuration, as tables: here those of the node's keys.

mod class;
mod devices;
mod loading;
mod messages;

use super::*;
use crate::types::VolumeMode;

fn files(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect()
}

fn loaded(entries: &[(&str, &str)]) -> Loaded {
    from_files(&files(entries)).unwrap_or_else(|error| panic!("{entries:?}: {error}"))
}

#[test]
fn a_key_without_a_value_is_a_key_not_given() {
    let empty = [
        (
            "storageClassMap",
            "c: {hostDir: /h, mountDir: /m, namePattern: , blockCleanerCommand: ~}",
        ),
        ("labelsForPV", ""),
        ("nodeLabelsForPV", "# none\n"),
        ("useJobForCleaning", "null"),
        ("minResyncPeriod", "\n"),
        ("jobTolerations", "~"),
    ];
    assert_eq!(loaded(&empty), loaded(&[("storageClassMap", "c: {hostDir: /h, mountDir: /m}")]));
}

#[test]
fn each_key_of_the_node_is_read() {
    let config = loaded(&[
        ("nodeLabelsForPV", "- topology.kubernetes.io/zone\n- rack"),
        ("labelsForPV", "team: storage"),
        ("useAlphaAPI", "no"),
        ("useJobForCleaning", "yes"),
        (
            "jobTolerations",
            "- key: dedicated\n  value: true\n  operator: Equal\n  effect: NoSchedule",
        ),
        ("minResyncPeriod", "1h30m"),
        ("useNodeNameOnly", "\"true\""),
        ("setPVOwnerRef", "on"),
        ("removeNodeNotReadyTaint", "True"),
        ("provisionerNotReadyNodeTaintKey", "example.com/not-ready"),
        ("pauseCleaning", "'yes'"),
        ("protectReleasedData", "y"),
        ("maxConcurrentCleanups", "\"2\""),
        ("logLevel", "debug"),
        ("storageClassMap", "{}"),
    ]);
    assert_eq!(config.faults, []);
    let toleration = Toleration {
        key: Some("dedicated".into()),
        operator: Some("Equal".into()),
        // A string in the API, whatever it looks like in YAML.
        value: Some("true".into()),
        effect: Some("NoSchedule".into()),
        toleration_seconds: None,
    };
    assert_eq!(
        config.config,
        Config {
            classes: BTreeMap::new(),
            node_labels_for_pv: vec!["topology.kubernetes.io/zone".into(), "rack".into()],
            labels_for_pv: [("team".into(), "storage".into())].into(),
            use_alpha_api: false,
            use_job_for_cleaning: true,
            job_tolerations: vec![toleration],
            use_node_name_only: true,
            set_pv_owner_ref: true,
            remove_node_not_ready_taint: true,
            provisioner_not_ready_node_taint_key: "example.com/not-ready".into(),
            pause_cleaning: true,
            protect_released_data: true,
            max_concurrent_cleanups: NonZero::new(2).unwrap(),
            log_level: Some(LevelFilter::DEBUG),
        }
    );
}

#[test]
fn a_bad_value_outside_of_the_classes_gets_its_safe_value() {
    let faulty = [
        ("jobTolerations", "[{operator: Exists}, {tolerationSeconds: x}]"),
        ("labelsForPV", "{good: a, bad: [b]}"),
        ("logLevel", "loud"),
        ("maxConcurrentCleanups", "0"),
        ("nodeLabelsForPV", "[rack, {}]"),
        ("pauseCleaning", "perhaps"),
        ("protectReleasedData", "2"),
        ("provisionerNotReadyNodeTaintKey", "[a]"),
        ("useJobForCleaning", "[]"),
        ("useAlphaAPI", "perhaps"),
    ];
    let classes = ("storageClassMap", "c: {hostDir: /h, mountDir: /m}");
    let loaded = loaded(&[&faulty[..], &[classes]].concat());
    let config = Config {
        classes: loaded.config.classes.clone(),
        pause_cleaning: true,
        protect_released_data: true,
        ..Config::default()
    };
    assert_eq!(loaded.config, config);
    assert_eq!(config.classes.len(), 1, "a class is not off because of other keys");
    assert!(loaded.faults.iter().all(|fault| fault.class.is_none()));
    assert_eq!(loaded.faults.len(), faulty.len());
}

#[test]
fn labels_keep_the_text_that_was_written() {
    let text = "version: 1.10\nhex: 0x1F\nflag: yes\nquoted: \"yes\"\noctal: 007\nyes: no\n1.20: x\nempty:\n";
    let labels = loaded(&[("labelsForPV", text)]).config.labels_for_pv;
    let expected = [
        ("version", "1.10"),
        ("hex", "0x1F"),
        ("flag", "yes"),
        ("quoted", "yes"),
        ("octal", "007"),
        ("yes", "no"),
        ("1.20", "x"),
        ("empty", ""),
    ];
    assert_eq!(labels, files(&expected));
}

#[test]
fn the_hostname_label_cannot_be_replaced() {
    let loaded = loaded(&[
        ("labelsForPV", "{kubernetes.io/hostname: other, a: b}"),
        ("storageClassMap", "c: {hostDir: /h, mountDir: /m}"),
    ]);
    assert_eq!(loaded.config.labels_for_pv, files(&[("a", "b")]));
    assert!(loaded.warnings[0].starts_with("labelsForPV cannot set kubernetes.io/hostname"));
    assert_eq!(loaded.faults, []);
}

#[test]
fn keys_are_matched_without_regard_to_case() {
    let loaded = loaded(&[
        (
            "STORAGECLASSMAP",
            "c: {HostDir: /h, MOUNTDIR: /m, volumemode: Block, SELECTOR: \
          [{MatchExpressions: [{Key: a, OPERATOR: Exists}]}]}",
        ),
        ("usejobforcleaning", "yes"),
        ("jobtolerations", "[{Operator: Exists, tolerationseconds: 5}]"),
    ]);
    assert_eq!(loaded.faults, []);
    let class = &loaded.config.classes["c"];
    assert_eq!((class.volume_mode, class.selector.len()), (VolumeMode::Block, 1));
    assert!(loaded.config.use_job_for_cleaning);
    assert_eq!(loaded.config.job_tolerations[0].toleration_seconds, Some(5));
}

#[test]
fn an_unknown_key_is_named_with_the_one_that_was_meant() {
    let loaded = loaded(&[
        ("useJobsForCleaning", "{{ no YAML, and no error }}"),
        ("README", "hello"),
        (
            "storageClassMap",
            "c: {hostDir: /h, mountDir: /m, namePatern: x, color: red, selector: \
          [{matchExpresions: []}]}",
        ),
    ]);
    let mut warnings = loaded.warnings;
    warnings.sort_unstable();
    assert_eq!(
        warnings,
        [
            "class \"c\": key \"color\" is unknown and ignored",
            "class \"c\": key \"namePatern\" is unknown and ignored; the nearest known key is namePattern",
            "class \"c\": selector: key \"matchExpresions\" is unknown and ignored; the nearest known key is \
             matchExpressions",
            "key \"README\" is unknown and ignored",
            "key \"useJobsForCleaning\" is unknown and ignored; the nearest known key is useJobForCleaning",
        ]
    );
    assert_eq!(loaded.faults, []);
    assert!(loaded.config.classes.contains_key("c"));
}

#[test]
fn every_key_that_is_read_is_a_known_key() {
    for key in [
        "storageClassMap",
        "nodeLabelsForPV",
        "labelsForPV",
        "useAlphaAPI",
        "useJobForCleaning",
        "jobTolerations",
        "useNodeNameOnly",
        "setPVOwnerRef",
        "removeNodeNotReadyTaint",
        "provisionerNotReadyNodeTaintKey",
        "pauseCleaning",
        "protectReleasedData",
        "maxConcurrentCleanups",
        "logLevel",
    ] {
        let nonsense = loaded(&[(key, "[[nonsense]]")]);
        assert!(!nonsense.faults.is_empty(), "{key} is read");
        assert!(
            !nonsense.warnings.iter().any(|warning| warning.contains("unknown")),
            "{key} is known"
        );
    }
}

#[test]
fn nothing_configured_is_a_warning() {
    for entries in [
        &[][..],
        &[("storageClassMap", "")],
        &[("storageClassMap", "{}")],
        &[("useNodeNameOnly", "no")],
    ] {
        let loaded = loaded(entries);
        assert_eq!(loaded.warnings.len(), 1, "{entries:?}");
        assert!(loaded.warnings[0].starts_with("no class is configured"));
        assert_eq!(loaded.config, Config::default(), "{entries:?}");
    }
}

#[test]
fn a_misspelt_key_finds_the_nearest_known_one() {
    for (key, nearest) in [
        ("hostDri", Some("hostDir")),
        ("hostdirs", Some("hostDir")),
        ("mountDirectory", Some("mountDir")),
        ("blockCleaner", Some("blockCleanerCommand")),
        ("fstype2", Some("fsType")),
        ("reclaimPolicy", None),
        ("x", None),
        ("", None),
    ] {
        let warning = parse::class_keys().unknown("", key, "");
        let found = warning.split_once("known key is ").map(|(_, nearest)| nearest);
        assert_eq!(found, nearest, "{key:?}");
    }
}
