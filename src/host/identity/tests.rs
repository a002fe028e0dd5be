use proptest::prelude::*;

use super::*;

fn seen(text: &str) -> Identity {
    Identity { text: text.to_owned(), weak: false }
}

#[test]
fn identities_are_same_different_or_unknown() {
    use Match::{Different, Same, Unknown};
    for (recorded, observed, expected) in [
        // Filesystems.
        ("v1:fs=ext4,root=/,uuid=a", "v1:fs=ext4,root=/,uuid=a", Same),
        ("v1:fs=ext4,root=/,uuid=a", "v1:fs=ext4,root=/,uuid=b", Different),
        ("v1:fs=ext4,root=/,uuid=a", "v1:fs=ext4,root=/x,uuid=a", Different),
        ("v1:fs=ext4,on=wwid%3D1,root=/,uuid=a", "v1:fs=ext4,on=wwid%3D2,root=/,uuid=a", Different),
        ("v1:fs=ext4,root=/,uuid=a", "v1:fs=ext4,on=wwid%3D2,root=/,uuid=a", Unknown),
        ("v1:fs=ext4,on=wwid%3D2,root=/,uuid=a", "v1:fs=ext4,root=/,uuid=a", Unknown),
        ("v1:fs=tmpfs,path=/a,root=/", "v1:fs=tmpfs,path=/a,root=/", Same),
        ("v1:fs=tmpfs,path=/a,root=/", "v1:fs=tmpfs,path=/b,root=/", Different),
        ("v1:fs=ext4,path=/a,root=/", "v1:fs=ext4,root=/,uuid=a", Different),
        // Filesystems without a UUID: the disk below decides.
        ("v1:fs=ext4,on=wwid%3D1,path=/a,root=/", "v1:fs=ext4,on=wwid%3D1,path=/a,root=/", Same),
        (
            "v1:fs=ext4,on=wwid%3D1,path=/a,root=/",
            "v1:fs=ext4,on=wwid%3D2,path=/a,root=/",
            Different,
        ),
        (
            "v1:fs=ext4,on=wwid%3D1,path=/a,root=/",
            "v1:fs=ext4,on=wwid%3D1,path=/b,root=/",
            Different,
        ),
        ("v1:fs=ext4,path=/a,root=/", "v1:fs=ext4,on=wwid%3D1,path=/a,root=/", Unknown),
        // A newer kernel reports the UUID, an older one does not.
        ("v1:fs=ext4,on=wwid%3D1,path=/a,root=/", "v1:fs=ext4,on=wwid%3D1,root=/,uuid=a", Same),
        (
            "v1:fs=ext4,on=wwid%3D1,path=/a,root=/",
            "v1:fs=ext4,on=wwid%3D2,root=/,uuid=a",
            Different,
        ),
        ("v1:fs=ext4,on=wwid%3D1,path=/a,root=/", "v1:fs=xfs,on=wwid%3D1,root=/,uuid=a", Different),
        (
            "v1:fs=ext4,on=wwid%3D1,path=/a,root=/x",
            "v1:fs=ext4,on=wwid%3D1,root=/,uuid=a",
            Different,
        ),
        ("v1:fs=ext4,on=wwid%3D1,root=/,uuid=a", "v1:fs=ext4,on=wwid%3D1,path=/a,root=/", Unknown),
        // Nor does the disk below have a name.
        (
            "v1:boot=x,fs=ext4,path=/a,root=/,seq=3,size=5",
            "v1:boot=x,fs=ext4,path=/a,root=/,seq=4,size=5",
            Different,
        ),
        (
            "v1:boot=x,fs=ext4,path=/a,root=/,seq=3,size=5",
            "v1:boot=y,fs=ext4,path=/a,root=/,seq=4,size=5",
            Unknown,
        ),
        (
            "v1:boot=x,fs=ext4,path=/a,root=/,seq=3,size=5",
            "v1:boot=y,fs=ext4,path=/a,root=/,seq=3,size=6",
            Different,
        ),
        ("v1:boot=x,fs=ext4,path=/a,root=/,seq=3,size=5", "v1:fs=ext4,root=/,uuid=a", Unknown),
        ("v1:boot=x,fs=ext4,path=/a,root=/,seq=3,size=5", "v1:fs=xfs,root=/,uuid=a", Different),
        // Devices.
        ("v1:wwid=1", "v1:wwid=1", Same),
        ("v1:wwid=1", "v1:wwid=2", Different),
        ("v1:wwid=1", "v1:wwid=1%2C", Different),
        ("v1:wwid=1", "v1:start=2048,wwid=1", Unknown),
        ("v1:wwid=1", "v1:loop=/a:5", Different),
        ("v1:wwid=1", "v1:boot=x,size=5", Different),
        ("v1:boot=x,size=5", "v1:wwid=1", Different),
        ("v1:loop=/a:5", "v1:loop=/a:6", Different),
        // A partition's UUID may be seen or not.
        ("v1:start=8,wwid=1", "v1:partuuid=p,start=8,wwid=1", Same),
        ("v1:partuuid=p,start=8,wwid=1", "v1:start=8,wwid=1", Same),
        ("v1:partuuid=p,start=8,wwid=1", "v1:partuuid=q,start=8,wwid=1", Different),
        ("v1:start=9,wwid=1", "v1:partuuid=p,start=8,wwid=1", Different),
        ("v1:partuuid=p", "v1:partuuid=p,start=8,wwid=1", Unknown),
        // Weak devices.
        ("v1:boot=x,link=/dev/a,size=5", "v1:boot=x,link=/dev/a,size=5", Same),
        ("v1:boot=x,link=/dev/a,size=5", "v1:boot=y,link=/dev/a,size=5", Unknown),
        ("v1:boot=x,link=/dev/a,size=5", "v1:boot=y,link=/dev/a,size=6", Different),
        ("v1:boot=x,link=/dev/a,size=5", "v1:boot=x,link=/dev/b,size=5", Different),
        ("v1:boot=x,link=/dev/a,size=5", "v1:boot=y,size=5", Different),
        ("v1:boot=x,seq=3,size=5", "v1:boot=x,seq=3,size=5", Same),
        ("v1:boot=x,seq=3,size=5", "v1:boot=x,seq=4,size=5", Different),
        ("v1:boot=x,seq=3,size=5", "v1:boot=y,seq=4,size=5", Unknown),
        ("v1:boot=x,seq=3,size=5", "v1:boot=y,seq=3,size=5", Unknown),
        ("v1:boot=x,seq=3,size=5", "v1:boot=y,seq=4,size=6", Different),
        // An older kernel does not number its disks.
        ("v1:boot=x,size=5", "v1:boot=y,seq=4,size=5", Unknown),
        ("v1:boot=x,seq=4,size=5", "v1:boot=y,size=5", Unknown),
        ("v1:boot=x,size=5", "v1:boot=x,seq=4,size=5", Unknown),
        // Not ours, or not yet.
        ("", "v1:wwid=1", Unknown),
        ("wwid=1", "v1:wwid=1", Unknown),
        ("v2:wwid=1", "v1:wwid=1", Unknown),
        ("v1:", "v1:wwid=1", Unknown),
        ("v1:wwid", "v1:wwid=1", Unknown),
        ("v1:wwid=%4", "v1:wwid=1", Unknown),
        ("v1:wwid=%zz", "v1:wwid=1", Unknown),
        ("v1:wwid=%31", "v1:wwid=1", Unknown),
        ("v1:wwid=1,start=8", "v1:start=8,wwid=1", Unknown),
        ("v1:wwid=1,wwid=1", "v1:wwid=1", Unknown),
        ("v1:wwid=1 ", "v1:wwid=1", Different),
        ("nonsense", "nonsense", Unknown),
    ] {
        assert_eq!(compare(recorded, &seen(observed)), expected, "{recorded} | {observed}");
    }
}

#[test]
fn accepting_a_weak_identity_accepts_a_reboot_and_nothing_else() {
    for (recorded, observed, expected) in [
        ("v1:boot=x,link=/dev/a,size=5", "v1:boot=y,link=/dev/a,size=5", true),
        ("v1:boot=x,link=/dev/a,size=5", "v1:boot=y,link=/dev/a,size=6", false),
        ("v1:boot=x,size=5", "v1:boot=y,link=/dev/a,size=5", false),
        ("v1:boot=x,seq=3,size=5", "v1:boot=y,seq=4,size=5", true),
        ("v1:boot=x,size=5", "v1:boot=y,seq=4,size=5", true),
        ("v1:boot=x,seq=3,size=5", "v1:boot=y,seq=4,size=6", false),
        // Exchanged within one boot, or not known to have been.
        ("v1:boot=x,seq=3,size=5", "v1:boot=x,seq=4,size=5", false),
        ("v1:boot=x,size=5", "v1:boot=x,seq=4,size=5", false),
        ("v1:boot=x,fs=ext4,path=/a,root=/,seq=3", "v1:boot=y,fs=ext4,path=/a,root=/,seq=4", true),
        ("v1:boot=x,fs=ext4,path=/a,root=/,seq=3", "v1:boot=y,fs=xfs,path=/a,root=/,seq=4", false),
        ("v1:wwid=1", "v1:boot=y,size=5", false),
        ("v1:fs=ext4,root=/,uuid=a", "v1:fs=ext4,on=wwid%3D2,root=/,uuid=a", false),
        ("garbage", "v1:boot=y,size=5", false),
    ] {
        assert_eq!(only_rebooted(recorded, &seen(observed)), expected, "{recorded} | {observed}");
    }
}

#[test]
fn device_identity_uses_the_most_specific_field() {
    let text = |value: &str| Some(value.to_owned());
    for (device, expected) in [
        (
            DeviceFacts { wwid: text("naa.5"), dm_uuid: text("x"), ..DeviceFacts::default() },
            "wwid=naa.5",
        ),
        (DeviceFacts { dm_uuid: text("LVM-a"), ..DeviceFacts::default() }, "dm=LVM-a"),
        (DeviceFacts { md_uuid: text("3aaa"), ..DeviceFacts::default() }, "md=3aaa"),
        (
            DeviceFacts {
                partition_uuid: text("p"),
                partition_start: Some(8),
                ..DeviceFacts::default()
            },
            "partuuid=p",
        ),
        (
            DeviceFacts {
                wwid: text("w"),
                partition_uuid: text("p"),
                partition_start: Some(8),
                ..DeviceFacts::default()
            },
            "partuuid=p,start=8,wwid=w",
        ),
        (
            DeviceFacts { loop_backing: Some("/a,b".into()), ..DeviceFacts::default() },
            "loop=/a%2Cb:7",
        ),
        (
            DeviceFacts {
                loop_backing: Some("/a".into()),
                loop_offset: 512,
                partition_start: Some(1),
                ..DeviceFacts::default()
            },
            "loop=/a:7,offset=512,start=1",
        ),
        (DeviceFacts { partition_start: Some(8), ..DeviceFacts::default() }, ""),
        (DeviceFacts::default(), ""),
    ] {
        let inode = device.loop_backing.as_ref().map(|_| 7);
        assert_eq!(device_fields(&device, inode).to_string(), expected);
    }
}

proptest! {
    #[test]
    fn any_value_survives(fields in proptest::collection::btree_map("[a-z]{1,5}", proptest::collection::vec(any::<u8>(), 0..20), 1..5)) {
        let values = fields;
        let mut fields = Fields::default();
        for (key, value) in &values {
            fields.set(key, Some(OsStr::from_bytes(value)));
            let read: Vec<u8> = percent_decode_str(&fields.0[key]).collect();
            prop_assert_eq!(&read, value);
        }
        let text = fields.versioned();
        prop_assert!(text.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{}", text);
        prop_assert_eq!(Fields::parse(&text), Some(fields));
        prop_assert_eq!(compare(&text, &seen(&text)), Match::Same);
    }

    #[test]
    fn no_recorded_text_panics(recorded in ".*") {
        let _ = compare(&recorded, &seen("v1:wwid=1"));
    }

    #[test]
    fn only_equal_values_are_the_same(a in "[ -~]{0,12}", b in "[ -~]{0,12}") {
        let of = |value: &str| {
            let mut fields = Fields::default();
            fields.set("wwid", Some(value));
            fields.versioned()
        };
        prop_assert_eq!(compare(&of(&a), &seen(&of(&b))) == Match::Same, a == b);
    }
}
