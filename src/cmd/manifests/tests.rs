use std::path::PathBuf;

use super::*;

const CLASS: &str = "{fast: {hostDir: /a, mountDir: /a}}";

/// The names, classes and faults of the configurations in a text.
fn parsed(text: &str) -> Vec<(String, Vec<String>, Vec<String>)> {
    let manifests = Manifests::parse(text).unwrap();
    let configurations = manifests.configurations.into_iter();
    configurations
        .map(|it| {
            let classes = it.config.map(|it| it.classes.into_keys().collect());
            (it.name, classes.unwrap_or_default(), it.faults)
        })
        .collect()
}

#[test]
fn configurations_are_found_in_each_form_of_text() {
    let map = |name: &str| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name}\ndata:\n  storageClassMap: '{CLASS}'\n"
        )
    };
    let other = "kind: ConfigMap\nmetadata: {name: other}\ndata: {a: b}\n";
    let json = r#"{"kind":"ConfigMap","metadata":{"name":"c"},"data":{"storageClassMap":"fast: {hostDir: /a, mountDir: /a}"}}"#;
    for (text, names) in [
        (map("{name: c, namespace: disks}"), &["ConfigMap disks/c"][..]),
        (json.to_owned(), &["ConfigMap c"]),
        (
            format!(
                "---\n# Source: a\n---\n{other}---\n{}---\n{}",
                map("{name: c}"),
                map("{name: d}")
            ),
            &["ConfigMap c", "ConfigMap d"],
        ),
        (
            format!(
                r#"{{"kind":"List","items":[{json},{{"kind":"ConfigMapList","items":[{json}]}}]}}"#
            ),
            &["ConfigMap c", "ConfigMap c"],
        ),
        (format!("storageClassMap: {CLASS}"), &[""]),
        (format!("storageClassMap: '{CLASS}'\nminResyncPeriod: 1m"), &[""]),
        (format!("StorageClassMap: {CLASS}\nsetPVOwnerRef: true"), &[""]),
    ] {
        for (found, name) in parsed(&text).iter().zip(names) {
            let (found_name, classes, faults) = found;
            assert_eq!((&**found_name, &classes[..]), (*name, &["fast".to_owned()][..]), "{text}");
            assert!(faults.is_empty(), "{text}: {faults:?}");
        }
        assert_eq!(parsed(&text).len(), names.len(), "{text}");
    }
}

#[test]
fn all_faults_of_a_config_map_are_named() {
    let text = "kind: ConfigMap\nmetadata: {name: c}\ndata:\n  storageClassMap: |\n    a: {hostDir: a, mountDir: /a}\n    b: {hostDir: /b, mountDir: /b, volumeMode: Blok}\n  pauseCleaning: perhaps\n  setPVOwnerRef: true\n";
    let [(_, classes, faults)] = &parsed(text)[..] else { panic!("one configuration") };
    assert!(classes.is_empty());
    for words in [
        "class \"a\": hostDir is \"a\"; write the absolute path",
        "class \"b\": volumeMode is \"Blok\"; write Filesystem or Block",
        "pauseCleaning is \"perhaps\"",
        "the key setPVOwnerRef is true, but the API server accepts texts only; quote it",
    ] {
        assert!(faults.iter().any(|it| it.contains(words)), "no {words:?} in {faults:?}");
    }
    assert_eq!(faults.len(), 4, "{faults:?}");
}

#[test]
fn text_without_a_configuration_is_an_error() {
    for (text, words) in [
        ("", "there is no ConfigMap with the key storageClassMap"),
        ("classes: [{name: fast}]", "values of the chart must be rendered"),
        ("kind: ConfigMap\ndata: {a: b}", "there is no ConfigMap"),
        ("kind: ConfigMap\ndata: [", "invalid YAML: "),
        ("a: 1\n---\na: 1\na: 2", "line 4"),
    ] {
        let error = Manifests::parse(text).unwrap_err().to_string();
        assert!(error.contains(words), "{text:?}: {error}");
    }
}

#[test]
fn storage_classes_are_compared_with_the_rules_of_local_volumes() {
    for (fields, faults) in [
        (
            "provisioner: kubernetes.io/no-provisioner\nvolumeBindingMode: WaitForFirstConsumer",
            &[][..],
        ),
        (
            "provisioner: rancher.io/local-path\nreclaimPolicy: Recycle",
            &[
                "the StorageClass fast has the provisioner rancher.io/local-path; write provisioner: kubernetes.io/no-provisioner",
                "binds claims at once",
                "has the reclaimPolicy Recycle",
            ],
        ),
    ] {
        let class =
            |name| format!("---\nkind: StorageClass\nmetadata: {{name: {name}}}\n{fields}\n");
        let text = format!("storageClassMap: {CLASS}\n{}{}", class("fast"), class("other"));
        let manifests = Manifests::parse(&text).unwrap();
        let found = &manifests.configurations[0].faults;
        assert_eq!(found.len(), faults.len(), "{found:?}");
        for (found, fault) in found.iter().zip(faults) {
            assert!(found.contains(fault), "{found} for {fault}");
        }
    }
}

#[test]
fn manifests_of_the_repository_are_valid() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    for (file, classes) in [
        ("deploy/local-volume-provisioner.yaml", 1),
        ("deploy/examples/bare-metal.yaml", 2),
        ("deploy/examples/block.yaml", 1),
        ("deploy/examples/cloud-nvme.yaml", 1),
    ] {
        let manifests = Manifests::read(&root.join(file)).unwrap();
        let [it] = &manifests.configurations[..] else {
            panic!("{file}: {:?}", manifests.configurations)
        };
        let config = it.config.as_ref().unwrap();
        assert_eq!((&it.faults[..], config.classes.len()), (&[][..], classes), "{file}");
    }
}
