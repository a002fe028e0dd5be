//! Arguments of `status`.

use std::fmt;
use std::str::FromStr;

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
    #[arg(long, value_name = "NAME", conflicts_with_all = ["all", "url"])]
    pub node: Option<String>,

    /// Ask the provisioners of all nodes, through the API server.
    #[arg(long, conflicts_with = "url")]
    pub all: bool,

    /// The provisioner's namespace, for --node and --all [default: all namespaces].
    #[arg(long, value_name = "NAME")]
    pub namespace: Option<String>,

    /// Ask the server at this address, for example behind a port-forward.
    #[arg(
        long,
        value_name = "http://HOST:PORT",
        conflicts_with = "listen_address"
    )]
    pub url: Option<Url>,

    /// Where the provisioner in the same container listens [default: :8080].
    #[arg(long, value_name = "[HOST]:PORT", conflicts_with_all = ["node", "all"])]
    pub listen_address: Option<ListenAddress>,

    /// Only problems.
    #[arg(long)]
    pub problems: bool,

    /// How the result is written.
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub output: OutputFormat,
}

/// Where an HTTP server is, without the path of what is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url(String);

impl FromStr for Url {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rest = text
            .strip_prefix("http://")
            .or_else(|| text.strip_prefix("https://"));
        match rest {
            None => Err("it must begin with http:// or https://".into()),
            Some("") => Err("the host is missing".into()),
            Some(_) => {
                let base = text.trim_end_matches('/');
                Ok(Self(base.strip_suffix("/status").unwrap_or(base).into()))
            }
        }
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
