//! What is reported about PVs.

use std::collections::BTreeSet;
use std::io::{self, Write};

use crate::cmd::table;
use crate::view::PvView;

use crate::names::FINALIZER;

fn verb(dry_run: bool) -> &'static str {
    if dry_run { "would be" } else { "was" }
}

/// A PV that goes with its data.
pub(super) fn abandoned(
    pv: &PvView,
    dry_run: bool,
    out: &mut (dyn Write + Send),
) -> io::Result<()> {
    let verb = verb(dry_run);
    writeln!(
        out,
        "ABANDONED: PV {} {verb} released uncleaned: the data of {} stays in {} on node {}, readable by its next user.",
        pv.name,
        claim(pv),
        path(pv),
        node(pv)
    )
}

/// How many PVs had nothing to clean.
pub(super) fn released(
    count: usize,
    dry_run: bool,
    out: &mut (dyn Write + Send),
) -> io::Result<()> {
    let verb = verb(dry_run);
    writeln!(
        out,
        "The finalizer {FINALIZER} {verb} taken off {count} PersistentVolumes with nothing to clean."
    )
}

/// A PV and where its data is, for a sentence.
pub(super) fn data(pv: &PvView) -> String {
    format!(
        "PV {} (data of {} in {} on node {})",
        pv.name,
        claim(pv),
        path(pv),
        node(pv)
    )
}

/// The volumes that stay, and what can be done.
pub(super) fn unclean(unclean: &[(&PvView, &str)], out: &mut (dyn Write + Send)) -> io::Result<()> {
    let mut rows = vec![["PV", "NODE", "PATH", "CLAIM", "WHY"].map(String::from)];
    rows.extend(unclean.iter().map(|(pv, why)| {
        let why = (*why).to_owned();
        [pv.name.clone(), node(pv), path(pv), claim(pv), why]
    }));
    writeln!(
        out,
        "\nThese volumes hold data that was not cleaned; our finalizer stays on their PersistentVolumes:\n"
    )?;
    table::write(&rows, out)?;
    writeln!(
        out,
        "\nTwo ways out:\n\
         1. Have them cleaned: let the provisioner run (install it again if it is gone) until these PVs are gone or Available;\n   \
            `kubectl describe pv NAME` says what stands in the way.\n\
         2. Give the cleaning up with --abandon-uncleaned (in the chart: uninstall.abandonUncleaned=true): the PVs are let go,\n   \
            and the data stays on the disks, where the next to get them can read it.\n"
    )
}

/// Nothing is of the node that was named; `held` are all PVs with our finalizer.
pub(super) fn no_match(
    named: &str,
    held: &[PvView],
    out: &mut (dyn Write + Send),
) -> io::Result<()> {
    let seen: BTreeSet<_> = held.iter().map(node).collect();
    let seen = if seen.is_empty() {
        "none has it at all".to_owned()
    } else {
        let nodes = Vec::from_iter(seen).join("; ");
        format!("those that have it are of {nodes}")
    };
    writeln!(
        out,
        "No PersistentVolume with our finalizer is of node {named:?} alone; {seen}. (Name the node as its label kubernetes.io/hostname does.)"
    )
}

/// The node's label; without it, all that may have the PV.
fn node(pv: &PvView) -> String {
    match &pv.hostname_label {
        Some(label) => label.clone(),
        None => pv.hostnames.join(","),
    }
}

fn path(pv: &PvView) -> String {
    pv.path().map_or_else(|| "-".into(), ToString::to_string)
}

fn claim(pv: &PvView) -> String {
    pv.claim
        .as_ref()
        .map_or_else(|| "-".into(), ToString::to_string)
}
