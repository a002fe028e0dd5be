//! Loop devices over devices.

use std::fs::File;
use std::path::Path;

use local_volume_provisioner::host::access::Access;
use local_volume_provisioner::host::device::Device;
use local_volume_provisioner::host::sysfs::Sysfs;
use support::{LoopDevice, sandbox};

#[test]
fn loop_device_over_a_disk_or_partition_is_found() {
    let sandbox = sandbox!();
    let disk = LoopDevice::halved(sandbox.path(), 4 << 20).unwrap();
    let over = |path: &Path| {
        let sysfs = Sysfs::default();
        let number = Device::open(path, Access::Probe).unwrap().number();
        let devices = sysfs.writable_through(number).unwrap();
        sysfs.loops_over(&devices).unwrap()
    };
    let upper = LoopDevice::over(&File::open(disk.partition(1)).unwrap()).unwrap();
    let name = upper.path().file_name().unwrap().to_str().unwrap();
    assert_eq!(over(disk.path()), [name]);
    assert_eq!(over(&disk.partition(1)), [name]);
    assert_eq!(over(&disk.partition(2)), [] as [&str; 0]);
    drop(upper);
    let upper = LoopDevice::over(&File::open(disk.path()).unwrap()).unwrap();
    let name = upper.path().file_name().unwrap().to_str().unwrap();
    assert_eq!(over(&disk.partition(2)), [name]);
}
