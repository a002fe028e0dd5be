//! Subvolumes and snapshots of btrfs that tenants leave behind.

use std::fs;
use std::path::{Path, PathBuf};

use crate::volume::{
    assert_cleans, clean, make_canary, on_filesystems, run, snapshot, without_capabilities,
};

/// Runs `btrfs` with words and paths.
fn btrfs(words: &[&str], paths: &[&Path]) {
    let paths = paths.iter().map(|path| path.to_str().unwrap());
    run("btrfs", &words.iter().copied().chain(paths).collect::<Vec<_>>());
}

/// A subvolume with something in it, a writable snapshot of it, and a read-only one in a directory.
fn make_subvolumes(root: &Path) -> PathBuf {
    let [sub, writable, frozen] = ["sub", "writable", "dir/frozen"].map(|name| root.join(name));
    btrfs(&["subvolume", "create"], &[&sub]);
    make_canary(&sub.join("tree"));
    btrfs(&["subvolume", "snapshot"], &[&sub, &writable]);
    fs::create_dir(root.join("dir")).unwrap();
    btrfs(&["subvolume", "snapshot", "-r"], &[&sub, &frozen]);
    frozen
}

#[test]
fn subvolumes_and_snapshots_are_deleted_read_only_ones_too() {
    on_filesystems(&["btrfs"], |_, root| {
        let frozen = make_subvolumes(root);
        // One in the other, both frozen.
        let [outer, inner] = ["outer", "outer/inner"].map(|name| root.join(name));
        for subvolume in [&outer, &inner] {
            btrfs(&["subvolume", "create"], &[subvolume]);
            make_canary(&subvolume.join("tree"));
        }
        for subvolume in [&inner, &outer] {
            btrfs(&["property", "set"], &[subvolume, Path::new("ro"), Path::new("true")]);
        }
        assert!(fs::write(frozen.join("file"), "x").is_err(), "it is not frozen");
        assert!(fs::write(inner.join("file"), "x").is_err(), "it is not frozen");
        assert_cleans(root);
    });
}

#[test]
fn without_the_capability_a_read_only_snapshot_is_named_and_the_rest_is_deleted() {
    if !without_capabilities("-fowner") {
        return;
    }
    on_filesystems(&["btrfs"], |_, root| {
        let [sub, frozen] = ["sub", "dir/frozen"].map(|name| root.join(name));
        fs::create_dir(root.join("dir")).unwrap();
        for subvolume in [&sub, &frozen] {
            btrfs(&["subvolume", "create"], &[subvolume]);
            make_canary(&subvolume.join("tree"));
        }
        // By its owner, who is not we.
        std::os::unix::fs::chown(&frozen, Some(1000), Some(1000)).unwrap();
        let path = frozen.to_str().unwrap();
        let set = ["btrfs", "property", "set", path, "ro", "true"];
        run("setpriv", &[&["--reuid=1000", "--clear-groups"], &set[..]].concat());
        let error = clean(root).unwrap_err();
        let said = error.to_string();
        let named = said.contains("“dir/frozen") && said.contains("`btrfs subvolume delete`");
        assert!(named, "{said}");
        assert!(!root.join("sub").exists());
        btrfs(&["subvolume", "delete"], &[&frozen]);
        assert_cleans(root);
    });
}

#[test]
fn a_volume_that_is_a_read_only_snapshot_itself_is_not_touched() {
    on_filesystems(&["btrfs"], |sandbox, disk| {
        let frozen = make_subvolumes(disk);
        let root = sandbox.bind(&frozen, "frozen").unwrap();
        let before = snapshot(&root);
        let error = clean(&root).unwrap_err();
        assert!(error.to_string().contains("ro false"), "{error}");
        assert_eq!(snapshot(&root), before);
        btrfs(&["property", "set"], &[&root, Path::new("ro"), Path::new("false")]);
        assert_cleans(&root);
    });
}
