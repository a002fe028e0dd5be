//! The names that other programs see: annotations, labels, the finalizer, and the names of PVs, Jobs and links.

/// Label (of Kubernetes) whose value on the Node is the node's hostname value; also on every PV.
pub const LABEL_HOSTNAME: &str = "kubernetes.io/hostname";
/// Annotation (of Kubernetes) with the provisioner that created a PV, and therefore cleans it.
pub const ANNOTATION_PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// Annotation (of Kubernetes) on a PV whose claimRef was written by a controller.
pub const ANNOTATION_BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// Annotation (of Kubernetes) on a claim whose binding is complete.
pub const ANNOTATION_BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";

/// The volume's recorded identity, see [`crate::host::identity`].
pub const ANNOTATION_IDENTITY: &str = "local-volume-provisioner/identity";
/// Label with the hash of the volume's identity, see [`crate::host::identity::GlobalIdentity`].
pub const LABEL_IDENTITY_HASH: &str = "local-volume-provisioner/identity-hash";
/// `"true"` once a PV was seen bound, or [`UNVERIFIED`]; never removed.
pub const ANNOTATION_USED: &str = "local-volume-provisioner/used";
/// Its disk has not been there since, with a mark that agrees.
pub const UNVERIFIED: &str = "unverified";
/// An administrator's consent to clean or forget a volume whose identity does not match.
pub const ANNOTATION_CONSENT: &str = "local-volume-provisioner/consent";
/// `"true"` on a PV or on the Node: nothing new is cleaned.
pub const ANNOTATION_PAUSED: &str = "local-volume-provisioner/paused";
/// On a PV that `retire` withholds from claims: its former reclaim policy.
pub const ANNOTATION_RETIRED: &str = "local-volume-provisioner/retired";
/// Before the name of a PV, on the Node for which it is created again: its manifest.
pub const REBIND_PREFIX: &str = "rebind.local-volume-provisioner/";
/// The installation that manages a PV: `<namespace>/<DaemonSet>`.
pub const ANNOTATION_INSTALLATION: &str = "local-volume-provisioner/installation";
/// Of a PV whose disk was moved here: `<UID>:<token>` of the PV that its mark still names.
pub const ANNOTATION_MOVED_FROM: &str = "local-volume-provisioner/moved-from";
/// The token of the offer that created a PV. The mark on the disk has the same.
pub const ANNOTATION_OFFER: &str = "local-volume-provisioner/offer";
/// The ID of the state directory that has the mark of the PV's volume.
pub const ANNOTATION_STATE_DIRECTORY: &str = "local-volume-provisioner/state-directory";
/// The entry of a PV whose path is a link, see [`crate::view::PvLink`].
pub const ANNOTATION_PATH: &str = "local-volume-provisioner/path";
/// Before 32 hexadecimal digits: the label of the Node that has a disk. Kubelets may not set labels with this suffix.
pub const DISK_LABEL_PREFIX: &str = "disk.local-volume-provisioner.node-restriction.kubernetes.io/";
/// Before any name, on the Node: an operator's decisions about volumes without a PV, separated by commas.
pub const CONSENT_PREFIX: &str = "consent.local-volume-provisioner/";
/// Before the name of a class, on the Node: the hash of the disks that an operator approves.
pub const APPROVE_PREFIX: &str = "approve.local-volume-provisioner/";
/// On the Node, while `adopt` compares the marks of all nodes: [`SALT_PREFIX`] and the salt of the claims' hashes.
pub const ANNOTATION_SALT: &str = "consent.local-volume-provisioner/claim-hashes";
/// Before the name and the secret of a salt, which is no consent.
pub const SALT_PREFIX: &str = "salt:";
/// On a cleaning Job: the UID of the claim whose data it deletes; empty where the PV named none.
pub const ANNOTATION_CLAIM_UID: &str = "local-volume-provisioner/claim-uid";
/// On a cleaning Job: the cleaner that the class had when the Job was created.
pub const ANNOTATION_JOB_CLEANER: &str = "local-volume-provisioner/cleaner";
/// On a cleaning Job: a hash of its template, to detect that the template has changed since.
pub const ANNOTATION_JOB_TEMPLATE: &str = "local-volume-provisioner/template";

/// Label of a cleaning Job: its PV's name, truncated to the length of a label.
pub const LABEL_JOB_PV: &str = "pv";
/// Label of a cleaning Job: its PV's UID.
pub const LABEL_JOB_PV_UID: &str = "pvuuid";
/// Annotation of a cleaning Job: the device's path in its container, which is also ours.
pub const ANNOTATION_JOB_DEVICE: &str = "device";
/// Annotation of a cleaning Job: its creation time, in RFC 3339 with nanoseconds.
pub const ANNOTATION_JOB_START: &str = "start-time";

/// In the container of a cleaning Job: the variable with the path of the device.
pub const ENV_DEVICE: &str = "LOCAL_PV_BLKDEVICE";
/// In the container of a cleaning Job: the variable with the PV's name.
pub const ENV_PV: &str = "LOCAL_PV_NAME";
/// In the container of a cleaning Job: the variable with the expected identity of the device.
pub const ENV_IDENTITY: &str = "LOCAL_PV_IDENTITY";
/// In the container of a cleaning Job: the variable with the expected size of the device in bytes.
pub const ENV_SIZE: &str = "LOCAL_PV_SIZE";
/// In the container of a cleaning Job: the variable with the PV's UID, which the mark of the device has.
pub const ENV_PV_UID: &str = "LOCAL_PV_UID";
/// In the container of a cleaning Job: the variable with the device's class, by which its mark is found.
pub const ENV_CLASS: &str = "LOCAL_PV_CLASS";
/// The variable with the directory of the marks, which is at the same path on the host and in each container.
pub const ENV_STATE: &str = "STATE_DIRECTORY";

/// Taint (of Kubernetes) by which an operator says that a Node is off.
pub const TAINT_OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Keeps a released PV in the API until its volume is clean.
pub const FINALIZER: &str = "local-volume-provisioner/cleanup";

/// The links to the volumes of classes with `binding: disk`, at the same path on the host and in the container. It is
/// empty after a boot.
pub const LINK_DIR: &str = "/run/local-volume-provisioner";

/// The lengths of the groups of a UID after a hyphen.
const UID_GROUPS: [usize; 6] = [0, 8, 4, 4, 4, 12];

/// First part of every provisioner's name, and the reporting component of our events.
pub const PROVISIONER_PREFIX: &str = "local-volume-provisioner";

/// What a provisioner on this node writes into [`ANNOTATION_PROVISIONED_BY`].
///
/// The UID changes when the node is deleted and registered again. With `useNodeNameOnly` it is left out.
pub fn provisioner_name(node_name: &str, node_uid: &str, node_name_only: bool) -> String {
    if node_name_only {
        format!("{PROVISIONER_PREFIX}-{node_name}")
    } else {
        format!("{PROVISIONER_PREFIX}-{node_name}-{node_uid}")
    }
}

/// The names that the Node of a provisioner may have, by [`provisioner_name`]: without what seems to be a UID, and with it.
pub fn nodes_of_provisioner(by: &str) -> Vec<&str> {
    let name = by.strip_prefix(PROVISIONER_PREFIX);
    let Some(name) = name.and_then(|rest| rest.strip_prefix('-')) else {
        return Vec::new();
    };
    let uid_at = name.len().checked_sub(UID_GROUPS.iter().sum::<usize>() + 5);
    let parts = uid_at.and_then(|at| name.split_at_checked(at));
    let parts = parts.filter(|(_, uid)| uid.split('-').map(str::len).eq(UID_GROUPS));
    parts.map(|it| it.0).into_iter().chain([name]).collect()
}

/// The PV name, as in the Go provisioner: 32-bit FNV-1a of entry, node and class, without a separator.
/// Two volumes can collide: see [`pv_name_on_collision`].
pub fn pv_name(entry: &str, node_name: &str, class: &str) -> String {
    let bytes = entry.bytes().chain(node_name.bytes()).chain(class.bytes());
    format!("local-pv-{:x}", fnv1a_32(bytes))
}

/// The name to use when the PV of another volume has [`pv_name`]: 64 bits, NUL-separated.
pub fn pv_name_on_collision(entry: &str, node_name: &str, class: &str) -> String {
    let key = [entry, node_name, class].join("\0");
    format!("local-pv-{:016x}", fnv1a_64(key.bytes()))
}

/// The name to use when both are taken, possibly by another node to keep this one from offering a volume. It ends with the
/// token of the offer, which is not known before.
pub fn pv_name_of_offer(token: &str) -> String {
    format!("local-pv-{token}")
}

/// All names that the PV of an entry may have.
pub fn pv_names(entry: &str, node_name: &str, class: &str, token: Option<&str>) -> Vec<String> {
    let names = [pv_name, pv_name_on_collision].map(|name| name(entry, node_name, class));
    names.into_iter().chain(token.map(pv_name_of_offer)).collect()
}

/// The first part of every cleaning Job's name.
const JOB_PREFIX: &str = "cleanup-";
/// The API's limit for the names of Jobs and for the values of labels, in bytes.
const LABEL_LIMIT: usize = 63;

/// The name of the Job that cleans a PV's device: `cleanup-<pv>`, as in the Go provisioner, or
/// `cleanup-<hash>` where that is too long.
pub fn job_name(pv: &str) -> String {
    let name = format!("{JOB_PREFIX}{pv}");
    if name.len() <= LABEL_LIMIT {
        return name;
    }
    format!("{JOB_PREFIX}{:016x}", fnv1a_64(pv.bytes()))
}

/// A PV's name, truncated to a valid label value.
pub fn pv_label(pv: &str) -> String {
    let cut = pv.get(..LABEL_LIMIT).unwrap_or(pv);
    cut.trim_end_matches(['-', '.']).to_owned()
}

/// The length of the name of a link.
pub const LINK_LENGTH: usize = 32;

/// Whether a link may have this name: the token of an offer, in hexadecimal digits in lower case.
pub fn is_link(token: &str) -> bool {
    let is_digit = |it: u8| matches!(it, b'0'..=b'9' | b'a'..=b'f');
    token.len() == LINK_LENGTH && token.bytes().all(is_digit)
}

/// The name of the discovery directory's volume in a cleaning Job's pod.
pub fn job_volume_name(host_dir: &str, mount_dir: &str) -> String {
    let hash = fnv1a_32(host_dir.bytes().chain(mount_dir.bytes()));
    format!("mount-{hash:x}")
}

/// 32-bit FNV-1a.
pub fn fnv1a_32(bytes: impl IntoIterator<Item = u8>) -> u32 {
    bytes
        .into_iter()
        .fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// 64-bit FNV-1a.
pub fn fnv1a_64(bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fnv1a_matches_published_vectors() {
        for (text, h32, h64) in [
            ("", 0x811c_9dc5_u32, 0xcbf2_9ce4_8422_2325_u64),
            ("a", 0xe40c_292c, 0xaf63_dc4c_8601_ec8c),
            ("foobar", 0xbf9c_f968, 0x8594_4171_f739_67e8),
        ] {
            assert_eq!(fnv1a_32(text.bytes()), h32, "{text}");
            assert_eq!(fnv1a_64(text.bytes()), h64, "{text}");
        }
    }

    #[test]
    fn a_provisioner_names_its_node() {
        let uid = "0d9f3f5c-63a5-4d5e-9c55-0f8f4d1c2b3a";
        for (node, of_node) in [("n1", vec!["n1"]), (uid, vec![uid])] {
            let by = provisioner_name(node, "", true);
            assert_eq!(nodes_of_provisioner(&by), of_node);
            let by = provisioner_name(node, uid, false);
            assert_eq!(nodes_of_provisioner(&by), [node, &format!("{node}-{uid}")]);
        }
        assert_eq!(nodes_of_provisioner("local-volume-provisioner"), [""; 0]);
        assert_eq!(nodes_of_provisioner("another-n1"), [""; 0]);
    }

    #[test]
    fn the_32_bit_name_has_no_padding_and_the_64_bit_one_has() {
        assert_eq!(pv_name("", "", ""), "local-pv-811c9dc5");
        assert_eq!(pv_name_on_collision("a", "b", "c").len(), "local-pv-".len() + 16);
    }

    /// Computed by another program. The second hash has a leading zero, which the Go provisioner omits.
    #[test]
    fn pv_names_match_fixed_vectors() {
        for (entry, node, class, first, second) in [
            ("vol-1", "node-1", "fast-1", "local-pv-100dc4c2", "local-pv-686547e8eb344486"),
            ("vol-11", "node-1", "fast-1", "local-pv-831107d", "local-pv-9f321e4c3f080651"),
            (
                "disk0",
                "worker-3",
                "local-storage",
                "local-pv-5e682bfd",
                "local-pv-8d87b4df709ffb51",
            ),
        ] {
            assert_eq!(pv_name(entry, node, class), first);
            assert_eq!(pv_name_on_collision(entry, node, class), second);
            assert_eq!(support::names::pv_name(entry, node, class), first);
            assert_eq!(support::names::second_pv_name(entry, node, class), second);
        }
    }

    #[test]
    fn job_name_fits_the_length_limit() {
        assert_eq!(job_name("local-pv-1a2b"), "cleanup-local-pv-1a2b");
        let (long, other) = (format!("{}a", "x".repeat(250)), "x".repeat(251));
        for pv in [&long, &other] {
            assert_eq!(job_name(pv).len(), "cleanup-".len() + 16);
            assert!(pv_label(pv).len() <= LABEL_LIMIT);
        }
        assert_ne!(job_name(&long), job_name(&other));
        let dotted = format!("{}.{}", "x".repeat(62), "y".repeat(9));
        assert_eq!(pv_label(&dotted), "x".repeat(62), "ends as a label may");
        assert_eq!(pv_label("local-pv-1a2b"), "local-pv-1a2b");
        assert_eq!(job_volume_name("", ""), "mount-811c9dc5");
        assert_eq!(job_volume_name("/foo", "bar"), job_volume_name("/foob", "ar"));
    }

    #[test]
    fn fault_12_names_without_separators_collide_and_the_second_name_does_not() {
        assert_eq!(pv_name("disk-1", "2", "c"), pv_name("disk-", "12", "c"));
        assert_ne!(
            pv_name_on_collision("disk-1", "2", "c"),
            pv_name_on_collision("disk-", "12", "c")
        );
    }
}
