use std::fs;

use tempfile::tempdir;

use super::*;
use crate::config::from_files;

fn config(binding: &str) -> Config {
    let class = format!("fast: {{hostDir: /mnt/fast, mountDir: /ours, binding: {binding}}}");
    let files = [("storageClassMap".to_owned(), class)].into();
    from_files(&files).unwrap().config
}

#[test]
fn links_of_an_earlier_process_are_removed_at_the_start() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("links");
    assert!(remove_all(&path).unwrap().is_none());
    let before = LinkDir::open(&path).unwrap();
    for (digit, target) in (0..).zip(["/mnt/fast/a", "/mnt/other/a", "a"]) {
        before.make(&format!("{digit:032x}"), Path::new(target)).unwrap();
    }
    fs::write(path.join("a-file"), "").unwrap();
    let links = remove_all(&path).unwrap();
    assert_eq!(links.as_ref().unwrap().read().unwrap(), [].into());
    assert!(path.join("a-file").exists());
    // In a pod, it exists because it is mounted.
    open(&path, links, &config("path"), true).unwrap();
}

#[test]
fn process_does_not_start_while_links_may_be_left() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("links");
    fs::write(&path, "").unwrap();
    let error = remove_all(&path).unwrap_err().to_string();
    assert!(error.contains(path.to_str().unwrap()), "{error}");
}

#[test]
fn directory_is_created_for_classes_that_bind_to_disks() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("links");
    for (binding, in_pod, expected) in [
        ("path", false, "restart the provisioner"),
        ("disk", true, "is not mounted in the container"),
    ] {
        let why = open(&path, None, &config(binding), in_pod).unwrap_err();
        assert!(why.contains(expected), "{why}");
        assert!(!path.exists());
    }
    let links = open(&path, None, &config("disk"), false).unwrap();
    assert_eq!(links.read().unwrap(), [].into());
}
