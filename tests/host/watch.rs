//! Events of the kernel: a changed mount table, changed directories.

use std::fs;
use std::time::{Duration, Instant};

use local_volume_provisioner::host::watch::{DirEvents, MountEvents};
use nix::mount::MsFlags;
use nix::time::{ClockId, clock_gettime};
use support::sandbox;

/// How long to wait for an event.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long a time without events is.
const SILENCE: Duration = Duration::from_millis(30);

async fn has_changed(watch: &DirEvents, within: Duration) -> bool {
    tokio::time::timeout(within, watch.changed()).await.is_ok()
}

/// Takes what is pending, until there is silence. Returns whether there was an event.
async fn quiet(watch: &DirEvents) -> bool {
    let mut any = false;
    while has_changed(watch, SILENCE).await {
        any = true;
    }
    any
}

/// Does something and waits for the event that it must cause.
async fn expect(watch: &DirEvents, cause: impl FnOnce()) {
    quiet(watch).await;
    cause();
    assert!(has_changed(watch, TIMEOUT).await, "no event");
}

async fn expect_mount(mounts: &MountEvents, cause: impl FnOnce()) {
    while tokio::time::timeout(SILENCE, mounts.changed()).await.is_ok() {}
    cause();
    let changed = tokio::time::timeout(TIMEOUT, mounts.changed()).await;
    changed.unwrap().unwrap();
}

#[tokio::test]
async fn changed_entries_are_reported() {
    let sandbox = sandbox!();
    let dir = sandbox.dir("disks").unwrap();
    let mut watch = DirEvents::new().unwrap();
    watch.set_dir(&dir).unwrap();
    let disk = dir.join("a");
    expect(&watch, || fs::create_dir(&disk).unwrap()).await;
    expect(&watch, || fs::rename(&disk, dir.join("b")).unwrap()).await;
    expect(&watch, || fs::remove_dir(dir.join("b")).unwrap()).await;
    expect(&watch, || {
        std::os::unix::fs::symlink("/dev/x", dir.join("c")).unwrap();
    })
    .await;
    // Something is mounted over the directory: the path means another one now.
    sandbox.tmpfs("disks", "size=1m").unwrap();
    watch.set_dir(&dir).unwrap();
    expect(&watch, || fs::write(dir.join("new"), "").unwrap()).await;
}

#[tokio::test]
async fn changed_mounts_are_reported() {
    let sandbox = sandbox!();
    let disk = sandbox.dir("disks/a").unwrap();
    let mounts = MountEvents::new().unwrap();
    expect_mount(&mounts, || {
        drop(sandbox.tmpfs("disks/a", "size=1m").unwrap());
    })
    .await;
    expect_mount(&mounts, || {
        crate::volumes::remount(&disk, MsFlags::MS_RDONLY);
    })
    .await;
    expect_mount(&mounts, || sandbox.umount(&disk).unwrap()).await;
}

#[tokio::test]
async fn missing_directory_is_watched_after_it_was_created() {
    let sandbox = sandbox!();
    let dir = sandbox.path().join("x");
    let mut watch = DirEvents::new().unwrap();
    watch.set_dir(&dir).unwrap();
    fs::write(&dir, "a file in the way").unwrap();
    watch.set_dir(&dir).unwrap();
    fs::remove_file(&dir).unwrap();
    fs::create_dir(&dir).unwrap();
    assert!(!quiet(&watch).await);
    watch.set_dir(&dir).unwrap();
    expect(&watch, || fs::write(dir.join("file"), "").unwrap()).await;
    expect(&watch, || {
        fs::remove_file(dir.join("file")).unwrap();
        fs::remove_dir(&dir).unwrap();
    })
    .await;
}

#[tokio::test]
async fn more_events_than_the_queue_holds_are_reported() {
    let sandbox = sandbox!();
    let busy = sandbox.dir("busy").unwrap();
    let mut watch = DirEvents::new().unwrap();
    watch.set_dir(&busy).unwrap();
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let limit: u32 = limit.trim().parse().unwrap();
    // The kernel joins equal events that follow each other, so the names alternate.
    for _ in 0..=(limit / 4) {
        for name in ["a", "b"] {
            fs::write(busy.join(name), "").unwrap();
            fs::remove_file(busy.join(name)).unwrap();
        }
    }
    assert!(quiet(&watch).await);
}

#[tokio::test]
async fn waiting_can_be_cancelled_and_an_idle_watch_costs_nothing() {
    let sandbox = sandbox!();
    let dir = sandbox.dir("disks").unwrap();
    let mut watch = DirEvents::new().unwrap();
    let mounts = MountEvents::new().unwrap();
    watch.set_dir(&dir).unwrap();
    quiet(&watch).await;
    let before = cpu_time();
    assert!(!has_changed(&watch, Duration::from_millis(500)).await);
    let used = cpu_time().saturating_sub(before);
    assert!(used < Duration::from_millis(20), "{used:?} in half a second of silence");
    for name in ["a", "b", "c"] {
        fs::write(dir.join(name), "").unwrap();
        // Polled once and dropped.
        has_changed(&watch, Duration::ZERO).await;
    }
    expect(&watch, || fs::write(dir.join("d"), "").unwrap()).await;
    sandbox.tmpfs("disks/m", "size=1m").unwrap();
    // The event is there before the test waits for it.
    let begun = Instant::now();
    mounts.changed().await.unwrap();
    assert!(begun.elapsed() < TIMEOUT);
}

fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
}
