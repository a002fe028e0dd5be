//! Arguments of `status`.

use super::{ApiServer, OutputFormat};

/// Arguments of `status`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Without --node or --all it requests the status at --listen-address, by default of the provisioner in the same container. With \
    them it sends requests through the API server, and requires the permissions to list pods and to get pods/proxy.\n\n\
    Exit code: 0 when each requested node is ready and its volumes have no problem, 1 when one is not ready, is degraded, \
    has a volume with a problem, or does not answer, 2 on a usage error.\n\n\
    Examples:\n  \
    $ kubectl exec POD -- /local-volume-provisioner status\n  \
    $ local-volume-provisioner status --all\n  \
    $ local-volume-provisioner status --node worker-3 -o json"
)]
pub struct Status {
    /// The provisioner of this node, through the API server.
    #[arg(long, value_name = "NAME", group = "outside")]
    pub node: Option<String>,

    /// The address of the provisioner that is asked without --node and --all.
    #[arg(long, value_name = "[HOST]:PORT", default_value = ":8080", conflicts_with = "outside")]
    pub listen_address: String,

    /// The provisioners of all nodes, through the API server.
    #[arg(long, group = "outside")]
    pub all: bool,

    /// The provisioner's namespace, for --node and --all [default: all namespaces].
    #[arg(short, long, value_name = "NAME", requires = "outside")]
    pub namespace: Option<String>,

    /// Format of the output.
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub output: OutputFormat,

    #[command(flatten)]
    pub api_server: ApiServer,
}
