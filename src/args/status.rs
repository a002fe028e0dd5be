//! Arguments of `status`.

use http::Uri;

use super::{ListenAddress, OutputFormat};

/// Arguments of `status`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Without --url, --node or --all it asks the provisioner in the same container. From \
    outside it asks through the API server, which requires the permissions to list pods and to get pods/proxy.\n\n\
    Exit code: 0 when all that was asked is ready, 1 when something is not ready, degraded or \
    could not be asked, 2 on a usage error.\n\n\
    Examples:\n  \
    $ kubectl exec POD -- /local-volume-provisioner status\n  \
    $ local-volume-provisioner status --all --problems\n  \
    $ local-volume-provisioner status --node worker-3 -o json"
)]
pub struct Status {
    /// Ask the provisioner of this node, through the API server.
    #[arg(long, value_name = "NAME", groups = ["target", "outside"])]
    pub node: Option<String>,

    /// Ask the provisioners of all nodes, through the API server.
    #[arg(long, groups = ["target", "outside"])]
    pub all: bool,

    /// The provisioner's namespace, for --node and --all [default: all namespaces].
    #[arg(long, value_name = "NAME", requires = "outside")]
    pub namespace: Option<String>,

    /// Ask the server at this address, for example behind a port-forward.
    #[arg(long, value_name = "http://HOST:PORT", value_parser = url, group = "target")]
    pub url: Option<Uri>,

    /// Where the provisioner in the same container listens [default: :8080].
    #[arg(long, value_name = "[HOST]:PORT", group = "target")]
    pub listen_address: Option<ListenAddress>,

    /// In the table, only problems.
    #[arg(long)]
    pub problems: bool,

    /// How the result is written.
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub output: OutputFormat,
}

/// Parses the address of an HTTP server, with or without the path of what is asked.
fn url(text: &str) -> Result<Uri, String> {
    let base = text.trim_end_matches('/');
    let uri = base.strip_suffix("/status").unwrap_or(base).parse::<Uri>();
    uri.ok()
        .filter(|uri| matches!(uri.scheme_str(), Some("http" | "https")))
        .ok_or_else(|| "write http://HOST:PORT or https://HOST:PORT".into())
}
