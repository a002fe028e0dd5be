//! Real directories, changed as editors, `kubectl` and the kubelet change them.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;

use tokio::runtime::Builder;
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::Instant;

use super::*;

const PERIOD: Duration = Duration::from_millis(50);
const TIMEOUT: Duration = Duration::from_secs(20);

const A: &str = "a: {hostDir: /a, mountDir: /a}\n";
const B: &str = "b: {hostDir: /b, mountDir: /b}\n";
const BROKEN: &str = "a: [\n";

struct Watched {
    root: tempfile::TempDir,
    readings: Receiver<Reading>,
}

impl Watched {
    /// A directory with class a, watched.
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("config");
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("storageClassMap"), A).unwrap();
        let files = read_dir(&dir).unwrap();
        let (send, readings) = channel();
        let publish = move |reading| drop(send.send(reading));
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        thread::spawn(move || runtime.block_on(watch(dir, files, PERIOD, publish)));
        Self { root, readings }
    }

    fn dir(&self) -> PathBuf {
        self.root.path().join("config")
    }

    fn map(&self) -> PathBuf {
        self.dir().join("storageClassMap")
    }

    fn put(&self, text: &str) {
        let new = self.root.path().join("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, self.map()).unwrap();
    }

    /// The classes of the next reading, which is valid.
    fn classes(&self) -> Vec<String> {
        let reading = self.readings.recv_timeout(TIMEOUT).unwrap();
        let loaded = reading.verdict.unwrap();
        loaded.config.classes.into_keys().collect()
    }

    fn faults(&self) -> String {
        let reading = self.readings.recv_timeout(TIMEOUT).unwrap();
        reading.verdict.unwrap_err().join("\n")
    }

    fn silent(&self) {
        let received = self.readings.recv_timeout(SETTLE_TIME + PERIOD * 10);
        assert_eq!(received, Err(RecvTimeoutError::Timeout));
    }
}

#[test]
fn changed_directory_is_read_again() {
    let watched = Watched::new();
    watched.put(B);
    assert_eq!(watched.classes(), ["b"]);

    let (dir, aside) = (watched.dir(), watched.root.path().join("aside"));
    fs::rename(&dir, &aside).unwrap();
    assert!(watched.faults().contains("cannot be read"));
    fs::rename(&aside, &dir).unwrap();
    assert_eq!(watched.classes(), ["b"], "missing for a while");
    watched.silent();
}

/// As the kubelet does it: a new directory, and one rename of a link.
#[test]
fn new_version_of_a_config_map_is_read() {
    let watched = Watched::new();
    let dir = watched.dir();
    let publish = |version: &str, text: &str| {
        let version_dir = dir.join(version);
        fs::create_dir(&version_dir).unwrap();
        fs::write(version_dir.join("storageClassMap"), text).unwrap();
        symlink(version, dir.join("..data_tmp")).unwrap();
        fs::rename(dir.join("..data_tmp"), dir.join("..data")).unwrap();
    };
    publish("..2026_1", A);
    let link = watched.root.path().join("link");
    symlink("..data/storageClassMap", &link).unwrap();
    fs::rename(link, watched.map()).unwrap();
    watched.silent();

    publish("..2026_2", B);
    assert_eq!(watched.classes(), ["b"]);
}

#[test]
fn invalid_configuration_is_reported_once() {
    let watched = Watched::new();
    watched.put(BROKEN);
    assert!(watched.faults().contains("not valid YAML"));
    watched.put(BROKEN);
    watched.silent();
    watched.put("a: {hostDir: x, mountDir: y}");
    let faults = watched.faults();
    assert!(faults.contains("hostDir"), "{faults}");
    watched.put(A);
    assert_eq!(watched.classes(), ["a"], "back to what it was");
}

/// An editor may truncate a file before it writes it.
#[test]
fn file_is_not_used_while_it_is_written() {
    let watched = Watched::new();
    fs::write(watched.map(), BROKEN).unwrap();
    thread::sleep(SETTLE_TIME / 4);
    fs::write(watched.map(), B).unwrap();
    assert_eq!(watched.classes(), ["b"]);
    watched.silent();
}

/// No event reports that.
#[tokio::test(start_paused = true)]
async fn linked_file_is_read_again_within_a_minute() {
    let root = tempfile::tempdir().unwrap();
    let (dir, target) = (root.path().join("config"), root.path().join("target"));
    fs::create_dir(&dir).unwrap();
    fs::write(&target, A).unwrap();
    symlink(&target, dir.join("storageClassMap")).unwrap();
    let files = read_dir(&dir).unwrap();
    let (send, mut readings) = unbounded_channel();
    let hour = Duration::from_hours(1);
    tokio::spawn(watch(dir, files, hour, move |reading| {
        drop(send.send(reading));
    }));
    sleep(SETTLE_TIME).await;
    fs::write(target, B).unwrap();
    let changed = Instant::now();
    let loaded = readings.recv().await.unwrap().verdict.unwrap();
    assert!(loaded.config.classes.contains_key("b"));
    assert!(changed.elapsed() <= LONGEST_PAUSE + SETTLE_TIME);
}
