use std::fs;
use std::os::unix::fs::symlink;

use local_volume_provisioner::host::device::{Device, OpenError};
use support::{LoopDevice, sandbox};

#[test]
fn a_device_is_opened_through_a_link_and_has_a_size() {
    let sandbox = sandbox!();
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
    let sandbox = sandbox!();
    let at = |name: &str| sandbox.path().join(name);
    nix::unistd::mkfifo(&at("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    fs::write(at("file"), "").unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    symlink(at("fifo"), at("link")).unwrap();
    for path in [
        at("fifo"),
        at("link"),
        at("file"),
        at("socket"),
        at(""),
        "/dev/null".into(),
    ] {
        // A FIFO without a writer would hang here.
        for opened in [Device::open_readonly(&path), Device::open_exclusive(&path)] {
            let error = opened.unwrap_err();
            assert!(matches!(error, OpenError::NotABlockDevice(_)), "{error}");
        }
    }
    symlink("nowhere", at("dangling")).unwrap();
    assert!(matches!(
        Device::open_readonly(&at("dangling")),
        Err(OpenError::Io(..))
    ));
}

#[test]
fn an_exchanged_disk_is_noticed() {
    let sandbox = sandbox!();
    let [one, two] = [1_u64, 2].map(|size| LoopDevice::new(sandbox.path(), size << 20).unwrap());
    let link = sandbox.path().join("link");
    symlink(one.path(), &link).unwrap();
    let device = Device::open_exclusive(&link).unwrap();
    fs::remove_file(&link).unwrap();
    assert!(matches!(device.recheck(&link), Err(OpenError::Io(..))));
    symlink(two.path(), &link).unwrap();
    let error = device.recheck(&link).unwrap_err();
    assert!(matches!(error, OpenError::Changed { .. }), "{error}");
    fs::remove_file(&link).unwrap();
    fs::write(&link, "").unwrap();
    assert!(matches!(
        device.recheck(&link),
        Err(OpenError::NotABlockDevice(_))
    ));
}
