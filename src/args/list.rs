//! Arguments of `list`.

use clap::ValueEnum;

use super::Provisioners;

/// Arguments of `list`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "The order is: wrong disk, unverified, dirty, failed, waiting, the rest. explain says more about one volume.\n\n\
    Exit code: 0 success, 1 when a provisioner did not answer, so that its volumes are missing, 2 on a usage error.\n\n\
    Examples:\n  \
    $ kubectl local-volume list\n  \
    $ kubectl local-volume list --node worker-3 -o wide\n  \
    $ kubectl local-volume list --class fast --watch"
)]
pub struct List {
    /// Only the volumes of this node.
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,

    /// Only the volumes of this class.
    #[arg(long, value_name = "NAME")]
    pub class: Option<String>,

    /// Format of the output. wide adds claim, policy and age.
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub output: ListFormat,

    /// After the list, show each volume again when it changes.
    #[arg(short, long)]
    pub watch: bool,

    #[command(flatten)]
    pub provisioners: Provisioners,
}

/// The format of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ListFormat {
    Table,
    Wide,
    Json,
    Yaml,
    Name,
}
