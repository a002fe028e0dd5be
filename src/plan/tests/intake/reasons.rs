//! Why a disk is left alone.

use super::*;
use crate::host::identity::Identity;
use crate::host::mark::MarkState;

fn holds(what: &str) -> impl FnOnce(&mut BlockDisk) {
    let what = format!("the signature of {what}");
    |disk| disk.contents = Ok(DiskContents::Signature(what))
}

type Change = Box<dyn FnOnce(&mut BlockDisk)>;

fn change(change: impl FnOnce(&mut BlockDisk) + 'static) -> Change {
    Box::new(change)
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn other_disks_are_left_alone_with_the_reason() {
    let marked = |state| {
        change(with_candidate(move |it| {
            *it = mark::marked(it, MarkOnDisk::Valid(mark::mark(state)));
        }))
    };
    let cases: Vec<(&str, Change, &str)> = vec![
        ("without a size", change(with_candidate(|it| it.capacity = 0)), "has no size"),
        (
            "logical volume of another program",
            change(|it| it.special = Some("a logical volume or a mapping of another program")),
            "it is a logical volume",
        ),
        (
            "a second path without multipath",
            change(|it| it.other_paths = vec!["sdq".into()]),
            "sdq is another path",
        ),
        (
            "excluded",
            change(|it| it.links.push("/dev/disk/by-id/nvme-Boot_1".into())),
            "exclude matches",
        ),
        ("small", change(with_candidate(|it| it.capacity = GIB)), "smaller than minSize"),
        ("large", change(with_candidate(|it| it.capacity = 9000 * GIB)), "larger than maxSize"),
        (
            "rotates",
            change(with_candidate(|it| {
                it.rotational.insert(number("8:16"));
            })),
            "it rotates",
        ),
        ("another model", change(|it| it.model = Some("Slow".into())), "its model Slow"),
        ("no model", change(|it| it.model = None), "its model"),
        ("partition table only", change(holds("gpt at byte 512")), "gpt at byte 512"),
        (
            "an installed system",
            change(|it| it.partitions = vec!["nvme1n1p1".into()]),
            "partitions nvme1n1p1",
        ),
        (
            "a partition",
            change(|it| it.special = Some("a partition")),
            "name it without a wildcard",
        ),
        ("LVM", change(holds("LVM2_member at byte 536")), "LVM2_member"),
        ("RAID", change(holds("linux_raid_member at byte 4096")), "linux_raid_member"),
        ("ZFS", change(holds("zfs_member at byte 131072")), "zfs_member"),
        (
            "a disk that seeks",
            change(|it| it.contents = Ok(DiskContents::NotRead)),
            "it is being read",
        ),
        ("bcache", change(holds("bcache at byte 4120")), "bcache"),
        ("LUKS", change(holds("crypto_LUKS at byte 0")), "crypto_LUKS"),
        ("swap", change(holds("swap at byte 4086")), "swap at byte"),
        ("Ceph", change(holds("ceph_bluestore at byte 0")), "ceph_bluestore"),
        ("a filesystem", change(holds("xfs at byte 0")), "xfs at byte 0; if that is not needed"),
        (
            "data without a signature",
            change(|it| it.contents = Ok(DiskContents::Data)),
            "it is not zero",
        ),
        (
            "mounted",
            change(|it| {
                with_candidate(|it| it.in_use = Some("nvme1n1 is mounted on /".into()))(it);
                it.contents = Ok(DiskContents::NotRead);
            }),
            "in use: nvme1n1 is mounted",
        ),
        (
            "member of an active array",
            change(with_candidate(|it| it.in_use = Some("held by md0".into()))),
            "held by md0",
        ),
        (
            "leg of multipath",
            change(with_candidate(|it| it.in_use = Some("held by dm-0".into()))),
            "held by dm-0",
        ),
        (
            "loop over a file",
            change(|it| it.special = Some("a loop device")),
            "it is a loop device",
        ),
        ("USB stick", change(|it| it.special = Some("removable")), "it is removable"),
        ("write-protected", change(with_candidate(|it| it.read_only = true)), "read-only"),
        (
            "without a serial number",
            change(with_candidate(|it| {
                it.identity = Identity { weak: true, ..it.identity.clone() }
            })),
            "no serial number",
        ),
        ("mark of a tenant", marked(MarkState::Used), "it has a mark"),
        ("mark of a wipe", marked(MarkState::Wiping), "it has a mark"),
        (
            "volume whose link was removed",
            marked(MarkState::Free),
            "ln -s /dev/disk/by-id/nvme-Fast_1 /mnt/fast/nvme-Fast_1",
        ),
        (
            "mark of another cluster",
            change(with_candidate(|it| {
                let mut other = mark::mark(MarkState::Offered);
                other.cluster = "another".into();
                *it = mark::marked(it, MarkOnDisk::Valid(other));
            })),
            "it has a mark",
        ),
        (
            "another program formats it: just changed",
            change(|it| {
                it.contents = Ok(DiskContents::Data);
                it.is_settled = false;
            }),
            "it is not zero",
        ),
        (
            "does not answer",
            change(|it| it.contents = Err("Input/output error".into())),
            "Input/output error",
        ),
        (
            "cannot be opened",
            change(|it| it.candidate = Err("may not open block devices".into())),
            "may not open",
        ),
        ("just plugged in", change(|it| it.is_settled = false), "less than a minute"),
    ];
    assert!(cases.len() >= 25);
    for (what, change, expected) in cases {
        let world = world_with(rule(), vec![with(block_disk(1), change)]);
        assert_eq!(taken(&world), [""; 0], "{what}");
        let why = left_alone(&world);
        assert!(why.contains(expected), "{what}: {why}");
        // It does not keep others from being taken in.
        let both = with(world, |world| {
            let observation = world.snapshot.observed.get_mut("fast").unwrap();
            let disks = [&observation.disks[..], &[block_disk(2)]].concat();
            observation.disks = Arc::new(disks);
        });
        assert_eq!(taken(&both), ["/dev/disk/by-id/nvme-Fast_2"], "{what}");
    }
}
