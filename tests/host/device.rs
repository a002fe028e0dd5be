use std::fs;
use std::os::unix::fs::symlink;

use local_volume_provisioner::host::access::Access;
use local_volume_provisioner::host::device::Device;
use support::{LoopDevice, sandbox};

#[test]
fn a_device_is_opened_through_a_link_and_has_a_size() {
    let sandbox = sandbox!();
    let real = LoopDevice::new(sandbox.path(), 3 << 20).unwrap();
    let link = sandbox.path().join("link");
    symlink(real.path(), &link).unwrap();
    let device = Device::open(&link, Access::Probe).unwrap();
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
    for path in [at("fifo"), at("link"), at("file"), at("socket"), at(""), "/dev/null".into()] {
        // A FIFO without a writer would hang here.
        for opened in [Device::open(&path, Access::Probe), Device::open(&path, Access::Clean)] {
            let error = opened.unwrap_err();
            let text = error.to_string();
            assert!(text.ends_with("is not a block device"), "{text}");
        }
    }
    symlink("nowhere", at("dangling")).unwrap();
    let error = Device::open(&at("dangling"), Access::Probe).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("cannot be opened"), "{text}");
}

#[test]
fn an_exchanged_disk_is_noticed() {
    let sandbox = sandbox!();
    let [one, two] = [1_u64, 2].map(|size| LoopDevice::new(sandbox.path(), size << 20).unwrap());
    let link = sandbox.path().join("link");
    symlink(one.path(), &link).unwrap();
    let device = Device::open(&link, Access::Clean).unwrap();
    fs::remove_file(&link).unwrap();
    let fails = |why: &str| {
        let text = device.recheck(&link).unwrap_err().to_string();
        assert!(text.contains(why), "{text}");
    };
    fails("cannot be opened");
    symlink(two.path(), &link).unwrap();
    fails("the disk was exchanged or resized");
    fs::remove_file(&link).unwrap();
    fs::write(&link, "").unwrap();
    fails("is not a block device");
}
