//! The rules of the configuration, as tables: here those of the node's keys.

mod class;
mod loading;

use super::*;
use crate::types::VolumeMode;

fn files(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries
        .iter()
        .map(|(key, text)| ((*key).to_owned(), (*text).to_owned()))
        .collect()
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
    assert_eq!(
        loaded(&empty),
        loaded(&[("storageClassMap", "c: {hostDir: /h, mountDir: /m}")])
    );
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
            use_job_for_cleaning: true,
            job_tolerations: vec![toleration],
            min_resync_period: Duration::from_mins(90),
            use_node_name_only: true,
            set_pv_owner_ref: true,
            remove_node_not_ready_taint: true,
            provisioner_not_ready_node_taint_key: "example.com/not-ready".into(),
            pause_cleaning: true,
            protect_released_data: true,
            max_concurrent_cleanups: NonZero::new(2).unwrap(),
        }
    );
}

#[test]
fn a_bad_value_of_the_node_gets_its_safe_value() {
    let loaded = loaded(&[
        ("storageClassMap", "c: {hostDir: /h, mountDir: /m}"),
        ("pauseCleaning", "perhaps"),
        ("protectReleasedData", "2"),
        ("useJobForCleaning", "[]"),
        ("minResyncPeriod", "300"),
        ("maxConcurrentCleanups", "0"),
        ("provisionerNotReadyNodeTaintKey", "a b"),
        ("nodeLabelsForPV", "[rack, 'no label', [x]]"),
        (
            "labelsForPV",
            "{good: a, bad: 'b c', 'b d': e, list: [], nothing: }",
        ),
        (
            "jobTolerations",
            "[{operator: Exists}, {operator: Exist}, {effect: No, tolerationSeconds: x}]",
        ),
    ]);
    let config = &loaded.config;
    assert!(config.pause_cleaning && config.protect_released_data);
    assert_eq!(
        config.min_resync_period,
        Config::default().min_resync_period
    );
    assert_eq!(config.max_concurrent_cleanups.get(), 4);
    assert_eq!(
        config.provisioner_not_ready_node_taint_key,
        DEFAULT_TAINT_KEY
    );
    assert_eq!(config.node_labels_for_pv, ["rack"]);
    let labels = [
        ("good".into(), "a".into()),
        ("nothing".into(), String::new()),
    ];
    assert_eq!(config.labels_for_pv, labels.into());
    assert_eq!(config.job_tolerations.len(), 1);
    assert_eq!(
        config.classes.len(),
        1,
        "a class is not off because of the node's keys"
    );
    assert_eq!(loaded.faulty_classes().count(), 0);
    let keys: Vec<_> = loaded
        .faults
        .iter()
        .map(|fault| fault.key.as_str())
        .collect();
    assert_eq!(
        keys,
        [
            "nodeLabelsForPV[1]",
            "nodeLabelsForPV[2]",
            "labelsForPV[\"bad\"]",
            "labelsForPV[\"b d\"]",
            "labelsForPV[\"list\"]",
            "useJobForCleaning",
            "jobTolerations[1].operator",
            "jobTolerations[2].effect",
            "jobTolerations[2].tolerationSeconds",
            "minResyncPeriod",
            "provisionerNotReadyNodeTaintKey",
            "pauseCleaning",
            "protectReleasedData",
            "maxConcurrentCleanups",
        ]
    );
    for key in [
        "storageClassMap",
        "labelsForPV",
        "nodeLabelsForPV",
        "jobTolerations",
    ] {
        let faults = from_files(&files(&[(key, "5")])).unwrap().faults;
        assert_eq!(faults.len(), 1, "{key}");
        assert_eq!(
            (faults[0].class.as_deref(), faults[0].key.as_str()),
            (None, key)
        );
    }
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
    assert_eq!(loaded.warnings, [Warning::HostnameLabel]);
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
        (
            "jobtolerations",
            "[{Operator: Exists, tolerationseconds: 5}]",
        ),
    ]);
    assert_eq!(loaded.faults, []);
    let class = &loaded.config.classes["c"];
    assert_eq!(
        (class.volume_mode, class.selector.len()),
        (VolumeMode::Block, 1)
    );
    assert!(loaded.config.use_job_for_cleaning);
    assert_eq!(loaded.config.job_tolerations[0].toleration_seconds, Some(5));
}

#[test]
fn an_unknown_key_is_named_with_the_one_that_was_meant() {
    let loaded = loaded(&[
        ("useJobsForCleaning", "{{ no YAML, and nobody minds }}"),
        ("README", "hello"),
        (
            "storageClassMap",
            "c: {hostDir: /h, mountDir: /m, namePatern: x, color: red, selector: \
          [{matchExpresions: []}]}",
        ),
    ]);
    let unknown = |class: Option<&str>, key: &str, meant| Warning::UnknownKey {
        class: class.map(Into::into),
        key: key.into(),
        meant,
    };
    assert_eq!(
        loaded.warnings,
        [
            unknown(
                Some("c"),
                "selector[0].matchExpresions",
                Some("matchExpressions")
            ),
            unknown(Some("c"), "namePatern", Some("namePattern")),
            unknown(Some("c"), "color", None),
            unknown(None, "README", None),
            unknown(None, "useJobsForCleaning", Some("useJobForCleaning")),
        ]
    );
    assert_eq!(loaded.faults, []);
    assert!(loaded.config.classes.contains_key("c"));
    assert_eq!(
        loaded.warnings[1].to_string(),
        "class \"c\": key \"namePatern\" is unknown and ignored: namePattern was probably meant"
    );
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
        "minResyncPeriod",
        "useNodeNameOnly",
        "setPVOwnerRef",
        "removeNodeNotReadyTaint",
        "provisionerNotReadyNodeTaintKey",
        "pauseCleaning",
        "protectReleasedData",
        "maxConcurrentCleanups",
    ] {
        let nonsense = loaded(&[(key, "[[nonsense]]")]);
        assert!(!nonsense.faults.is_empty(), "{key} is read");
        assert!(
            !nonsense
                .warnings
                .iter()
                .any(|w| matches!(w, Warning::UnknownKey { .. })),
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
        assert_eq!(loaded.warnings, [Warning::NoClasses], "{entries:?}");
        assert_eq!(loaded.config, Config::default(), "{entries:?}");
    }
}

#[test]
fn a_fault_is_one_sentence_with_class_key_value_and_remedy() {
    let loaded = loaded(&[
        (
            "storageClassMap",
            "c: {hostDir: mnt, volumeMode: Bloc, accessMode: RWO}\nC: 5\n",
        ),
        ("minResyncPeriod", "1d"),
        ("pauseCleaning", &format!("\"{}\"", "x\\n".repeat(100))),
    ]);
    let sentences: Vec<_> = loaded.faults.iter().map(ToString::to_string).collect();
    let cut = "x\\n".repeat(40);
    assert_eq!(
        sentences,
        [
            "class \"c\": hostDir \"mnt\" is not a usable path, since it is not absolute: write the \
             whole path without \"..\", such as /mnt/disks",
            "class \"c\": mountDir is missing: add it",
            "class \"c\": volumeMode \"Bloc\" is not a known value: write Block",
            "class \"c\": accessMode \"RWO\" is not a known value: write one of ReadWriteOnce, \
             ReadOnlyMany, ReadWriteMany, ReadWriteOncePod",
            "class \"C\": \"C\" cannot be the name of a StorageClass: use small letters, digits, \
             \"-\" and \".\", with a letter or digit at both ends and beside each \".\"",
            "class \"C\": \"5\" is a single value, not a map: write a map",
            "minResyncPeriod \"1d\" is not a duration, since it has an unknown unit: write numbers \
             with their units, such as 5m0s or 1h30m",
            &format!("pauseCleaning \"{cut}…\" is neither true nor false: write true or false"),
        ]
    );
}
