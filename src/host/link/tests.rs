use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{chown, symlink};

use tempfile::TempDir;

use super::*;

const TOKEN: &str = "00112233445566778899aabbccddeeff";

/// A directory of links in a temporary directory.
fn new_dir() -> (TempDir, PathBuf, LinkDir) {
    let at = tempfile::tempdir().unwrap();
    let path = at.path().join("links");
    let links = LinkDir::open(&path).unwrap();
    (at, path, links)
}

/// One link.
fn only(target: &str) -> BTreeMap<String, String> {
    [(TOKEN.into(), target.into())].into()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

fn count(path: &Path) -> usize {
    fs::read_dir(path).unwrap().count()
}

#[test]
fn link_is_made_replaced_and_removed() {
    let (_at, path, links) = new_dir();
    assert_eq!(mode(&path), 0o700);
    assert!(links.read().unwrap().is_empty());
    for target in ["/mnt/one", "/mnt/two", "/mnt/two"] {
        links.make(TOKEN, Path::new(target)).unwrap();
        assert_eq!(fs::read_link(path.join(TOKEN)).unwrap(), Path::new(target));
        assert_eq!(links.read().unwrap(), only(target));
    }
    let target = Path::new(OsStr::from_bytes(b"/mnt/\xff"));
    links.make(TOKEN, target).unwrap();
    assert_eq!(links.read().unwrap(), only("/mnt/\u{fffd}"));
    assert_eq!(count(&path), 1, "no temporary link");
    assert!(links.remove(TOKEN).unwrap());
    assert!(!links.remove(TOKEN).unwrap());
    assert_eq!(count(&path), 0);
}

#[test]
fn name_that_is_not_a_token_is_refused() {
    let (_at, path, links) = new_dir();
    let (long, beneath) = (format!("{TOKEN}0"), format!("../{TOKEN}"));
    let (upper, other) = (TOKEN.to_uppercase(), TOKEN.replace('f', "g"));
    for name in ["", "..", &TOKEN[1..], &long, &beneath, &upper, &other] {
        let made = links.make(name, Path::new("/mnt")).unwrap_err();
        assert_eq!(made.kind(), ErrorKind::InvalidInput, "{name}");
        let removed = links.remove(name).unwrap_err();
        assert_eq!(removed.kind(), ErrorKind::InvalidInput, "{name}");
    }
    assert_eq!(count(&path), 0);
}

#[test]
fn only_temporary_links_are_removed_when_the_directory_is_opened() {
    let (_at, path, links) = new_dir();
    let temporary = path.join(format!("{TEMPORARY}{TOKEN}"));
    let (other, directory) = (format!("{TEMPORARY}other"), TOKEN.replace('0', "1"));
    symlink("/mnt/old", &temporary).unwrap();
    symlink("/mnt/other", path.join(&other)).unwrap();
    symlink("/mnt/other", path.join(OsStr::from_bytes(b"\xff"))).unwrap();
    fs::create_dir(path.join(&directory)).unwrap();
    links.make(TOKEN, Path::new("/mnt/one")).unwrap();
    symlink("/mnt/old", &temporary).unwrap();

    let links = LinkDir::open(&path).unwrap();
    assert_eq!(links.read().unwrap(), only("/mnt/one"));
    assert!(temporary.symlink_metadata().is_err());
    assert_eq!(count(&path), 4);
    links.make(&directory, Path::new("/mnt/one")).unwrap_err();
    links.remove(&directory).unwrap_err();
    assert!(path.join(&directory).is_dir());
}

#[test]
fn directory_that_another_user_controls_is_refused() {
    let (at, path, _) = new_dir();
    let link = at.path().join("link");
    symlink(&path, &link).unwrap();
    let file = at.path().join("file");
    File::create(&file).unwrap();
    for path in [&link, &file] {
        let error = LinkDir::open(path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotADirectory, "{error}");
    }
    LinkDir::open(&at.path().join("missing/links")).unwrap_err();
    chown(&path, Some(65534), None).unwrap();
    let error = LinkDir::open(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
}

#[test]
fn access_of_other_users_is_removed() {
    let (_at, path, _) = new_dir();
    for found in [0o777, 0o720, 0o701] {
        fs::set_permissions(&path, Permissions::from_mode(found)).unwrap();
        LinkDir::open(&path).unwrap();
        assert_eq!(mode(&path), 0o700, "{found:o}");
    }
}

#[test]
fn deleted_or_replaced_directory_is_an_error() {
    let (at, path, links) = new_dir();
    links.make(TOKEN, Path::new("/mnt/one")).unwrap();
    let all_fail = || {
        links.read().unwrap_err();
        links.make(TOKEN, Path::new("/mnt/one")).unwrap_err();
        links.remove(TOKEN).unwrap_err();
    };
    fs::rename(&path, at.path().join("moved")).unwrap();
    all_fail();
    symlink("moved", &path).unwrap();
    all_fail();
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    all_fail();
    assert!(at.path().join("moved").join(TOKEN).is_symlink());
}
