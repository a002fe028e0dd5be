//! Real directories, changed in all the ways that people and programs have.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

use super::*;

/// Never, for a test that inotify has to do all the work in.
const NEVER: Duration = Duration::from_hours(1);
const PATIENCE: Duration = Duration::from_secs(5);

const A: &str = "a: {hostDir: /a, mountDir: /a}\n";
const B: &str = "b: {hostDir: /b, mountDir: /b}\n";
const BROKEN: &str = "a: [\n";

struct Ground {
    root: tempfile::TempDir,
    readings: Receiver<Reading>,
}

impl Ground {
    /// A directory with class a, watched.
    fn new(period: Duration) -> Self {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("config");
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("storageClassMap"), A).unwrap();
        let files = read_dir(&dir).unwrap();
        let (send, readings) = channel();
        watch(&dir, files, period, move |reading| {
            let _ = send.send(reading);
        })
        .unwrap();
        // The first look is at once, and must find nothing new.
        let ground = Self { root, readings };
        ground.silent(QUIET * 2);
        ground
    }

    fn dir(&self) -> PathBuf {
        self.root.path().join("config")
    }

    fn map(&self) -> PathBuf {
        self.dir().join("storageClassMap")
    }

    fn next(&self) -> Reading {
        self.readings.recv_timeout(PATIENCE).unwrap()
    }

    /// The classes of the next reading, which is valid.
    fn classes(&self) -> Vec<String> {
        let loaded = self.next().verdict.unwrap();
        loaded.config.classes.into_keys().collect()
    }

    fn faults(&self) -> String {
        self.next().verdict.unwrap_err().join("\n")
    }

    fn silent(&self, lasting: Duration) {
        let told = self.readings.recv_timeout(lasting);
        assert_eq!(told, Err(RecvTimeoutError::Timeout));
    }
}

/// In one step: a directory that is only empty has no fault.
fn remove(dir: &Path) {
    let aside = tempfile::tempdir_in(dir.parent().unwrap()).unwrap();
    fs::rename(dir, aside.path().join("removed")).unwrap();
}

#[test]
fn every_manner_of_editing_is_seen() {
    let ground = Ground::new(NEVER);
    let (dir, map) = (ground.dir(), ground.map());
    let other = dir.join(".storageClassMap.swp");

    fs::write(&map, B).unwrap();
    assert_eq!(ground.classes(), ["b"], "in place");

    fs::write(&other, A).unwrap();
    fs::rename(&other, &map).unwrap();
    assert_eq!(ground.classes(), ["a"], "by renaming over it");

    fs::remove_file(&map).unwrap();
    fs::write(&map, B).unwrap();
    assert_eq!(ground.classes(), ["b"], "removed and made again");

    fs::remove_file(&map).unwrap();
    assert_eq!(ground.classes(), [""; 0], "removed");

    let aside = ground.root.path().join("aside");
    fs::create_dir(&aside).unwrap();
    fs::write(aside.join("storageClassMap"), A).unwrap();
    fs::rename(&dir, ground.root.path().join("old")).unwrap();
    fs::rename(&aside, &dir).unwrap();
    assert_eq!(ground.classes(), ["a"], "another directory at its path");
    fs::write(&map, B).unwrap();
    assert_eq!(ground.classes(), ["b"], "and in that one");

    remove(&dir);
    assert!(ground.faults().contains("cannot be read"));
    fs::create_dir(&dir).unwrap();
    fs::write(&map, A).unwrap();
    assert_eq!(ground.classes(), ["a"], "gone for a while");
    ground.silent(QUIET * 2);
}

/// As the kubelet does it: a new directory, and one rename of a link.
#[test]
fn a_config_maps_new_version_is_seen_within_a_second() {
    let ground = Ground::new(NEVER);
    let dir = ground.dir();
    let publish = |version: &str, text: &str| {
        let version_dir = dir.join(version);
        fs::create_dir(&version_dir).unwrap();
        fs::write(version_dir.join("storageClassMap"), text).unwrap();
        symlink(version, dir.join("..data_tmp")).unwrap();
        fs::rename(dir.join("..data_tmp"), dir.join("..data")).unwrap();
    };
    publish("..2026_1", A);
    fs::remove_file(ground.map()).unwrap();
    symlink("..data/storageClassMap", ground.map()).unwrap();
    ground.silent(QUIET * 2);

    let begun = Instant::now();
    publish("..2026_2", B);
    remove(&dir.join("..2026_1"));
    assert_eq!(ground.classes(), ["b"]);
    assert!(begun.elapsed() < Duration::from_secs(1), "{begun:?}");
}

#[test]
fn without_an_event_the_period_finds_it() {
    let ground = Ground::new(Duration::from_millis(300));
    let elsewhere = ground.root.path().join("elsewhere");
    fs::write(&elsewhere, A).unwrap();
    fs::remove_file(ground.map()).unwrap();
    symlink(&elsewhere, ground.map()).unwrap();
    ground.silent(QUIET * 2);
    // Nothing happens in the watched directory.
    fs::write(&elsewhere, B).unwrap();
    assert_eq!(ground.classes(), ["b"]);
}

#[test]
fn what_is_the_same_in_the_end_is_no_news() {
    let ground = Ground::new(NEVER);
    fs::write(ground.map(), A).unwrap();
    File::open(ground.map())
        .unwrap()
        .set_modified(std::time::SystemTime::now())
        .unwrap();
    fs::write(ground.map(), B).unwrap();
    fs::write(ground.map(), A).unwrap();
    ground.silent(QUIET * 3);
}

/// An editor that cuts the file off and writes it piece by piece. Each beginning of it is either
/// broken or another configuration.
#[test]
fn a_file_that_is_being_written_is_left_alone() {
    let ground = Ground::new(Duration::from_millis(20));
    let text = format!("{A}b:\n  hostDir: /b\n  mountDir: \"/b\"\n  volumeMode: \"Block\"\n");
    let mut file = File::create(ground.map()).unwrap();
    for piece in text.as_bytes().chunks(6) {
        file.write_all(piece).unwrap();
        ground.silent(QUIET / 2);
    }
    drop(file);
    assert_eq!(ground.classes(), ["a", "b"]);
    ground.silent(DOUBT + QUIET);
}

/// One that takes a break in the middle of a line.
#[test]
fn half_a_file_is_doubted_for_a_while() {
    let ground = Ground::new(NEVER);
    let (first, second) = "b: {hostDir: /b, mountDir: /b}\n".split_at(12);
    let mut file = File::create(ground.map()).unwrap();
    file.write_all(first.as_bytes()).unwrap();
    ground.silent(DOUBT * 7 / 10);
    file.write_all(second.as_bytes()).unwrap();
    assert_eq!(ground.classes(), ["b"]);
}

#[test]
fn what_stays_invalid_is_told_once() {
    let ground = Ground::new(NEVER);
    fs::write(ground.map(), BROKEN).unwrap();
    assert!(ground.faults().contains("not valid YAML"));
    fs::write(ground.map(), BROKEN).unwrap();
    ground.silent(DOUBT + QUIET * 3);
    fs::write(ground.map(), "a: {hostDir: x, mountDir: y}").unwrap();
    let faults = ground.faults();
    assert!(
        faults.contains("hostDir") && faults.contains("mountDir"),
        "{faults}"
    );
    fs::write(ground.map(), A).unwrap();
    assert_eq!(ground.classes(), ["a"], "back to what it was");
}

#[test]
fn of_a_thousand_changes_the_last_one_counts() {
    let ground = Ground::new(NEVER);
    for number in 0..1000 {
        let text = format!("c{number}: {{hostDir: /c, mountDir: /c}}\n");
        if number % 2 == 0 {
            fs::write(ground.map(), text).unwrap();
        } else {
            let new = ground.dir().join("new");
            fs::write(&new, text).unwrap();
            fs::rename(&new, ground.map()).unwrap();
        }
    }
    let last = std::iter::repeat_with(|| ground.classes()).find(|classes| classes == &["c999"]);
    assert!(last.is_some());
    ground.silent(QUIET * 2);
}

#[test]
fn somebody_who_never_stops_writing_is_read_all_the_same() {
    let root = tempfile::tempdir().unwrap();
    let map = root.path().join("storageClassMap");
    fs::write(&map, B).unwrap();
    let watcher = Watcher::new(root.path().to_owned(), Files::new(), NEVER);
    let end = Instant::now() + QUIET * 4;
    let writer = thread::spawn({
        let map = map.clone();
        move || {
            while Instant::now() < end + QUIET {
                fs::write(&map, format!("{B}# {:?}\n", Instant::now())).unwrap();
                thread::sleep(STEP / 5);
            }
        }
    });
    watcher.at_rest(end);
    let late = Instant::now().saturating_duration_since(end);
    assert!(Instant::now() >= end && late < QUIET, "{late:?}");
    writer.join().unwrap();
}
