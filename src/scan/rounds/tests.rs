//! Scans that take as long as a test wants: there is one thread for all of them.

use std::fs;
use std::sync::mpsc::Sender;
use std::thread;

use futures::FutureExt;

use super::*;
use crate::config::from_files;
use crate::scan::Machine;
use crate::stalled::{hang, runtime};

/// Far more than is needed.
const LONG: Duration = Duration::from_secs(10);

/// The rounds of one class with one directory, which has one entry.
struct Ground {
    root: tempfile::TempDir,
    rounds: Rounds,
    classes: BTreeMap<String, Arc<Class>>,
    survey: Arc<Survey>,
    wake: Arc<Notify>,
}

impl Ground {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("entry")).unwrap();
        let wake = Arc::new(Notify::new());
        Self {
            rounds: Rounds::new(Arc::clone(&wake)),
            classes: classes(root.path(), ""),
            survey: survey(None),
            wake,
            root,
        }
    }

    /// A round; whether it shows all.
    async fn observe(&mut self) -> bool {
        let mut observed = self.rounds.observe(&self.classes, &self.survey).await;
        observed.remove("c").unwrap().complete
    }

    /// A round whose scan does not end in time. It ends when the sender is dropped, or later.
    async fn observe_late(&mut self) -> Sender<()> {
        let release = hang();
        assert!(!self.observe().await);
        release
    }

    /// Rounds until one shows all, each when there is a reason for it.
    async fn settle(&mut self) {
        while !self.observe().await {
            self.is_told().await;
        }
    }

    async fn is_told(&self) {
        let told = tokio::time::timeout(LONG, self.wake.notified()).await;
        assert!(told.is_ok(), "nobody would look again");
    }

    fn is_not_told(&self) {
        let told = self.wake.notified().now_or_never();
        assert!(told.is_none(), "there would be no end of it");
    }
}

fn classes(dir: &std::path::Path, more: &str) -> BTreeMap<String, Arc<Class>> {
    let dir = dir.display();
    let map = format!("c: {{hostDir: {dir}, mountDir: {dir}{more}}}");
    let loaded = from_files(&BTreeMap::from([("storageClassMap".into(), map)])).unwrap();
    assert!(loaded.faults.is_empty(), "{:?}", loaded.faults);
    loaded.config.classes
}

fn survey(spoken_for: Option<BTreeSet<crate::types::HostPath>>) -> Arc<Survey> {
    Arc::new(Survey {
        machine: Machine::read().unwrap(),
        spoken_for,
    })
}

#[test]
fn a_scan_that_its_round_gave_up_is_told_even_if_it_took_no_time() {
    runtime().block_on(async {
        let mut ground = Ground::new();
        // The scan's turn comes when its round is over.
        tokio::spawn(async { thread::sleep(GRACE + Duration::from_millis(100)) });
        let release = ground.observe_late().await;
        drop(release);
        ground.is_told().await;
        assert!(ground.observe().await);
        ground.is_not_told();
    });
}

#[test]
fn a_scan_that_is_late_is_told_once() {
    runtime().block_on(async {
        let mut ground = Ground::new();
        let release = ground.observe_late().await;
        assert!(!ground.observe().await, "still the same scan");
        ground.is_not_told();
        drop(release);
        ground.is_told().await;
        assert!(ground.observe().await);
        ground.is_not_told();
    });
}

/// It has looked before, and nobody would look again.
#[test]
fn after_a_scan_that_missed_a_change_there_is_another() {
    type Change = (&'static str, fn(&mut Ground));
    let changes: [Change; 3] = [
        ("a mount, or an entry", |ground| ground.rounds.outdate()),
        ("a PV", |ground| {
            ground.survey = survey(Some(BTreeSet::new()));
        }),
        ("the settings", |ground| {
            ground.classes = classes(ground.root.path(), ", fsType: xfs");
        }),
    ];
    for (what, change) in changes {
        runtime().block_on(async {
            let mut ground = Ground::new();
            let release = ground.observe_late().await;
            change(&mut ground);
            assert!(!ground.observe().await, "{what}");
            drop(release);
            ground.is_told().await;
            assert!(!ground.observe().await, "{what}: it may be wrong");
            ground.is_told().await;
            ground.settle().await;
            ground.is_not_told();
        });
    }
}

#[test]
fn where_something_changes_all_the_time_every_other_scan_counts() {
    runtime().block_on(async {
        let mut ground = Ground::new();
        for counts in [false, true, false, true] {
            let release = ground.observe_late().await;
            ground.rounds.outdate();
            drop(release);
            ground.is_told().await;
            assert_eq!(ground.observe().await, counts);
            ground.is_told().await;
        }
    });
}

#[test]
fn a_change_before_a_scan_is_no_reason_for_another() {
    runtime().block_on(async {
        let mut ground = Ground::new();
        for _ in 0..2 {
            ground.rounds.outdate();
            ground.settle().await;
        }
        ground.is_not_told();
    });
}
