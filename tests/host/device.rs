use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::mpsc;

use local_volume_provisioner::host::device::{Device, OpenError};
use support::{LoopDevice, Sandbox};

use crate::volumes::{once_closed, umount};

#[test]
fn a_device_is_opened_through_a_link_and_has_a_size() {
    let Some(sandbox) = Sandbox::enter() else {
        return;
    };
    let real = LoopDevice::new(sandbox.path(), 3 << 20).unwrap();
    let link = sandbox.path().join("link");
    symlink(real.path(), &link).unwrap();
    let device = Device::open_readonly(&link).unwrap();
    assert_eq!(device.size(), 3 << 20);
    let name = real.path().file_name().unwrap().to_str().unwrap();
    let number = fs::read_to_string(format!("/sys/block/{name}/dev")).unwrap();
    assert_eq!(device.number().to_string(), number.trim());
    device.recheck(&link).unwrap();
}

#[test]
fn fault_17_nothing_but_a_block_device_is_opened() {
    let Some(sandbox) = Sandbox::enter() else {
        return;
    };
    let at = |name: &str| sandbox.path().join(name);
    nix::unistd::mkfifo(&at("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    fs::write(at("file"), "").unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    symlink(at("fifo"), at("link")).unwrap();
    for (path, what) in [
        (at("fifo"), "a FIFO"),
        (at("link"), "a FIFO"),
        (at("file"), "a regular file"),
        (at("socket"), "a socket"),
        (at(""), "a directory"),
        ("/dev/null".into(), "a character device"),
    ] {
        // A FIFO without a writer would hang here.
        for opened in [Device::open_readonly(&path), Device::open_exclusive(&path)] {
            match opened {
                Err(OpenError::NotABlockDevice { found, .. }) => assert_eq!(found, what),
                other => panic!("{}: {other:?}", path.display()),
            }
        }
    }
    symlink("nowhere", at("dangling")).unwrap();
    assert!(matches!(
        Device::open_readonly(&at("dangling")),
        Err(OpenError::Io { .. })
    ));
}

fn assert_in_use(path: &Path) {
    let error = Device::open_exclusive(path).unwrap_err();
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    assert!(Device::open_readonly(path).is_ok(), "looking is allowed");
}

#[test]
fn a_mounted_device_is_in_use() {
    let Some(sandbox) = Sandbox::enter() else {
        return;
    };
    let device = LoopDevice::formatted(sandbox.path(), 16 << 20, "ext4").unwrap();
    once_closed(|| Device::open_exclusive(device.path()));
    let path = sandbox.mount(device.path(), "ext4", "disk").unwrap();
    assert_in_use(device.path());
    umount(&sandbox, &path);
    let held = once_closed(|| Device::open_exclusive(device.path()));
    assert_in_use(device.path());
    drop(held);
    once_closed(|| Device::open_exclusive(device.path()));
}

#[test]
fn a_device_mounted_in_another_namespace_is_in_use() {
    let Some(sandbox) = Sandbox::enter() else {
        return;
    };
    let device = LoopDevice::formatted(sandbox.path(), 16 << 20, "ext4").unwrap();
    let node = device.path().to_owned();
    let (mounted, wait_mounted) = mpsc::channel();
    let (leave, wait_leave) = mpsc::channel::<()>();
    let other = std::thread::spawn(move || {
        let sandbox = Sandbox::enter().unwrap();
        let path = sandbox.mount(&node, "ext4", "disk").unwrap();
        mounted.send(()).unwrap();
        let _ = wait_leave.recv();
        umount(&sandbox, &path);
    });
    wait_mounted.recv().unwrap();
    let here = fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
    assert!(!here.contains("/mnt/disk"));
    assert_in_use(device.path());
    drop(leave);
    other.join().unwrap();
    once_closed(|| Device::open_exclusive(device.path()));
}

#[test]
fn a_write_protected_device_says_so() {
    let Some(sandbox) = Sandbox::enter() else {
        return;
    };
    let image = sandbox.path().join("image");
    fs::File::create_new(&image)
        .unwrap()
        .set_len(1 << 20)
        .unwrap();
    // Over a file that is open for reading only. Not `blockdev --setro`: that would outlast us.
    let device = LoopDevice::over(&fs::File::open(&image).unwrap()).unwrap();
    let error = Device::open_exclusive(device.path()).unwrap_err();
    assert!(matches!(error, OpenError::ReadOnly { .. }), "{error}");
    assert!(Device::open_readonly(device.path()).is_ok());
}

#[test]
fn an_exchanged_disk_is_noticed() {
    let Some(sandbox) = Sandbox::enter() else {
        return;
    };
    let [one, two] = [1_u64, 2].map(|size| LoopDevice::new(sandbox.path(), size << 20).unwrap());
    let link = sandbox.path().join("link");
    symlink(one.path(), &link).unwrap();
    let device = Device::open_exclusive(&link).unwrap();
    fs::remove_file(&link).unwrap();
    assert!(matches!(device.recheck(&link), Err(OpenError::Io { .. })));
    symlink(two.path(), &link).unwrap();
    let error = device.recheck(&link).unwrap_err();
    assert!(matches!(error, OpenError::Changed { .. }), "{error}");
    fs::remove_file(&link).unwrap();
    fs::write(&link, "").unwrap();
    assert!(matches!(
        device.recheck(&link),
        Err(OpenError::NotABlockDevice { .. })
    ));
}
