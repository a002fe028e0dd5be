//! The promise of this crate: nothing is left behind.

use std::fs;

use support::{LoopDevice, Sandbox};

#[test]
fn mounts_and_loop_devices_are_gone_afterwards() {
    let path = std::thread::spawn(|| {
        let sandbox = Sandbox::enter()?;
        let device = LoopDevice::formatted(sandbox.path(), 64 << 20, "ext4").unwrap();
        let mounted = sandbox.mount(device.path(), "ext4", "disk").unwrap();
        fs::write(mounted.join("file"), "data").unwrap();
        let tmpfs = sandbox.tmpfs("ram", "size=1m").unwrap();
        sandbox.bind(&tmpfs, "bound").unwrap();
        let table = fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
        assert!(
            ["/mnt/disk", "/mnt/ram", "/mnt/bound"]
                .iter()
                .all(|at| table.contains(at))
        );
        Some(device.path().to_owned())
    })
    .join()
    .unwrap();
    let Some(path) = path else { return };
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(
        !table.contains("/mnt/disk"),
        "the mount outlived its namespace"
    );
    // The last user of a namespace takes its mounts down a moment after it is gone.
    let name = path.file_name().unwrap().to_str().unwrap().to_owned();
    let backing = format!("/sys/block/{name}/loop/backing_file");
    for _ in 0..500 {
        if fs::metadata(&backing).is_err() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!(
        "{name} still has a backing file: {:?}",
        fs::read_to_string(&backing)
    );
}
