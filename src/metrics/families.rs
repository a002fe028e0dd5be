//! The families of the provisioner, in the order in which the page has them.

use super::family::{Family, Kind, Label, Origin};

const CLASS_MODE: Label = label("mode", "`Filesystem`, `Block`: the class's `volumeMode`");
const PATH_MODE: Label = label(
    "mode",
    "`Filesystem`, `Block`: what the path is; `unknown` where that cannot be told",
);
const TYPE: Label = label("type", "`process`, `job`: who cleans");
const METHOD: Label = label("method", "`create`, `delete`");
const CLASS: Label = label("class", "the classes of the configuration");
const PV: Label = label("pv", "the PV's name");
const PATH: Label = label("path", "the volume's path on the host");

const fn label(name: &'static str, values: &'static str) -> Label {
    Label { name, values }
}

pub(super) const PERSISTENTVOLUME_CAPACITY_BYTES: Family = Family {
    name: "local_volume_provisioner_persistentvolume_capacity_bytes",
    kind: Kind::Gauge,
    labels: &[CLASS_MODE],
    origin: Origin::Compat,
    help: "Total bytes of all volumes that were seen, over all classes of a volume mode.",
    advice: "When it falls, a disk is gone: look at `volumes` and `unhealthy_persistentvolume`.",
};
pub(super) const PERSISTENTVOLUME_DISCOVERY_TOTAL: Family = Family {
    name: "local_volume_provisioner_persistentvolume_discovery_total",
    kind: Kind::Counter,
    labels: &[CLASS_MODE],
    origin: Origin::Compat,
    help: "PersistentVolumes created.",
    advice: "Nothing: it grows with each new disk and each recycled volume.",
};
pub(super) const PERSISTENTVOLUME_DISCOVERY_DURATION_SECONDS: Family = Family {
    name: "local_volume_provisioner_persistentvolume_discovery_duration_seconds",
    kind: Kind::Histogram,
    labels: &[CLASS_MODE],
    origin: Origin::Compat,
    help: "Time from the start of a pass to the creation of a PersistentVolume.",
    advice: "When it grows, the API server is slow (`apiserver_requests_duration_seconds`) or a disk is (`loop_duration_seconds`).",
};
pub(super) const PERSISTENTVOLUME_DELETE_TOTAL: Family = Family {
    name: "local_volume_provisioner_persistentvolume_delete_total",
    kind: Kind::Counter,
    labels: &[PATH_MODE, TYPE],
    origin: Origin::Compat,
    help: "PersistentVolumes whose volume was cleaned and that were released.",
    advice: "Nothing: it grows with each recycled volume.",
};
pub(super) const PERSISTENTVOLUME_DELETE_FAILED_TOTAL: Family = Family {
    name: "local_volume_provisioner_persistentvolume_delete_failed_total",
    kind: Kind::Counter,
    labels: &[PATH_MODE, TYPE],
    origin: Origin::Compat,
    help: "Cleanups that failed, and PersistentVolumes whose cleanup or release was refused.",
    advice: "See which: `cleanup_failed_attempts` and `unhealthy_persistentvolume` name them, the event `VolumeFailedDelete` has the cause.",
};
pub(super) const PERSISTENTVOLUME_DELETE_DURATION_SECONDS: Family = Family {
    name: "local_volume_provisioner_persistentvolume_delete_duration_seconds",
    kind: Kind::Histogram,
    labels: &[
        PATH_MODE,
        TYPE,
        label(
            "capacity",
            "the PV's, in steps of 500 GiB, rounded up: `500G`, `1000G`, ...",
        ),
        label(
            "cleanup_command",
            "the class's `blockCleanerCommand` with blanks between its words, or its `cleanMethod`",
        ),
    ],
    origin: Origin::Compat,
    help: "Time from the start of a cleanup to the release of the PersistentVolume.",
    advice: "When it grows, compare `cleanup_bytes_total`: a disk that becomes slow is often one that is about to fail.",
};
pub(super) const APISERVER_REQUESTS_TOTAL: Family = Family {
    name: "local_volume_provisioner_apiserver_requests_total",
    kind: Kind::Counter,
    labels: &[METHOD],
    origin: Origin::Compat,
    help: "Requests to create or delete PersistentVolumes.",
    advice: "Nothing; an idle node makes none.",
};
pub(super) const APISERVER_REQUESTS_FAILED_TOTAL: Family = Family {
    name: "local_volume_provisioner_apiserver_requests_failed_total",
    kind: Kind::Counter,
    labels: &[METHOD],
    origin: Origin::Compat,
    help: "Requests to create or delete PersistentVolumes that failed.",
    advice: "Single ones are tried again. If it goes on, the log has the API server's answer, and `missing_permission` a right that is missing.",
};
pub(super) const APISERVER_REQUESTS_DURATION_SECONDS: Family = Family {
    name: "local_volume_provisioner_apiserver_requests_duration_seconds",
    kind: Kind::Histogram,
    labels: &[METHOD],
    origin: Origin::Compat,
    help: "Duration of requests to create or delete PersistentVolumes.",
    advice: "When it grows, look at the API server.",
};
pub(super) const PROCTABLE_RUNNING: Family = Family {
    name: "local_volume_provisioner_proctable_running",
    kind: Kind::Gauge,
    labels: &[],
    origin: Origin::Compat,
    help: "Cleanups at work.",
    advice: "Nothing; `maxConcurrentCleanups` is its limit.",
};
pub(super) const PROCTABLE_SUCCEEDED: Family = Family {
    name: "local_volume_provisioner_proctable_succeeded",
    kind: Kind::Gauge,
    labels: &[],
    origin: Origin::Compat,
    help: "Finished cleanups whose PersistentVolume has not gone yet.",
    advice: "It is 0 but for moments. If not, look for foreign finalizers, and for a release that the API server refuses: `unhealthy_persistentvolume` names it.",
};
pub(super) const PROCTABLE_FAILED: Family = Family {
    name: "local_volume_provisioner_proctable_failed",
    kind: Kind::Gauge,
    labels: &[],
    origin: Origin::Compat,
    help: "Cleanups that failed and will be tried again.",
    advice: "As for `cleanup_failed_attempts`, which names them.",
};
pub(super) const READY: Family = Family {
    name: "local_volume_provisioner_ready",
    kind: Kind::Gauge,
    labels: &[],
    origin: Origin::Ours,
    help: "1 if every class was read and every eligible volume has a PersistentVolume, else 0, as /ready says.",
    advice: "[`/status`](status.md) has the reasons in `notReady`.",
};
pub(super) const VOLUMES: Family = Family {
    name: "local_volume_provisioner_volumes",
    kind: Kind::Gauge,
    labels: &[
        CLASS,
        label("state", "the [states](status.md), but `Skipped`"),
    ],
    origin: Origin::Ours,
    help: "Volumes, by class and state.",
    advice: "Compare it with the number of disks that you have put in.",
};
pub(super) const SKIPPED_ENTRIES: Family = Family {
    name: "local_volume_provisioner_skipped_entries",
    kind: Kind::Gauge,
    labels: &[CLASS, label("reason", "the [reasons](why-no-pv.md)")],
    origin: Origin::Ours,
    help: "Entries of the discovery directories that are not offered, by class and reason.",
    advice: "The page of the reasons says what to do about each.",
};
pub(super) const UNHEALTHY_PERSISTENTVOLUME: Family = Family {
    name: "local_volume_provisioner_unhealthy_persistentvolume",
    kind: Kind::Gauge,
    labels: &[
        PV,
        PATH,
        label("reason", "the reason of the [event](events.md) on the PV"),
    ],
    origin: Origin::Ours,
    help: "1 for each PersistentVolume that something is the matter with.",
    advice: "The event of that reason, and `/status`, say what to do.",
};
pub(super) const CLEANUP_WAITING: Family = Family {
    name: "local_volume_provisioner_cleanup_waiting",
    kind: Kind::Gauge,
    labels: &[],
    origin: Origin::Ours,
    help: "Cleanups that wait for a permit or for somebody to let go of the volume.",
    advice: "`cleanup_waiting_seconds` says which and for how long.",
};
pub(super) const CLEANUP_WAITING_SECONDS: Family = Family {
    name: "local_volume_provisioner_cleanup_waiting_seconds",
    kind: Kind::Gauge,
    labels: &[
        PV,
        PATH,
        label(
            "reason",
            "`Permit` (others are cleaned first), `InUse` (somebody uses the volume, or has its lock)",
        ),
    ],
    origin: Origin::Ours,
    help: "How long a cleanup has waited without a break.",
    advice: "`InUse`: the event `VolumeInUse` and `/status` say by whom. `Permit`: look at what is cleaned before it.",
};
pub(super) const CLEANUP_STALLED_SECONDS: Family = Family {
    name: "local_volume_provisioner_cleanup_stalled_seconds",
    kind: Kind::Gauge,
    labels: &[PV, PATH],
    origin: Origin::Ours,
    help: "How long a running cleanup has made no progress, in steps of 30 s; 0 while it does, and always for an external command.",
    advice: "Look at the disk and the kernel log of the node.",
};
pub(super) const CLEANUP_FAILED_ATTEMPTS: Family = Family {
    name: "local_volume_provisioner_cleanup_failed_attempts",
    kind: Kind::Gauge,
    labels: &[PV, PATH],
    origin: Origin::Ours,
    help: "How often in a row the cleanup of a PersistentVolume has failed; no series for one that has not.",
    advice: "The event `VolumeFailedDelete` and `/status` have the cause; it is tried again by itself.",
};
pub(super) const CLEANUP_PROGRESS_RATIO: Family = Family {
    name: "local_volume_provisioner_cleanup_progress_ratio",
    kind: Kind::Gauge,
    labels: &[PV],
    origin: Origin::Ours,
    help: "Part of the bytes that are wiped, while a device is cleaned by one of our own methods.",
    advice: "Nothing; `/status` also has the time that is left.",
};
pub(super) const CLEANUP_BYTES_TOTAL: Family = Family {
    name: "local_volume_provisioner_cleanup_bytes_total",
    kind: Kind::Counter,
    labels: &[],
    origin: Origin::Ours,
    help: "Bytes wiped on devices, counted every second, also those of cleanups that fail.",
    advice: "Its rate is the speed of the disks.",
};
pub(super) const CLEANUP_DATA_LEFT_TOTAL: Family = Family {
    name: "local_volume_provisioner_cleanup_data_left_total",
    kind: Kind::Counter,
    labels: &[CLASS],
    origin: Origin::Ours,
    help: "Raw devices that were reset without a discard, so that the next tenant can read what the last one wrote.",
    advice: "Where that matters, set `cleanMethod: auto` for the class ([cleaning](cleaning.md#devices)).",
};
pub(super) const LOOP_DURATION_SECONDS: Family = Family {
    name: "local_volume_provisioner_loop_duration_seconds",
    kind: Kind::Histogram,
    labels: &[],
    origin: Origin::Ours,
    help: "Duration of one pass of the main loop.",
    advice: "When it grows, a disk or the mount table answers slowly: look for `TimedOut` in `skipped_entries`.",
};
pub(super) const LOOP_LAST_SUCCESS_TIMESTAMP_SECONDS: Family = Family {
    name: "local_volume_provisioner_loop_last_success_timestamp_seconds",
    kind: Kind::Gauge,
    labels: &[],
    origin: Origin::Ours,
    help: "When the last pass of the main loop ended.",
    advice: "If it stands still for minutes, nothing is offered or cleaned on that node: see its log. `/healthz` is red then, and the kubelet restarts the pod.",
};
pub(super) const CONFIG_LAST_RELOAD_SUCCESSFUL: Family = Family {
    name: "local_volume_provisioner_config_last_reload_successful",
    kind: Kind::Gauge,
    labels: &[],
    origin: Origin::Ours,
    help: "1 if the configuration that was read last is in force, 0 if it is invalid and the one before goes on.",
    advice: "The log and an event on the Pod have the fault; `check-config` finds all faults at once.",
};
pub(super) const CONFIG_LAST_RELOAD_TIMESTAMP_SECONDS: Family = Family {
    name: "local_volume_provisioner_config_last_reload_timestamp_seconds",
    kind: Kind::Gauge,
    labels: &[],
    origin: Origin::Ours,
    help: "When the configuration that is in force was read.",
    advice: "Nothing; compare it with the time of your change.",
};
pub(super) const WATCH_RESTARTS_TOTAL: Family = Family {
    name: "local_volume_provisioner_watch_restarts_total",
    kind: Kind::Counter,
    labels: &[label(
        "resource",
        "`nodes`, `persistentvolumes`, `storageclasses`, ...",
    )],
    origin: Origin::Ours,
    help: "Watches that broke and were started again.",
    advice: "Some are normal, when an API server restarts. If it grows all the time, look at the network and the API server.",
};
pub(super) const MISSING_PERMISSION: Family = Family {
    name: "local_volume_provisioner_missing_permission",
    kind: Kind::Gauge,
    labels: &[label("resource", "the resource"), label("verb", "the verb")],
    origin: Origin::Ours,
    help: "1 for each right that the API server denied, 0 once it is granted.",
    advice: "[Grant it](install.md#grant-what-is-missing).",
};
pub(super) const EVENTS_FAILED_TOTAL: Family = Family {
    name: "local_volume_provisioner_events_failed_total",
    kind: Kind::Counter,
    labels: &[],
    origin: Origin::Ours,
    help: "Events that could not be written.",
    advice: "What they say is in the log too. Look at `missing_permission` and the API server.",
};
pub(super) const BUILD_INFO: Family = Family {
    name: "local_volume_provisioner_build_info",
    kind: Kind::Gauge,
    labels: &[
        label("version", "the program's version"),
        label("revision", "the commit that it was built of, or `unknown`"),
    ],
    origin: Origin::Ours,
    help: "1; the program's version is in the labels.",
    advice: "Nothing; two versions at once are a rollout.",
};
