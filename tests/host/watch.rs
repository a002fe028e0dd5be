use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use local_volume_provisioner::host::watch::{Change, HostWatch};
use nix::time::{ClockId, clock_gettime};
use support::sandbox;

/// How long to wait for what is told at once.
const PATIENCE: Duration = Duration::from_secs(10);

/// Does something and waits for the change that it must cause.
async fn expect(watch: &mut HostWatch, change: Change, cause: impl FnOnce()) {
    quiet(watch).await;
    let begin = Instant::now();
    cause();
    loop {
        let left = PATIENCE.saturating_sub(begin.elapsed());
        match tokio::time::timeout(left, watch.changed()).await {
            Ok(seen) if seen.as_ref().unwrap() == &change => return,
            Ok(_) => {}
            Err(elapsed) => panic!("no {change:?} within {PATIENCE:?}: {elapsed}"),
        }
    }
}

/// Takes what is pending, until there is silence.
async fn quiet(watch: &mut HostWatch) -> Vec<Change> {
    let mut changes = Vec::new();
    while let Ok(change) = tokio::time::timeout(Duration::from_millis(30), watch.changed()).await {
        changes.push(change.unwrap());
    }
    changes
}

fn set(watch: &mut HostWatch, dirs: &[&Path]) {
    let dirs: Vec<PathBuf> = dirs.iter().map(|dir| dir.to_path_buf()).collect();
    let faults = watch.set_dirs(&dirs).faults;
    assert!(faults.is_empty(), "{faults:?}");
}

#[tokio::test]
async fn mounts_and_entries_wake_at_once() {
    let sandbox = sandbox!();
    let dir = sandbox.dir("disks").unwrap();
    let changed = || Change::Dir(dir.clone());
    let mut watch = HostWatch::new().unwrap();
    set(&mut watch, &[&dir]);
    let disk = dir.join("a");
    expect(&mut watch, changed(), || fs::create_dir(&disk).unwrap()).await;
    expect(&mut watch, Change::Mounts, || {
        drop(sandbox.tmpfs("disks/a", "size=1m").unwrap());
    })
    .await;
    expect(&mut watch, Change::Mounts, || {
        crate::volumes::remount(&disk, nix::mount::MsFlags::MS_RDONLY);
    })
    .await;
    expect(&mut watch, Change::Mounts, || {
        sandbox.umount(&disk).unwrap();
    })
    .await;
    expect(&mut watch, changed(), || {
        fs::rename(&disk, dir.join("b")).unwrap();
    })
    .await;
    expect(&mut watch, changed(), || {
        fs::remove_dir(dir.join("b")).unwrap();
    })
    .await;
    expect(&mut watch, changed(), || {
        std::os::unix::fs::symlink("/dev/x", dir.join("c")).unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_directory_that_comes_later_is_seen() {
    let sandbox = sandbox!();
    let dir = sandbox.path().join("x/y");
    let changed = || Change::Dir(dir.clone());
    let mut watch = HostWatch::new().unwrap();
    set(&mut watch, &[&dir]);
    fs::create_dir(sandbox.path().join("unrelated")).unwrap();
    assert_eq!(
        quiet(&mut watch).await,
        [],
        "only the entry that leads there counts"
    );
    expect(&mut watch, changed(), || {
        fs::create_dir(sandbox.path().join("x")).unwrap();
    })
    .await;
    set(&mut watch, &[&dir]);
    expect(&mut watch, changed(), || fs::create_dir(&dir).unwrap()).await;
    set(&mut watch, &[&dir]);
    expect(&mut watch, changed(), || {
        fs::write(dir.join("file"), "").unwrap();
    })
    .await;
    expect(&mut watch, changed(), || {
        fs::remove_file(dir.join("file")).unwrap();
        fs::remove_dir(&dir).unwrap();
    })
    .await;
    set(&mut watch, &[&dir]);
    expect(&mut watch, changed(), || fs::create_dir(&dir).unwrap()).await;
}

#[tokio::test]
async fn a_link_to_nowhere_or_a_file_in_the_way_is_survived() {
    let sandbox = sandbox!();
    let [file, link] = ["file", "link"].map(|name| sandbox.path().join(name));
    fs::write(&file, "").unwrap();
    std::os::unix::fs::symlink("nowhere", &link).unwrap();
    let mut watch = HostWatch::new().unwrap();
    set(
        &mut watch,
        &[&file, &link, &file.join("in"), &link.join("in")],
    );
    expect(&mut watch, Change::Dir(link.join("in")), || {
        fs::remove_file(&link).unwrap();
    })
    .await;
    expect(&mut watch, Change::Dir(file.clone()), || {
        fs::remove_file(&file).unwrap();
    })
    .await;
}

#[tokio::test]
async fn the_set_of_directories_changes() {
    let sandbox = sandbox!();
    let [one, two, three] = ["one", "two", "three"].map(|name| sandbox.dir(name).unwrap());
    let bound = sandbox.bind(&two, "bound").unwrap();
    let mut watch = HostWatch::new().unwrap();
    set(&mut watch, &[&one, &two, &bound]);
    quiet(&mut watch).await;
    fs::write(bound.join("file"), "").unwrap();
    let mut seen = quiet(&mut watch).await;
    seen.sort_by_key(|change| format!("{change:?}"));
    assert_eq!(
        seen,
        [Change::Dir(bound.clone()), Change::Dir(two.clone())],
        "one directory, two paths"
    );
    set(&mut watch, &[&two, &three]);
    for dir in [&one, &three] {
        fs::write(dir.join("file"), "").unwrap();
    }
    assert_eq!(quiet(&mut watch).await, [Change::Dir(three.clone())]);
    expect(&mut watch, Change::Dir(two.clone()), || {
        fs::write(two.join("more"), "").unwrap();
    })
    .await;
    // Something is mounted over a watched directory: the path means another one now.
    expect(&mut watch, Change::Mounts, || {
        drop(sandbox.tmpfs("two", "size=1m").unwrap());
    })
    .await;
    set(&mut watch, &[&two]);
    expect(&mut watch, Change::Dir(two.clone()), || {
        fs::write(two.join("new"), "").unwrap();
    })
    .await;
}

#[tokio::test]
async fn more_events_than_the_queue_holds_are_not_lost() {
    let sandbox = sandbox!();
    let [busy, calm] = ["busy", "calm"].map(|name| sandbox.dir(name).unwrap());
    let mut watch = HostWatch::new().unwrap();
    set(&mut watch, &[&busy, &calm]);
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let limit: u32 = limit.trim().parse().unwrap();
    // The kernel joins equal events that follow each other, so the names alternate.
    for _ in 0..=(limit / 4) {
        for name in ["a", "b"] {
            fs::write(busy.join(name), "").unwrap();
            fs::remove_file(busy.join(name)).unwrap();
        }
    }
    fs::write(calm.join("file"), "").unwrap();
    let changes = quiet(&mut watch).await;
    assert!(
        changes.contains(&Change::Dir(calm)),
        "the queue overflowed: all are to be looked at"
    );
}

#[tokio::test]
async fn waiting_can_be_broken_off_and_an_idle_watch_costs_nothing() {
    let sandbox = sandbox!();
    let dir = sandbox.dir("disks").unwrap();
    let mut watch = HostWatch::new().unwrap();
    set(&mut watch, &[&dir]);
    quiet(&mut watch).await;
    let before = cpu_time();
    assert!(
        tokio::time::timeout(Duration::from_millis(500), watch.changed())
            .await
            .is_err()
    );
    let used = cpu_time().saturating_sub(before);
    assert!(
        used < Duration::from_millis(20),
        "{used:?} in half a second of silence"
    );
    for name in ["a", "b", "c"] {
        fs::write(dir.join(name), "").unwrap();
        // Polled once and dropped.
        let _ = tokio::time::timeout(Duration::ZERO, watch.changed()).await;
    }
    let held = tokio::time::timeout(Duration::ZERO, watch.changed()).await;
    drop(held);
    expect(&mut watch, Change::Dir(dir.clone()), || {
        fs::write(dir.join("d"), "").unwrap();
    })
    .await;
    sandbox.tmpfs("disks/m", "size=1m").unwrap();
    quiet(&mut watch).await;
    sandbox.umount(&dir.join("m")).unwrap();
    // The event is there before the test waits for it.
    assert!(quiet(&mut watch).await.contains(&Change::Mounts));
}

fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
        .unwrap()
        .into()
}
