//! Real directories, changed as editors, `kubectl` and the kubelet change them.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};

use super::*;

/// Never, for a test that inotify has to do all the work in.
const NEVER: Duration = Duration::from_hours(1);
const PATIENCE: Duration = Duration::from_secs(20);

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
        ground.silent(SETTLE_TIME * 2);
        ground
    }

    fn dir(&self) -> PathBuf {
        self.root.path().join("config")
    }

    fn map(&self) -> PathBuf {
        self.dir().join("storageClassMap")
    }

    /// Puts another file in its place, in one step.
    fn put(&self, file: impl FnOnce(&Path)) {
        let new = self.root.path().join("new");
        file(&new);
        fs::rename(new, self.map()).unwrap();
    }

    fn put_text(&self, text: &str) {
        self.put(|new| fs::write(new, text).unwrap());
    }

    fn next(&self) -> Reading {
        self.readings.recv_timeout(PATIENCE).unwrap()
    }

    /// The classes of the next reading, which is valid.
    fn classes(&self) -> Vec<String> {
        let loaded = self.next().verdict.unwrap();
        loaded.config.classes.into_keys().collect()
    }

    /// Waits for a reading with these classes. What was there before that, if only for a moment, may
    /// have been read, too.
    fn becomes(&self, wanted: &[&str], how: &str) {
        let is_so = |reading: &Reading| {
            let loaded = reading.verdict.as_ref();
            loaded.is_ok_and(|loaded| loaded.config.classes.keys().eq(wanted))
        };
        loop {
            match self.readings.recv_timeout(PATIENCE) {
                Ok(reading) if is_so(&reading) => return,
                Ok(_) => {}
                Err(error) => panic!("not {wanted:?}, {how}: {error}"),
            }
        }
    }

    fn faults(&self) -> String {
        self.next().verdict.unwrap_err().join("\n")
    }

    fn silent(&self, lasting: Duration) {
        let received = self.readings.recv_timeout(lasting);
        assert_eq!(received, Err(RecvTimeoutError::Timeout));
    }
}

/// A watched directory after `act`, which returns for how long the files may have been left alone
/// meanwhile: started again if that was for as long as `limit`, after which they may be read.
fn in_time(period: Duration, limit: Duration, act: impl Fn(&Ground) -> Duration) -> Ground {
    loop {
        let ground = Ground::new(period);
        if act(&ground) < limit {
            return ground;
        }
    }
}

/// Writes a file piece by piece and returns for how long it may have been left alone.
fn write_slowly(path: &Path, pieces: &[&[u8]], pause: Duration) -> Duration {
    let mut longest = Duration::ZERO;
    let mut last = Instant::now();
    let mut file = File::create(path).unwrap();
    for piece in pieces {
        let now = Instant::now();
        file.write_all(piece).unwrap();
        longest = longest.max(last.elapsed());
        last = now;
        thread::sleep(pause);
    }
    longest
}

/// In one step: a directory that is only empty has no fault.
fn remove(dir: &Path) {
    let aside = tempfile::tempdir_in(dir.parent().unwrap()).unwrap();
    fs::rename(dir, aside.path().join("removed")).unwrap();
}

#[test]
fn every_way_of_editing_is_detected() {
    let ground = Ground::new(NEVER);
    let (dir, map) = (ground.dir(), ground.map());
    let other = dir.join(".storageClassMap.swp");

    fs::write(&map, B).unwrap();
    ground.becomes(&["b"], "in place");

    fs::write(&other, A).unwrap();
    fs::rename(&other, &map).unwrap();
    ground.becomes(&["a"], "by renaming over it");

    fs::remove_file(&map).unwrap();
    fs::write(&map, B).unwrap();
    ground.becomes(&["b"], "removed and made again");

    fs::remove_file(&map).unwrap();
    ground.becomes(&[], "removed");

    let aside = ground.root.path().join("aside");
    fs::create_dir(&aside).unwrap();
    fs::write(aside.join("storageClassMap"), A).unwrap();
    fs::rename(&dir, ground.root.path().join("old")).unwrap();
    fs::rename(&aside, &dir).unwrap();
    ground.becomes(&["a"], "another directory at its path");
    fs::write(&map, B).unwrap();
    ground.becomes(&["b"], "and in that one");

    remove(&dir);
    assert!(ground.faults().contains("cannot be read"));
    fs::create_dir(&dir).unwrap();
    fs::write(&map, A).unwrap();
    ground.becomes(&["a"], "gone for a while");
    ground.silent(SETTLE_TIME * 2);
}

/// As the kubelet does it: a new directory, and one rename of a link.
#[test]
fn a_config_maps_new_version_is_seen() {
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
    ground.put(|new| symlink("..data/storageClassMap", new).unwrap());
    ground.silent(SETTLE_TIME * 2);

    publish("..2026_2", B);
    remove(&dir.join("..2026_1"));
    assert_eq!(ground.classes(), ["b"]);
}

#[test]
fn without_an_event_the_period_finds_it() {
    let ground = Ground::new(Duration::from_millis(300));
    let elsewhere = ground.root.path().join("elsewhere");
    fs::write(&elsewhere, A).unwrap();
    ground.put(|new| symlink(&elsewhere, new).unwrap());
    ground.silent(SETTLE_TIME * 2);
    // Nothing happens in the watched directory.
    fs::write(&elsewhere, B).unwrap();
    ground.becomes(&["b"], "elsewhere");
}

#[test]
fn unchanged_contents_are_not_reported() {
    let ground = in_time(NEVER, SETTLE_TIME, |ground| {
        let begun = Instant::now();
        fs::write(ground.map(), A).unwrap();
        File::open(ground.map())
            .unwrap()
            .set_modified(std::time::SystemTime::now())
            .unwrap();
        fs::write(ground.map(), B).unwrap();
        fs::write(ground.map(), A).unwrap();
        begun.elapsed()
    });
    ground.silent(SETTLE_TIME * 3);
}

/// An editor that cuts the file off and writes it piece by piece. Each beginning of it is either
/// broken or another configuration.
#[test]
fn a_file_that_is_being_written_is_left_alone() {
    let text = format!("{A}b:\n  hostDir: /b\n  mountDir: \"/b\"\n  volumeMode: \"Block\"\n");
    let pieces: Vec<&[u8]> = text.as_bytes().chunks(6).collect();
    let ground = in_time(Duration::from_millis(20), SETTLE_TIME, |ground| {
        write_slowly(&ground.map(), &pieces, SETTLE_TIME / 4)
    });
    assert_eq!(ground.classes(), ["a", "b"]);
    ground.silent(INVALID_SETTLE);
}

/// One that takes a break in the middle of a line.
#[test]
fn truncated_file_is_not_used_at_once() {
    let (first, second) = B.as_bytes().split_at(12);
    let ground = in_time(NEVER, INVALID_SETTLE, |ground| {
        write_slowly(&ground.map(), &[first, second], INVALID_SETTLE * 6 / 10)
    });
    assert_eq!(ground.classes(), ["b"]);
}

#[test]
fn invalid_configuration_is_reported_once() {
    let ground = Ground::new(NEVER);
    ground.put_text(BROKEN);
    assert!(ground.faults().contains("not valid YAML"));
    ground.put_text(BROKEN);
    ground.silent(INVALID_SETTLE + SETTLE_TIME * 2);
    ground.put_text("a: {hostDir: x, mountDir: y}");
    let faults = ground.faults();
    assert!(faults.contains("hostDir"), "{faults}");
    ground.put_text(A);
    assert_eq!(ground.classes(), ["a"], "back to what it was");
}

#[test]
fn last_of_many_changes_is_reported() {
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
    ground.silent(SETTLE_TIME * 2);
}

#[test]
fn files_that_are_written_all_the_time_are_read() {
    let root = tempfile::tempdir().unwrap();
    let map = root.path().join("storageClassMap");
    fs::write(&map, B).unwrap();
    let (stop, stopped) = channel::<()>();
    let writer = thread::spawn(move || {
        let begun = Instant::now();
        while stopped.try_recv() == Err(TryRecvError::Empty) && begun.elapsed() < MAX_WAIT * 3 {
            fs::write(&map, format!("{B}# {:?}\n", begun.elapsed())).unwrap();
            thread::sleep(POLL_INTERVAL / 5);
        }
    });
    assert!(changed(root.path(), &Ok(Files::new())).is_some());
    assert!(!writer.is_finished());
    drop(stop);
    writer.join().unwrap();
}
