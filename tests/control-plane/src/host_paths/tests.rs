//! The refusals, on real directories.

use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;

/// A root with a volume in it, and something precious beside the root.
struct Ground {
    dir: TempDir,
    paths: HostPaths,
}

impl Ground {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for path in ["root/volume/sub/deeper", "root/nested/volume", "precious"] {
            fs::create_dir_all(dir.path().join(path)).unwrap();
        }
        for file in [
            "root/file",
            "root/volume/data",
            "root/volume/.hidden",
            "root/volume/sub/deeper/data",
            "precious/data",
        ] {
            fs::write(dir.path().join(file), "data").unwrap();
        }
        symlink(dir.path().join("precious"), dir.path().join("root/link")).unwrap();
        symlink(
            dir.path().join("precious"),
            dir.path().join("root/volume/link"),
        )
        .unwrap();
        symlink(dir.path().join("root"), dir.path().join("alias")).unwrap();
        let paths = HostPaths::below(dir.path().join("root")).unwrap();
        Self { dir, paths }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    /// Every file and directory there is.
    fn all(&self) -> Vec<PathBuf> {
        let mut found = vec![self.dir.path().to_owned()];
        let mut next = 0;
        while let Some(path) = found.get(next).cloned() {
            next += 1;
            if path.symlink_metadata().unwrap().is_dir() {
                found.extend(
                    fs::read_dir(path)
                        .unwrap()
                        .map(|entry| entry.unwrap().path()),
                );
            }
        }
        found
    }
}

#[test]
fn what_is_in_doubt_is_refused_and_left_alone() {
    let ground = Ground::new();
    let before = ground.all();
    for (path, why) in [
        (PathBuf::from("/"), "is not below the test root"),
        (PathBuf::from("/tmp"), "is not below the test root"),
        (PathBuf::from("volume"), "is not below the test root"),
        (ground.path("precious"), "is not below the test root"),
        (ground.path("rooted"), "is not below the test root"),
        (ground.path("root"), "is the test root itself"),
        (ground.path("root/"), "is the test root itself"),
        (ground.path("root/./"), "is the test root itself"),
        (ground.path("root/../precious"), "contains '..'"),
        (ground.path("root/volume/.."), "contains '..'"),
        (ground.path("root/link"), "symbolic link"),
        (ground.path("root/link/"), "symbolic link"),
        (ground.path("root/volume/link/data"), "symbolic link"),
        (ground.path("root/file"), "no directory"),
    ] {
        let path = path.as_path();
        let scrub = ground.paths.directory(path).unwrap_err().to_string();
        assert!(scrub.contains(why), "{}: {scrub}", path.display());
        let delete = ground.paths.delete(path).unwrap_err().to_string();
        assert!(delete.contains(why), "{}: {delete}", path.display());
        assert_eq!(ground.all(), before, "{}", path.display());
    }
    let missing = ground
        .paths
        .directory(&ground.path("root/none"))
        .unwrap_err();
    assert!(missing.to_string().contains("does not exist"), "{missing}");
}

#[test]
fn a_directory_goes_with_all_that_is_in_it() {
    let ground = Ground::new();
    for (path, again) in [
        ("root/volume", 1),
        ("root/nested/volume/", 1),
        ("root/none/x", 1),
    ] {
        for _ in 0..=again {
            ground.paths.delete(&ground.path(path)).unwrap();
        }
        assert!(!ground.path(path).exists(), "{path}");
    }
    assert!(ground.path("root/nested").exists());
    assert!(ground.path("root/file").exists());
    assert!(
        ground.path("precious/data").exists(),
        "a link is not followed"
    );
}

#[test]
fn the_root_can_be_named_through_a_link() {
    let ground = Ground::new();
    let paths = HostPaths::below(ground.path("alias")).unwrap();
    assert!(paths.directory(&ground.path("alias/volume")).is_ok());
    assert!(paths.directory(&ground.path("root/volume")).is_ok());
}

#[test]
fn what_was_put_in_its_place_meanwhile_is_safe() {
    let ground = Ground::new();
    let held = ground.paths.directory(&ground.path("root/volume")).unwrap();
    fs::rename(ground.path("root/volume"), ground.path("root/away")).unwrap();
    symlink(ground.path("precious"), ground.path("root/volume")).unwrap();
    empty(&held).unwrap();
    assert!(ground.path("precious/data").exists());
    assert_eq!(fs::read_dir(ground.path("root/away")).unwrap().count(), 0);
}

#[test]
fn bad_roots() {
    let ground = Ground::new();
    for root in ["root/none", "root/file"] {
        let error = HostPaths::below(ground.path(root)).unwrap_err().to_string();
        assert!(error.contains("cannot be opened as a directory"), "{error}");
    }
    for root in ["/", "/tmp/.."] {
        let error = HostPaths::below(root).unwrap_err().to_string();
        assert!(error.contains("root of this machine"), "{error}");
    }
}

#[test]
fn mount_tables() {
    let table = b"22 1 8:1 / / rw - ext4 /dev/sda rw\n36 22 0:5 / /a\\040b\\134c rw - tmpfs t rw\n";
    let points: Vec<_> = mount_points(table).collect();
    assert_eq!(points, [Path::new("/"), Path::new("/a b\\c")]);
}
