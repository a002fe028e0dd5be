use super::*;

const NAA: &str = "naa.5000c500a1b2c3d4";
const EUI: &str = "eui.0025385b71b0c1d2";

fn number(minor: u32) -> DeviceNumber {
    DeviceNumber { major: 8, minor }
}

fn disk(minor: u32, wwid: &str) -> DeviceFacts {
    DeviceFacts {
        number: number(minor),
        disk: number(minor),
        below: [number(minor)].into(),
        wwid: Some(wwid.to_owned()),
        ..DeviceFacts::default()
    }
}

/// A partition of a disk.
fn partition(disk: &DeviceFacts) -> DeviceFacts {
    let minor = disk.number.minor + 1;
    DeviceFacts {
        number: number(minor),
        below: disk.below.iter().copied().chain([number(minor)]).collect(),
        partition_start: Some(2048),
        ..disk.clone()
    }
}

/// A device that is built from others.
fn upper(below: &[DeviceFacts], dm_uuid: Option<&str>, md_uuid: Option<&str>) -> DeviceFacts {
    let all = below.iter().flat_map(|it| it.below.iter().copied());
    DeviceFacts {
        number: number(100),
        disk: number(100),
        below: all.chain([number(100)]).collect(),
        dm_uuid: dm_uuid.map(str::to_owned),
        md_uuid: md_uuid.map(str::to_owned),
        ..DeviceFacts::default()
    }
}

/// The hashes are from `sha256sum`.
#[test]
fn unique_identity_is_the_wwids_of_all_disks_below() {
    const DISK: Option<&str> = Some("ceadcd3c0bee837bd979344dccbb88a0");
    const PARTITION: Option<&str> = Some("33ca354994d10b7ccdc52f6b7434dbb0");
    const LVM: Option<&str> = Some("1adbc4d09a3ef10fccf0f8ceb48b609e");
    const MD_PARTITION: Option<&str> = Some("f97bc57e65edeb3abd681dac51d09163");
    let (naa, eui, cloud) = (disk(0, NAA), disk(16, EUI), disk(32, "nvme.1d0f-766f6c"));
    let path = disk(48, NAA);
    let part = partition(&naa);
    let both = [naa.clone(), eui.clone()];
    let one = [eui.clone(), cloud.clone()];
    let lvm = |below: &[DeviceFacts]| upper(below, Some("LVM-abc"), None);
    let multipath = upper(&[naa.clone(), path.clone()], Some("mpath-3500"), None);
    let md = upper(&both, None, Some("3aaa"));
    let by_fc = DeviceFacts { shared_transport: true, ..naa.clone() };
    for (situation, device, below, hash, is_shared) in [
        ("a disk", &naa, vec![&naa], DISK, false),
        ("a disk by FC", &by_fc, vec![&by_fc], DISK, true),
        ("a partition", &part, vec![&naa, &part], PARTITION, false),
        ("multipath", &multipath, vec![&naa, &path], DISK, true),
        ("LVM", &lvm(&both), vec![&naa, &eui], LVM, false),
        ("LVM, in another order", &lvm(&both), vec![&eui, &naa], LVM, false),
        (
            "LVM on a partition",
            &lvm(&[part.clone(), eui.clone()]),
            vec![&naa, &part, &eui],
            LVM,
            false,
        ),
        ("a partition of an md array", &partition(&md), vec![&naa, &eui, &md], MD_PARTITION, false),
        ("one disk below is not unique", &lvm(&one), vec![&eui, &cloud], None, false),
        ("a cloud's disk", &cloud, vec![&cloud], None, false),
        ("no disks below", &lvm(&[]), vec![], None, false),
        ("no name of its own", &upper(&both, None, None), vec![&naa, &eui], None, false),
    ] {
        let mut below: Vec<_> = below.into_iter().cloned().map(Arc::new).collect();
        below.push(Arc::new(device.clone()));
        let unique = Unique::of_stack(device, &below);
        let text = unique.as_ref().map(|unique| unique.fields.versioned());
        assert_eq!(text.map(|text| super::hash(&text)).as_deref(), hash, "{situation}");
        let is_really_shared = unique.is_some_and(|unique| unique.is_shared);
        assert_eq!(is_really_shared, is_shared, "{situation}");
    }
}

#[test]
fn only_registered_numbers_are_unique_in_the_world() {
    for (wwid, expected) in [
        (NAA, true),
        (EUI, true),
        ("naa.600140500000000000000000000000ab", true),
        ("eui.00000000000000018ce38ee209f04c01", true),
        ("uuid.7c5f0b1e-7d2a-4f0e-9d0a-0123456789ab", true),
        ("naa.3333333000001388", false),
        ("naa.6001405000000000", false),
        ("naa.5000", false),
        ("naa.5000c500a1b2c3dx", false),
        ("eui.0000000000000000", false),
        ("eui.ffffffffffffffff", false),
        ("uuid.00000000-0000-0000-0000-000000000000", false),
        ("nvme.1d0f-766f6c3031-416d617a6f6e-00000001", false),
        ("t10.ATA_QEMU_HARDDISK_QM00001", false),
        ("serial.QEMU_HARDDISK.1234567890abcdef", false),
        ("", false),
    ] {
        assert_eq!(is_world_unique(wwid), expected, "{wwid:?}");
    }
}

#[test]
fn value_of_more_than_two_nodes_needs_a_shared_transport() {
    for (is_unique, is_shared, other_nodes, expected) in [
        (true, false, 1, true),
        (true, false, 2, false),
        (true, true, 2, true),
        (false, true, 1, false),
    ] {
        let identity = GlobalIdentity { hash: String::new(), is_unique, is_shared };
        let is_same = identity.is_same_storage(other_nodes);
        assert_eq!(is_same, expected, "{identity:?}, {other_nodes}");
    }
}

#[test]
fn weak_identity_has_no_hash_and_any_other_has_that_of_its_text() {
    let identity = |weak| Identity { text: "v1:identity".into(), weak };
    assert_eq!(GlobalIdentity::new(&identity(true), None), None);
    let other = GlobalIdentity::new(&identity(false), None).unwrap();
    assert_eq!(other.hash, "fd51d211d4a4799d4262f49dc83d90ad");
    assert!(!other.is_unique && !other.is_shared);
}
