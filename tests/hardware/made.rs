//! A class makes filesystems on disks, mounts them after each boot, and makes them again to clean them.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use support::stage::uid;

use crate::bench::Bench;
use crate::disk::{MIB, Place};
use crate::moved::link;

const SIZE: u64 = 64 * MIB;
/// How long a disk has to be there before it is taken in.
const SETTLED: Duration = Duration::from_mins(1);

#[test]
fn a_filesystem_is_made_on_a_hot_plugged_disk_recycled_and_known_at_another_slot() {
    let mut bench = or_skip!(Bench::set());
    bench.has_marks = true;
    let stage = &bench.stage;
    let settings = json!({
        "binding": "disk",
        "devices": {
            "match": ["/dev/disk/by-id/nvme-*"],
            "filesystem": "ext4",
            "mountOptions": ["noatime"],
            "approve": "Auto",
        },
    });
    let dir = stage.class("made", &settings);
    let disk = bench.empty_disk("made", SIZE);
    let path = dir.join("nvme-QEMU_NVMe_Ctrl_made");
    bench.power_on(&[]);

    let plugged = Instant::now();
    bench.with_vm(|vm| vm.plug(&disk, Place::Nvme(16)));
    stage.within(2 * SETTLED, "the disk is a volume", || stage.pvs_at(&path).pop());
    let lasted = plugged.elapsed();
    let after = lasted.checked_sub(SETTLED).expect("it waits for a minute");
    println!("{lasted:.1?} from hot-plug to the PV, {after:.1?} without the minute");
    let mounted = bench.run(&format!("grep {} /proc/mounts", path.display()));
    assert!(mounted.contains("ext4") && mounted.contains("noatime"), "{mounted}");

    // A tenant comes and goes.
    let bound = stage.used(&stage.bind("first", &path));
    let write = |tenant: &Path, text: &str| {
        let tenant = tenant.display();
        bench.run(&format!(
            "until [ -d {tenant}/lost+found ]; do sleep 0.1; done; echo {text} >{tenant}/file; sync"
        ));
    };
    let read = |tenant: &Path| bench.run(&format!("cat {}/file || true", tenant.display()));
    write(Path::new(&link(&bound)), "first");
    let released = Instant::now();
    stage.delete_claim("first");
    let again = bench.offered_again(&path, &bound);
    println!("{:.1?} from the release to the next PV", released.elapsed());

    // The next one keeps its data over a power cut, after which the disk is in another slot.
    let bound = stage.used(&stage.bind("second", &path));
    assert_eq!(uid(&bound), uid(&again));
    let tenant = link(&bound);
    assert!(!read(Path::new(&tenant)).contains("first"));
    write(Path::new(&tenant), "second");
    bench.cut_power();
    bench.power_on(&[(&disk, Place::Nvme(20))]);
    bench.run(&format!("until [ -e {tenant}/file ]; do sleep 0.1; done"));
    assert!(read(Path::new(&tenant)).contains("second"));
    bench.stays(&bound);
    assert_eq!(stage.pvs().len(), 1);
}
