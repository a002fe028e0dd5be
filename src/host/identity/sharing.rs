//! Whether two volumes may share storage, by the recorded identity of one of them.

use std::path::Path;

use percent_encoding::percent_decode_str;

use super::{Fields, Identity, VERSION};

/// Whether a recorded volume that cannot be read may share storage with an observed one: a disk with its partition,
/// a device with the filesystem on it, a directory of a filesystem with one inside it. Weak identities never match.
pub fn may_share(recorded: &str, observed: &Identity) -> bool {
    let (Some(then), Some(now)) = (Fields::parse(recorded), Fields::parse(&observed.text)) else {
        return false;
    };
    if then.has("fs") && now.has("fs") {
        let nested = then
            .both(&now, "root")
            .is_some_and(|(a, b)| Path::new(a).starts_with(b) || Path::new(b).starts_with(a));
        // The same UUID on another disk is a clone, which shares no storage.
        let is_same_fs = then.both(&now, "uuid").is_some_and(|(a, b)| a == b);
        return nested && is_same_fs && then.both(&now, "on").is_none_or(|(a, b)| a == b);
    }
    let (then, now) = (then.disk(), now.disk());
    let is_same_disk = ["wwid", "dm", "md", "loop"].into_iter().any(|key| {
        // The identity of a loop device appends the file's inode to its path.
        let is_file = |a: &str, b: &str| key == "loop" && (a.starts_with(b) || b.starts_with(a));
        let values = then.both(&now, key);
        values.is_some_and(|(a, b)| a == b || is_file(a, b))
    });
    is_same_disk
        && then.0.get("offset") == now.0.get("offset")
        && then.both(&now, "start").is_none_or(|(a, b)| a == b)
}

impl Fields {
    fn both<'a>(&'a self, other: &'a Self, key: &str) -> Option<(&'a str, &'a str)> {
        Some((self.0.get(key)?, other.0.get(key)?))
    }

    /// The device, of a device or below a filesystem; without fields if that is not known.
    fn disk(&self) -> Self {
        if !self.has("fs") {
            return self.clone();
        }
        let on = self.0.get("on").map_or("", String::as_str);
        let on = percent_decode_str(on).decode_utf8_lossy();
        Self::parse(&format!("{VERSION}{on}")).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use percent_encoding::percent_encode;

    use super::super::RESERVED;
    use super::*;

    #[test]
    #[allow(clippy::too_many_lines, reason = "a table")]
    fn recorded_identity_shares_storage_with_observed_volumes() {
        let on = |disk: &str| format!("on={}", percent_encode(disk.as_bytes(), RESERVED));
        let fs =
            |on: &str, root: &str, uuid: &str| format!("v1:fs=ext4,{on},root={root},uuid={uuid}");
        let (part, whole) = (on("start=2048,wwid=d"), on("wwid=d"));
        for (situation, a, b, shares) in [
            (
                "a disk and its partition",
                "v1:wwid=d".into(),
                "v1:partuuid=p,start=2048,wwid=d".into(),
                true,
            ),
            (
                "a disk and a filesystem on its partition",
                "v1:wwid=d".into(),
                fs(&part, "/", "u"),
                true,
            ),
            (
                "a partition and its filesystem",
                "v1:start=2048,wwid=d".into(),
                fs(&part, "/", "u"),
                true,
            ),
            ("a disk and the filesystem on it", "v1:wwid=d".into(), fs(&whole, "/", "u"), true),
            (
                "a loop device and its filesystem",
                "v1:loop=/a.img:12".into(),
                fs(&on("loop=/a.img"), "/", "u"),
                true,
            ),
            ("a directory and one inside it", fs(&part, "/a", "u"), fs(&part, "/a/b", "u"), true),
            (
                "a logical volume and its filesystem",
                "v1:dm=LVM-1".into(),
                fs(&on("dm=LVM-1"), "/", "u"),
                true,
            ),
            ("another disk", "v1:wwid=d".into(), "v1:wwid=e".into(), false),
            (
                "another partition",
                "v1:start=2048,wwid=d".into(),
                "v1:start=4096,wwid=d".into(),
                false,
            ),
            (
                "a filesystem on another partition",
                "v1:start=4096,wwid=d".into(),
                fs(&part, "/", "u"),
                false,
            ),
            ("sister directories", fs(&part, "/a", "u"), fs(&part, "/b", "u"), false),
            ("names that begin alike", fs(&part, "/a", "u"), fs(&part, "/ab", "u"), false),
            ("a clone of a filesystem", fs(&part, "/", "u"), fs(&on("wwid=e"), "/", "u"), false),
            ("another filesystem", fs(&part, "/", "u"), fs(&part, "/", "w"), false),
            ("another file", "v1:loop=/a.img:12".into(), "v1:loop=/b.img:12".into(), false),
            (
                "another part of the file",
                "v1:loop=/a.img:12".into(),
                "v1:loop=/a.img:12,offset=4096".into(),
                false,
            ),
            ("nothing to go by", "v1:boot=b,size=1".into(), "v1:boot=b,size=1".into(), false),
            ("no identity of ours", "wwid=d".into(), "v1:wwid=d".into(), false),
        ] {
            let of = |text: &String| Identity { text: text.clone(), weak: false };
            assert_eq!(may_share(&a, &of(&b)), shares, "{situation}: {a} {b}");
            if a.starts_with(VERSION) {
                assert_eq!(
                    may_share(&b, &of(&a)),
                    shares,
                    "the other way round, {situation}: {a} {b}"
                );
            }
        }
    }
}
