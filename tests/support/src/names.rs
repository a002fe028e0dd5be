//! The names that the provisioner gives, written without its code.

/// Label of Kubernetes: the node's hostname.
pub const LABEL_HOSTNAME: &str = "kubernetes.io/hostname";
/// Annotation: the volume's recorded identity.
pub const ANNOTATION_IDENTITY: &str = "local-volume-provisioner/identity";
/// Annotation: consent to clean or forget a volume whose identity does not match.
pub const ANNOTATION_CONSENT: &str = "local-volume-provisioner/consent";
/// Finalizer of PVs whose volumes are to be cleaned.
pub const FINALIZER: &str = "local-volume-provisioner/cleanup";
/// Key of the startup taint, where the configuration names no other.
pub const DEFAULT_TAINT_KEY: &str = "sig-storage-local-static-provisioner/agent-not-ready";

/// The PV's name, as the Go provisioner makes it: `fmt.Sprintf("local-pv-%x", …)` of `fnv.New32a` over entry, node
/// and class.
#[must_use]
pub fn pv_name(entry: &str, node: &str, class: &str) -> String {
    let bytes = [entry, node, class].concat().into_bytes();
    let hash = bytes
        .into_iter()
        .fold(2_166_136_261_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(16_777_619));
    format!("local-pv-{hash:x}")
}

/// The PV's name where another volume's PV has the first: FNV-1a of 64 bits over the same, with a NUL between them.
#[must_use]
pub fn second_pv_name(entry: &str, node: &str, class: &str) -> String {
    let bytes = [entry, node, class].join("\0").into_bytes();
    let hash = bytes.into_iter().fold(14_695_981_039_346_656_037_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(1_099_511_628_211)
    });
    format!("local-pv-{hash:016x}")
}
