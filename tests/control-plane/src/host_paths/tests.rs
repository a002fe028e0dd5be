//! The refusals, on real directories.

use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;

/// A root with a volume in it, and something precious beside the root.
struct Fixture {
    dir: TempDir,
    paths: HostPaths,
}

impl Fixture {
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
        symlink(dir.path().join("precious"), dir.path().join("root/volume/link")).unwrap();
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
                found.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            }
        }
        found
    }
}

#[test]
fn what_is_in_doubt_is_refused_and_left_alone() {
    let fixture = Fixture::new();
    let before = fixture.all();
    for (path, why) in [
        (PathBuf::from("/"), "is not below the test root"),
        (PathBuf::from("/tmp"), "is not below the test root"),
        (PathBuf::from("volume"), "is not below the test root"),
        (fixture.path("precious"), "is not below the test root"),
        (fixture.path("rooted"), "is not below the test root"),
        (fixture.path("root"), "is the test root itself"),
        (fixture.path("root/"), "is the test root itself"),
        (fixture.path("root/./"), "is the test root itself"),
        (fixture.path("root/../precious"), "contains '..'"),
        (fixture.path("root/volume/.."), "contains '..'"),
        (fixture.path("root/link"), "symbolic link"),
        (fixture.path("root/link/"), "symbolic link"),
        (fixture.path("root/volume/link/data"), "symbolic link"),
        (fixture.path("root/file"), "no directory"),
    ] {
        let path = path.as_path();
        let scrub = fixture.paths.directory(path).unwrap_err().to_string();
        assert!(scrub.contains(why), "{}: {scrub}", path.display());
        let delete = fixture.paths.delete(path).unwrap_err().to_string();
        assert!(delete.contains(why), "{}: {delete}", path.display());
        assert_eq!(fixture.all(), before, "{}", path.display());
    }
    let missing = fixture.paths.directory(&fixture.path("root/none")).unwrap_err();
    assert!(missing.to_string().contains("does not exist"), "{missing}");
}

#[test]
fn a_directory_is_deleted_with_its_contents() {
    let fixture = Fixture::new();
    for (path, again) in [("root/volume", 1), ("root/nested/volume/", 1), ("root/none/x", 1)] {
        for _ in 0..=again {
            fixture.paths.delete(&fixture.path(path)).unwrap();
        }
        assert!(!fixture.path(path).exists(), "{path}");
    }
    assert!(fixture.path("root/nested").exists());
    assert!(fixture.path("root/file").exists());
    assert!(fixture.path("precious/data").exists(), "a link is not followed");
}

#[test]
fn the_root_can_be_named_through_a_link() {
    let fixture = Fixture::new();
    let paths = HostPaths::below(fixture.path("alias")).unwrap();
    assert!(paths.directory(&fixture.path("alias/volume")).is_ok());
    assert!(paths.directory(&fixture.path("root/volume")).is_ok());
}

#[test]
fn what_was_put_in_its_place_meanwhile_is_safe() {
    let fixture = Fixture::new();
    let held = fixture.paths.directory(&fixture.path("root/volume")).unwrap();
    fs::rename(fixture.path("root/volume"), fixture.path("root/away")).unwrap();
    symlink(fixture.path("precious"), fixture.path("root/volume")).unwrap();
    empty(&held).unwrap();
    assert!(fixture.path("precious/data").exists());
    assert_eq!(fs::read_dir(fixture.path("root/away")).unwrap().count(), 0);
}

#[test]
fn bad_roots() {
    let fixture = Fixture::new();
    for root in ["root/none", "root/file"] {
        let error = HostPaths::below(fixture.path(root)).unwrap_err().to_string();
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
