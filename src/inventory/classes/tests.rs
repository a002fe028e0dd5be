//! Scans that take as long as a test wants: there is one thread for all of them.

use std::fs;
use std::path::Path;
use std::sync::mpsc::{Sender, channel};

use tokio::runtime::{Builder, Runtime};

use super::*;
use crate::config::from_files;
use crate::host::mark::StateDir;
use crate::inventory::LocalDisks;

/// Far more than is needed.
const TIMEOUT: Duration = Duration::from_secs(10);
/// So long that only events cause scans.
const PERIOD: Duration = Duration::from_hours(1);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().max_blocking_threads(1).build().unwrap()
}

/// Keeps that thread busy until the sender is dropped.
fn hang() -> Sender<()> {
    let (release, hung) = channel();
    tokio::task::spawn_blocking(move || hung.recv());
    release
}

fn classes(dir: &Path, more: &str) -> BTreeMap<String, Arc<Class>> {
    let dir = dir.display();
    let map = format!("c: {{hostDir: {dir}, mountDir: {dir}{more}}}");
    let loaded = from_files(&BTreeMap::from([("storageClassMap".into(), map)])).unwrap();
    assert!(loaded.faults.is_empty(), "{:?}", loaded.faults);
    loaded.config.classes
}

/// One class with an empty directory.
struct Fixture {
    root: tempfile::TempDir,
    inventory: Inventory,
    wake: Arc<Notify>,
}

impl Fixture {
    async fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let wake = Arc::new(Notify::new());
        let mut inventory = Inventory::new(
            Arc::new(LocalDisks::new(StateDir::default(), None)),
            Arc::clone(&wake),
            PERIOD,
        );
        inventory.serve(&classes(root.path(), ""));
        inventory.settle(TIMEOUT).await;
        Self { root, inventory, wake }
    }

    fn path(&self, name: &str) -> HostPath {
        HostPath::from_api(self.root.path().join(name).to_str().unwrap()).unwrap()
    }

    fn observation(&self) -> Observation {
        self.inventory.observe().classes.remove("c").unwrap()
    }

    /// Waits until the class looks as it should.
    async fn shows(&self, what: &str, is_so: impl Fn(&Observation) -> bool) {
        let shown = async {
            while !is_so(&self.observation()) {
                self.wake.notified().await;
            }
        };
        let shown = tokio::time::timeout(TIMEOUT, shown).await;
        assert!(shown.is_ok(), "{what}: {:?}", self.observation());
    }
}

#[test]
fn new_entry_is_scanned_at_once() {
    runtime().block_on(async {
        let fixture = Fixture::new().await;
        assert!(fixture.observation().complete);
        fs::create_dir(fixture.root.path().join("entry")).unwrap();
        fixture.shows("an entry", |seen| seen.entries.contains_key("entry")).await;
    });
}

#[test]
fn freed_path_is_outdated_until_it_is_scanned_again() {
    runtime().block_on(async {
        let mut fixture = Fixture::new().await;
        let paths = BTreeSet::from([fixture.path("a"), fixture.path("b")]);
        let begun = |fixture: &Fixture| {
            let actor = &fixture.inventory.actors["c"];
            actor.published.borrow().as_ref().unwrap().begun
        };
        let first = begun(&fixture);
        fixture.inventory.set_taken(&paths);
        while begun(&fixture) == first {
            fixture.wake.notified().await;
        }
        let release = hang();
        // No scan has seen this one taken.
        let more = BTreeSet::from([fixture.path("a"), fixture.path("b"), fixture.path("c")]);
        fixture.inventory.set_taken(&more);
        fixture.inventory.set_taken(&BTreeSet::from([fixture.path("b")]));
        let outdated = fixture.inventory.observe().outdated;
        let freed = BTreeSet::from([fixture.path("a"), fixture.path("c")]);
        assert_eq!(outdated, freed);
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(!fixture.inventory.observe().outdated.is_empty());
        drop(release);
        let scanned = async {
            while !fixture.inventory.observe().outdated.is_empty() {
                fixture.wake.notified().await;
                fixture.inventory.set_taken(&BTreeSet::from([fixture.path("b")]));
            }
        };
        tokio::time::timeout(TIMEOUT, scanned).await.unwrap();
    });
}

#[test]
fn directory_that_does_not_answer_is_a_fault_until_it_does() {
    runtime().block_on(async {
        let fixture = Fixture::new().await;
        let release = hang();
        fs::create_dir(fixture.root.path().join("entry")).unwrap();
        fixture
            .shows("a fault", |seen| {
                let fault = seen.fault.as_deref();
                !seen.complete && fault.is_some_and(|it| it.contains("did not answer"))
            })
            .await;
        drop(release);
        fixture.shows("all", |seen| seen.complete).await;
        // The new watch works.
        fs::create_dir(fixture.root.path().join("later")).unwrap();
        fixture.shows("an entry", |seen| seen.entries.contains_key("later")).await;
    });
}

#[test]
fn changed_settings_scan_the_class_again() {
    runtime().block_on(async {
        let mut fixture = Fixture::new().await;
        let release = hang();
        let changed = classes(fixture.root.path(), ", fsType: xfs");
        fixture.inventory.serve(&changed);
        fixture.inventory.settle(Duration::from_millis(50)).await;
        assert!(!fixture.observation().complete);
        drop(release);
        fixture.shows("all", |seen| seen.complete).await;
    });
}

#[test]
fn stuck_thread_is_known_after_a_reload() {
    runtime().block_on(async {
        let mut fixture = Fixture::new().await;
        let release = hang();
        fs::create_dir(fixture.root.path().join("entry")).unwrap();
        let is_silent = |seen: &Observation| {
            let fault = seen.fault.as_deref();
            fault.is_some_and(|it| it.contains("did not answer"))
        };
        fixture.shows("a fault", is_silent).await;
        let changed = classes(fixture.root.path(), ", fsType: xfs");
        fixture.inventory.serve(&changed);
        // Less than the timeout of a directory that was not known to hang.
        fixture.inventory.settle(Duration::from_secs(1)).await;
        assert!(is_silent(&fixture.observation()));
        drop(release);
        fixture.shows("all", |seen| seen.complete).await;
    });
}
