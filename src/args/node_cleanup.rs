//! Arguments of `node-cleanup`.

use std::num::NonZeroU16;
use std::path::PathBuf;
use std::time::Duration;

use http::Uri;

use super::{Log, Server};
use crate::config::duration;
use crate::view::CsiDriver;

/// Arguments of `node-cleanup`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "docs/node-cleanup.md describes what is deleted, and when.\n\n\
    Environment: MY_NAMESPACE, POD_NAME and POD_UID (the pod that events are about), KUBECONFIG.\n\n\
    Example:\n  \
    $ local-volume-provisioner node-cleanup --storageclass-names=local-nvme --pvc-deletion-delay=5m")]
pub struct NodeCleanup {
    /// StorageClasses whose PersistentVolumes are deleted with their nodes, separated by commas.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', required = true)]
    pub storageclass_names: Vec<String>,

    /// CSI drivers whose volumes are lost with their nodes, separated by commas: their PersistentVolumes of these classes
    /// are deleted, too. To say where a PV names its node: DRIVER=annotation:KEY|attribute:KEY|affinity:LABEL.
    #[arg(long, value_name = "DRIVERS", value_delimiter = ',', value_parser = CsiDriver::parse)]
    pub csi_drivers: Vec<CsiDriver>,

    /// How long a node must be gone before claims bound to its volumes, and its used volumes, are deleted.
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, default_value = "60s", value_parser = duration::parse)]
    pub pvc_deletion_delay: Duration,

    /// How long a node must be gone before the finalizer is removed from PersistentVolumes that it may be wiping: the
    /// cleanupTimeout of each class, separated by commas. The longest one counts.
    #[arg(long, value_name = "DURATIONS", allow_hyphen_values = true, default_value = "24h", value_parser = duration::parse)]
    #[arg(value_delimiter = ',')]
    pub cleanup_timeouts: Vec<Duration>,

    /// The maximum time between two passes over all volumes. A change starts a pass at once.
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, default_value = "10s", value_parser = duration::parse_positive)]
    pub stale_pv_discovery_interval: Duration,

    /// The maximum number of requests to the API server per second, without watches.
    #[arg(long, value_name = "NUMBER", default_value = "20")]
    #[arg(value_parser = super::parsed::<NonZeroU16>("write a whole number from 1 to 65535, such as 20"))]
    pub requests_per_second: NonZeroU16,

    /// The kubeconfig [default: KUBECONFIG, else the pod's ServiceAccount].
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// The API server's address, in place of the kubeconfig's.
    #[arg(long, value_name = "URL")]
    pub kube_api_endpoint: Option<Uri>,

    #[command(flatten)]
    pub server: Server,

    #[command(flatten)]
    pub log: Log,
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::args::{Args, Command};

    fn parsed(line: &str) -> NodeCleanup {
        let line = format!("provisioner node-cleanup {line}");
        let words = line.split_whitespace().map(OsString::from);
        match Args::from_command_line(words, false).map(|args| args.command) {
            Ok(Command::NodeCleanup(args)) => args,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn storageclass_names_are_split_at_commas_and_repeatable() {
        for line in [
            "--storageclass-names=a,b",
            "-storageclass-names a,b",
            "--storageclass-names=a --storageclass-names=b",
        ] {
            assert_eq!(parsed(line).storageclass_names, ["a", "b"], "{line}");
        }
    }

    #[test]
    fn flags_have_defaults() {
        let args = parsed("--storageclass-names=a");
        assert_eq!(args.pvc_deletion_delay, Duration::from_mins(1));
        assert_eq!(args.cleanup_timeouts, [Duration::from_hours(24)]);
        assert_eq!(args.stale_pv_discovery_interval, Duration::from_secs(10));
        assert_eq!(args.requests_per_second.get(), 20);
    }

    #[test]
    fn flags_of_the_go_program_are_accepted() {
        let args = parsed(
            "--storageclass-names=a --kubeconfig=/etc/k --kube-api-endpoint=https://api:6443 \
             --resync=10m0s --worker-threads=3 --pvc-deletion-delay=1m30s \
             --stale-pv-discovery-interval=5s --listen-address=:9090 --metrics-path=/m \
             -csi-drivers=lis.csi.aws.com,x=annotation:a|attribute:b",
        );
        assert_eq!(args.kubeconfig, Some(PathBuf::from("/etc/k")));
        assert_eq!(args.kube_api_endpoint, Some(Uri::from_static("https://api:6443")));
        assert_eq!(args.csi_drivers.len(), 2);
    }

    #[test]
    fn leader_election_flags_are_accepted_in_spellings_of_go() {
        for flags in [
            "-leader-elect",
            "--leader-elect=true",
            "-leader-elect=false",
            "-leader-elect-lease-name x",
            "--leader-elect-lease-namespace=x",
        ] {
            let args = parsed(&format!("{flags} --storageclass-names=a"));
            assert_eq!(args.storageclass_names, ["a"], "{flags}");
        }
    }
}
