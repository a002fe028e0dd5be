//! The manifests for those who install without Helm.

use std::path::Path;

use crate::Cluster;

#[test]
fn the_api_server_takes_every_manifest_in_deploy() {
    let cluster = or_skip!(Cluster::enter());
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy");
    let files = walkdir::WalkDir::new(deploy).into_iter().map(Result::unwrap);
    let files: Vec<_> = files
        .filter(|entry| entry.path().extension().is_some_and(|end| end == "yaml"))
        // A patch of a DaemonSet of another project.
        .filter(|entry| !entry.path().ends_with("convert/daemonset.yaml"))
        .collect();
    assert!(files.len() > 3, "{files:?}");
    for file in files {
        let file = file.path().to_str().unwrap();
        let args = ["apply", "--dry-run=server", "--validate=strict", "--filename", file];
        cluster.kubectl(&args).unwrap();
    }
}
