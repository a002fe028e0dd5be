//! From a directory, or from any text at all.

use std::fs;
use std::os::unix::fs::symlink;

use proptest::prelude::*;

use super::{files, loaded};
use crate::config::*;
use crate::types::VolumeMode;

#[test]
fn what_is_no_configuration_is_an_error() {
    let error = |entries: &[(&str, &str)]| from_files(&files(entries)).unwrap_err();
    assert!(error(&[("useAlphaAPI", "yes")]).starts_with("useAlphaAPI is true"));
    assert_eq!(
        error(&[("pauseCleaning", "yes"), ("pausecleaning", "no")]),
        "pauseCleaning is set as pauseCleaning and as pausecleaning; keep one of them"
    );
    for (text, line) in [
        ("a:\n  b: [\n", 2),
        ("c: {hostDir: /a}\nd: {}\nc: {hostDir: /b}\n", 3),
        ("c:\n  hostDir: /a\n  hostDir: /b\n", 3),
        ("c: *nowhere\n", 1),
        ("c: &c [*c]\n", 1),
    ] {
        let error = error(&[("storageClassMap", text)]);
        let place = format!(" at line {line}, column ");
        assert!(error.contains("storageClassMap is not valid YAML: "), "{error}");
        assert!(error.contains(&place), "{error}");
    }
}

#[test]
fn anchors_and_merge_keys_work_as_in_the_go_program() {
    let loaded = loaded(&[(
        "storageClassMap",
        "a: &a {hostDir: /a, mountDir: /a, volumeMode: Block, namePattern: 1*}\n\
         b: {<<: *a, hostDir: /b, mountDir: /b}\n",
    )]);
    assert_eq!(loaded.faults, []);
    let b = &loaded.config.classes["b"];
    assert_eq!((b.host_dir.as_str(), b.volume_mode), ("/b", VolumeMode::Block));
    assert_eq!(b.name_pattern.to_string(), "1*");
}

/// A directory as the kubelet mounts a ConfigMap.
fn config_map(entries: &[(&str, &[u8])]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("..2026_01_01")).unwrap();
    symlink("..2026_01_01", dir.path().join("..data")).unwrap();
    for (name, text) in entries {
        fs::write(dir.path().join("..2026_01_01").join(name), text).unwrap();
        symlink(format!("..data/{name}"), dir.path().join(name)).unwrap();
    }
    dir
}

#[test]
fn a_mounted_config_map_is_read_through_its_links() {
    let dir = config_map(&[
        ("storageClassMap", b"c: {hostDir: /h, mountDir: /m}"),
        ("useNodeNameOnly", b"\"yes\"\n"),
    ]);
    nix::unistd::mkfifo(&dir.path().join("jobTolerations"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let loaded = load(dir.path()).unwrap();
    assert!(loaded.config.use_node_name_only);
    assert_eq!(loaded.config.classes.len(), 1);
    let faults: Vec<_> = loaded.faults.iter().map(ToString::to_string).collect();
    let expected = "jobTolerations is \"not a file\"; write tolerations as in a Pod, such as [{key: dedicated, operator: Exists}]";
    assert_eq!((faults, loaded.warnings), (vec![expected.to_owned()], vec![]));
}

#[test]
fn key_that_is_a_directory_is_a_fault() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["storageClassMap", "lost+found"] {
        fs::create_dir(dir.path().join(name)).unwrap();
    }
    let loaded = load(dir.path()).unwrap();
    let fault = "storageClassMap is \"not a file\"; write a map of classes, such as ";
    assert!(loaded.faults[0].message.starts_with(fault), "{loaded:?}");
    assert!(loaded.warnings.contains(&"key \"lost+found\" is unknown and ignored".to_owned()));
}

#[test]
fn an_empty_directory_is_a_warning_and_a_missing_one_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let warnings = load(dir.path()).unwrap().warnings;
    assert!(warnings[0].starts_with("no class is configured"), "{warnings:?}");
    let missing = dir.path().join("missing");
    let error = load(&missing).unwrap_err();
    assert!(error.contains(missing.to_str().unwrap()), "{error}");
    assert!(error.contains("No such file"), "{error}");
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let dir = config_map(&[("labelsForPV", b"a: \xff")]);
    let error = load(dir.path()).unwrap_err();
    let words = "/labelsForPV cannot be read (stream did not contain valid UTF-8): mount the provisioner's ConfigMap there, as texts in UTF-8";
    assert!(error.contains(words), "{error}");

    let dir = tempfile::tempdir().unwrap();
    symlink("..data/pauseCleaning", dir.path().join("pauseCleaning")).unwrap();
    let error = load(dir.path()).unwrap_err();
    assert!(error.contains("/pauseCleaning cannot be read"), "{error}");
}

proptest! {
    #[test]
    fn no_text_panics_and_every_sentence_has_words(
        text in any::<String>(),
        near in r#"[-a: \n{}\[\],'"&*!|>#%?~0-9.<]{0,40}"#,
        name in "[a-zA-Z.]{1,12}",
    ) {
        let class = format!("c: {{hostDir: /h, mountDir: {near}}}");
        let inner = format!("c: {near}");
        for value in [&text, &near, &class, &inner] {
            for key in ["storageClassMap", "labelsForPV", "jobTolerations", "pauseCleaning", &name] {
                match from_files(&files(&[(key, value)])) {
                    Ok(loaded) => {
                        for fault in &loaded.faults {
                            prop_assert!(!fault.to_string().contains('\n'), "{fault}");
                        }
                        for name in loaded.faults.iter().filter_map(|fault| fault.class.as_ref()) {
                            prop_assert!(!loaded.config.classes.contains_key(name));
                        }
                    }
                    Err(error) => prop_assert!(!error.is_empty()),
                }
            }
        }
    }

    #[test]
    fn any_plain_text_is_a_label_as_it_is(value in "[A-Za-z0-9]([-A-Za-z0-9_.]{0,20}[A-Za-z0-9])?") {
        prop_assume!(!["null", "Null", "NULL"].contains(&value.as_str()));
        let loaded = loaded(&[("labelsForPV", &format!("a: {value}\n"))]);
        prop_assert_eq!(&loaded.config.labels_for_pv["a"], &value);
    }
}
