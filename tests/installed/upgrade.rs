//! This program is upgraded, and rolled back, over volumes in every state, as docs/upgrade-this-program.md says. The former
//! version is that of `scripts/test --upgrade`.

mod tenants;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};
use support::passes::volumes;

use crate::cluster::{SYSTEM, name, path};
use crate::disks::is_on_device;
use crate::interrupted::writers;
use crate::jobs::{self, begun, use_volume};
use crate::marks::{in_state, write, written};
use crate::operations::procedure::{Procedure, UPGRADE_THIS};
use crate::release::{NAME, Version, class};
use crate::reload::touch;
use crate::{Cluster, Disks, Release, disks::MIB};
use tenants::{CLASSES, STATES};

/// A command, and how long it may take.
type Cleaner = (&'static [&'static str], &'static str);

/// A cleaner that fails at once. It is in the image. The limit ends the pauses of its Job.
const FAILS: Cleaner = (&["/local-volume-provisioner", "no-such-command"], "10s");
const WORKS: Cleaner = (&["/scripts/dd_zero.sh", "1"], "2m");
/// Prints how many bytes of the device are not zero.
const COUNT: &str = "tr -d '\\000' </dev/data | wc -c";

#[test]
fn an_upgrade_keeps_each_volume_and_wipes_it_again_in_the_process() {
    change_version(Direction::Upgrade, false);
}

#[test]
fn an_upgrade_keeps_each_volume_and_uses_the_result_of_a_job() {
    change_version(Direction::Upgrade, true);
}

#[test]
fn a_rollback_keeps_each_volume_and_wipes_it_again_in_the_process() {
    change_version(Direction::Rollback, false);
}

#[test]
fn a_rollback_keeps_each_volume_and_uses_the_result_of_a_job() {
    change_version(Direction::Rollback, true);
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Direction {
    Upgrade,
    Rollback,
}

fn change_version(direction: Direction, by_jobs: bool) {
    let former = or_skip!(Version::former());
    let cluster = or_skip!(Cluster::enter());
    let mut disks = Disks::new("upgrade");
    let special = Special::new(&mut disks);
    let values = json!({ "useJobForCleaning": by_jobs });
    // A Job outlives the pod of the first version, which takes half a minute to end.
    let shred = ["/scripts/shred.sh", if by_jobs { "100" } else { "24" }];
    let classes = |cleaner| classes(&disks, shred, cleaner);
    let mut release = Release::of(&former, NAME, &cluster, classes(FAILS), values);
    let (first, second) = match direction {
        Direction::Upgrade => (former, Version::this()),
        Direction::Rollback => (Version::this(), former),
    };
    if direction == Direction::Rollback {
        release.redeploy(&first, classes(FAILS));
    }

    let tenants = tenants::bring(&cluster, &release);
    let unused = CLASSES.map(|(class, _)| cluster.available(class, 1).remove(0));
    in_state(&cluster, &release, &special.plain, "Skipped");
    let failed = cluster.available("failing", 1).remove(0);
    use_volume(&cluster, "failing", "Block", &special.failing);
    cluster.event(&failed, "VolumeFailedDelete");
    in_state(&cluster, &release, path(&failed), "CleaningFailed");
    let change = Change::prepare(direction, &first, &second);
    let wiped = cluster.available("slow", 1).remove(0);
    use_volume(&cluster, "slow", "Block", &special.slow);
    is_wiping(&cluster, &release, &special.slow, by_jobs);
    cluster.claim("next", "slow", "Block");
    cluster.pod("next", "next", "Block", COUNT);
    let former_pod = release.pod();
    has_no_fault(&cluster, &release, &first);

    let most = most_writers(&special.slow, || {
        change.make();
        let pod = release.pod();
        assert_ne!(pod["metadata"]["uid"], former_pod["metadata"]["uid"]);
        assert!(!by_jobs || writers(&special.slow) == 1, "the Job outlives the first version");
        cluster.pod_in_phase("next", "Succeeded");
    });
    assert_eq!(cluster.logs("next"), "0\n", "bytes that the next tenant reads");
    assert_eq!(most, 1, "wipes of one device at a time");
    assert_eq!(begun(&cluster, &wiped), if by_jobs { (0, 1) } else { (2, 0) });

    for tenant in &tenants {
        tenant.was_kept(&cluster, &release);
    }
    for pv in &unused {
        let now = cluster.get("pv", name(pv), None).unwrap();
        assert_eq!(now["metadata"]["uid"], pv["metadata"]["uid"]);
        in_state(&cluster, &release, path(pv), "Available");
    }
    in_state(&cluster, &release, &special.plain, "Skipped");
    in_state(&cluster, &release, path(&failed), "CleaningFailed");
    let now = cluster.get("pv", name(&failed), None).unwrap();
    assert_eq!(now["metadata"]["uid"], failed["metadata"]["uid"]);
    assert!(is_on_device(&special.failing, jobs::SECRET.as_bytes()));
    for tenant in &tenants {
        tenant.is_readable(&cluster);
    }

    // What can be recycled is, under the second version.
    let mut table = vec![("skipped", "not mounted", "skipped", "skipped")];
    for (pv, (class, mode)) in unused.iter().zip(CLASSES) {
        write(&cluster, class, class, mode);
        assert_eq!(name(&written(&cluster, class)), name(pv));
        cluster.delete_claim(class);
        cluster.recycled(pv);
        table.push((class, "Available", "Available", "used, recycled"));
    }
    for tenant in &tenants {
        tenant.release(&cluster);
    }
    for tenant in &tenants {
        let shown = tenant.state.shown();
        table.push((&*tenant.claim, shown, shown, tenant.ended(&cluster, &release)));
    }
    cluster.delete("pod", "next", &[]);
    cluster.delete_claim("next");
    release.redeploy(&second, classes(WORKS));
    // The next Job has the command that the provisioner has read.
    touch(&cluster, &release.pod(), "reload");
    cluster.eventually("the other cleaner is in use", || {
        release.logs().contains("configuration reloaded")
    });
    if by_jobs {
        let job = format!("job/{}", jobs::job_name(&failed));
        cluster.kubectl(&["delete", &job, "--namespace", SYSTEM]).unwrap();
    }
    cluster.recycled(&failed);
    assert!(!is_on_device(&special.failing, jobs::SECRET.as_bytes()));
    table.push(("failing", "CleaningFailed", "CleaningFailed", "recycled by another cleaner"));
    cluster.recycled(&wiped);
    let wiping = if by_jobs { "same Job" } else { "wiped again" };
    table.push(("slow", "Cleaning", wiping, "clean for the next tenant"));
    has_no_fault(&cluster, &release, &second);

    eprintln!("{direction:?}, devices cleaned by {}", if by_jobs { "Jobs" } else { "the process" });
    for (volume, before, after, end) in table {
        eprintln!("{volume:<20} {before:<15} {after:<15} {end}");
    }
}

/// Volumes that are no tenant's.
struct Special {
    /// A directory on which nothing is mounted.
    plain: PathBuf,
    slow: PathBuf,
    failing: PathBuf,
}

impl Special {
    /// Makes these, and one volume more than tenants in each of their classes.
    fn new(disks: &mut Disks) -> Self {
        for number in 0..=STATES.len() {
            let entry = format!("disk-{number}");
            disks.filesystem("files", &entry, "ext4", 32 * MIB);
            disks.device("raw", &entry, 16 * MIB);
        }
        let plain = disks.class("files").join("plain");
        fs::create_dir(&plain).unwrap();
        let slow = disks.device("slow", "disk", 512 * MIB);
        let failing = disks.device("failing", "disk", 256 * MIB);
        Self { plain, slow, failing }
    }
}

fn classes(disks: &Disks, slow: [&str; 2], (cleaner, timeout): Cleaner) -> Value {
    let of = |name: &str, settings: Value| class(name, &disks.class(name), settings);
    let failing = json!({
        "volumeMode": "Block", "blockCleanerCommand": cleaner, "cleanupTimeout": timeout,
    });
    json!([
        of("files", json!({})),
        of("raw", json!({ "volumeMode": "Block" })),
        of("slow", json!({ "volumeMode": "Block", "blockCleanerCommand": slow })),
        of("failing", failing),
    ])
}

/// The change of the version, by the commands of the page.
struct Change {
    page: Procedure,
    command: &'static str,
}

impl Change {
    fn prepare(direction: Direction, first: &Version, second: &Version) -> Self {
        if direction == Direction::Rollback {
            let page = Procedure::titled(&UPGRADE_THIS, "And back");
            return Self { page, command: "helm rollback" };
        }
        let mut before = Procedure::titled(&UPGRADE_THIS, "Before");
        before.set("CHART", &second.chart);
        before.follow("helm get values");
        let values = fs::read_to_string(before.dir().join("values.yaml")).unwrap();
        assert!(values.contains(&first.image), "{values}");
        let page = Procedure::titled(&UPGRADE_THIS, "Upgrade");
        page.set("CHART", &second.chart);
        let values = values.replace(&first.image, &second.image);
        fs::write(page.dir().join("values.yaml"), values).unwrap();
        Self { page, command: "helm upgrade" }
    }

    fn make(mut self) {
        self.page.follow(self.command);
        self.page.was_followed();
    }
}

/// Waits until the device is being wiped.
fn is_wiping(cluster: &Cluster, release: &Release, device: &Path, by_jobs: bool) {
    cluster.eventually("the wipe runs", || {
        let status: Value = serde_json::from_str(&release.http("/status")).ok()?;
        let mut volumes = volumes(&status);
        let volume = volumes.find(|volume| volume["path"] == json!(device))?;
        let cleanup = &volume["cleanup"];
        (cleanup["state"] == "Running" && cleanup["job"].is_string() == by_jobs).then_some(())
    });
    cluster.eventually("it is written to", || writers(device) > 0);
}

/// The largest number of processes that wiped a device at a time while `act` ran.
fn most_writers(device: &Path, act: impl FnOnce()) -> usize {
    let (is_over, most) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                most.fetch_max(writers(device), Ordering::Relaxed);
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
        });
        // Also after a panic, so that the scope ends.
        let _over = Over(&is_over);
        act();
    });
    most.into_inner()
}

struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Asserts that the pod is of this version, has not been restarted, and reports neither errors nor missing permissions.
fn has_no_fault(cluster: &Cluster, release: &Release, version: &Version) {
    let pod = release.pod();
    assert_eq!(pod["spec"]["containers"][0]["image"], version.image);
    assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 0);
    let events = cluster.events(name(&pod));
    assert!(events.iter().all(|event| event["reason"] != "PermissionMissing"), "{events:#?}");
    let log = release.logs();
    assert!(log.contains("INFO"), "{log}");
    let faults = log.lines().filter(|line| line.contains("ERROR") || line.contains("panicked"));
    assert_eq!(faults.collect::<Vec<_>>(), Vec::<&str>::new());
}
