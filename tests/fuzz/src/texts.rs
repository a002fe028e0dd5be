//! Texts of the kernel, of PVs and of operators.

use std::str::from_utf8;

use local_volume_provisioner::config::{NamePattern, duration};
use local_volume_provisioner::host::identity::{self, Identity, Match};
use local_volume_provisioner::host::mounts::MountTable;
use local_volume_provisioner::plan::consents_in;
use local_volume_provisioner::quantity;
use local_volume_provisioner::types::{HostPath, MountPath};
use local_volume_provisioner::view::CsiDriver;

/// `/proc/self/mountinfo`.
pub fn mountinfo(bytes: &[u8]) {
    let table = MountTable::parse(bytes);
    let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count();
    assert!(table.iter().count() <= lines);
    for mount in table.iter() {
        assert!(mount.point.is_absolute(), "{mount:?}");
        assert_eq!(table.get(mount.id), Some(mount));
    }
    // What follows a table does not change it.
    let text = [bytes, b"\nrubbish"].concat();
    let longer = MountTable::parse(&text);
    assert!(longer.iter().eq(table.iter()));
    assert!(longer.complete().is_err(), "a line that is not read makes the table incomplete");
}

/// Two identities, one recorded and one observed, of which anyone who may write PVs can have forged the first.
pub fn identity(bytes: &[u8]) {
    let Ok(text) = from_utf8(bytes) else { return };
    let (recorded, observed) = text.split_once('\n').unwrap_or((text, text));
    let observed = |weak| Identity { text: observed.to_owned(), weak };
    let weak = observed(true);
    let result = identity::compare(recorded, &weak);
    let back = identity::compare(&weak.text, &Identity { text: recorded.to_owned(), weak: true });
    if recorded == weak.text {
        assert_ne!(result, Match::Different);
    }
    if identity::only_rebooted(recorded, &weak) {
        assert_ne!(result, Match::Same, "{recorded:?} is not the same before the next boot");
    }
    // A partition's UUID, and a UUID instead of a path, are known later at most.
    let is_contrary = matches!((result, back), (Match::Same, Match::Different))
        || matches!((result, back), (Match::Different, Match::Same));
    assert!(!is_contrary, "{text:?}");
    let _ = identity::without_boot(&weak);
}

/// What an operator types as one word.
pub fn words(bytes: &[u8]) {
    let Ok(text) = from_utf8(bytes) else { return };
    if let Some(number) = quantity::parse(text) {
        let shown = quantity::format(number);
        assert_eq!(quantity::parse(&shown), Some(number), "{text:?} is shown as {shown:?}");
    }
    if let Ok(length) = duration::parse(text) {
        assert_eq!(duration::parse_positive(text).is_ok(), !length.is_zero(), "{text:?}");
    }
    let pattern: Result<NamePattern, _> = text.parse();
    if let Ok(pattern) = pattern {
        let _ = pattern.matches("nvme0n1p1");
        let _ = pattern.matches(text);
    }
    if let Ok(path) = HostPath::from_api(text) {
        let path = path.as_str();
        assert!(path.starts_with('/') && !path.contains("/../") && !path.ends_with("/.."));
    }
    if let Ok(path) = text.parse::<MountPath>() {
        assert!(path.as_path().is_absolute());
    }
    let _ = CsiDriver::parse(text);
    for consent in consents_in(text) {
        assert!(text.contains(consent) && consent.contains(':'));
    }
}
