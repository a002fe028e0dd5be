//! `deploy/`: what `scripts/render` makes of the chart.

use std::path::Path;
use std::process::Command;

use crate::helm::Helm;

/// `deploy/` holds the chart's roles, environment, probes and arguments with the default values, for review, and
/// `values/everything.rendered.yaml` what each key of the Go provisioner's chart becomes.
#[test]
fn the_manifests_are_what_the_chart_renders() {
    let helm = or_skip!(Helm::find());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/render");
    let mut render = Command::new(script);
    let output = render.arg("--check").env("HELM", helm.program()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}
