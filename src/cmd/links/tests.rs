use std::fs;

use tempfile::TempDir;

use super::*;
use crate::config::from_files;

/// The path of the directory of links, and a configuration with the class `fast`.
fn prepare(binding: &str) -> (TempDir, Config) {
    let class = format!("fast: {{hostDir: /mnt/fast, mountDir: /ours, binding: {binding}}}");
    let files = [("storageClassMap".to_owned(), class)].into();
    let loaded = from_files(&files).unwrap();
    assert_eq!(loaded.faults, []);
    (tempfile::tempdir().unwrap(), loaded.config)
}

/// A token that ends with this digit.
fn token(digit: u32) -> String {
    format!("{digit:032x}")
}

#[test]
fn links_to_volumes_of_the_classes_are_removed_at_the_start() {
    for binding in ["disk", "path"] {
        let (dir, config) = prepare(binding);
        let path = dir.path().join("links");
        let before = LinkDir::open(&path).unwrap();
        let targets = ["/mnt/fast/a", "/mnt/fast/b", "/mnt/faster/a", "/mnt", "a"];
        for (digit, target) in (0..).zip(targets) {
            before.make(&token(digit), Path::new(target)).unwrap();
        }
        let links = open(&path, &config, false).unwrap();
        let kept = (2..).zip(&targets[2..]);
        let kept = kept.map(|(digit, target)| (token(digit), (*target).to_owned()));
        assert_eq!(links.read().unwrap(), kept.collect(), "{binding}");
    }
}

#[test]
fn directory_is_made_for_classes_that_bind_to_disks() {
    let (dir, config) = prepare("disk");
    let path = dir.path().join("links");
    let links = open(&path, &config, false).unwrap();
    assert_eq!(links.read().unwrap(), [].into());
    let (dir, config) = prepare("path");
    let path = dir.path().join("links");
    let why = open(&path, &config, false).unwrap_err();
    assert!(why.contains("restart the provisioner"), "{why}");
    assert!(!path.exists());
}

#[test]
fn directory_of_a_container_must_be_that_of_the_host() {
    let (dir, config) = prepare("disk");
    let path = dir.path().join("links");
    let links = LinkDir::open(&path).unwrap();
    links.make(&token(1), Path::new("/mnt/fast/a")).unwrap();
    let why = open(&path, &config, true).unwrap_err();
    assert!(why.contains("is not mounted in the container"), "{why}");
    assert_eq!(links.read().unwrap().len(), 1);
}

#[test]
fn directory_that_cannot_be_opened_is_reported_with_its_path() {
    let (dir, config) = prepare("disk");
    let path = dir.path().join("links");
    fs::write(&path, "").unwrap();
    let why = open(&path, &config, false).unwrap_err();
    let expected = format!("no link can be made: {path:?}");
    assert!(why.starts_with(&expected), "{why}");
}
