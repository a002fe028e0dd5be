//! The output about PVs.

use std::collections::BTreeSet;
use std::io::{self, Write};

use crate::cmd::table;
use crate::names::FINALIZER;
use crate::view::PvView;

fn verb(dry_run: bool) -> &'static str {
    if dry_run { "would be" } else { "was" }
}

/// Reports a PV that is released with its data.
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

/// Reports the number of PVs with nothing to clean.
pub(super) fn released(
    count: usize,
    dry_run: bool,
    out: &mut (dyn Write + Send),
) -> io::Result<()> {
    let verb = verb(dry_run);
    writeln!(
        out,
        "The finalizer {FINALIZER} {verb} removed from {count} PersistentVolumes with nothing to clean."
    )
}

/// A PV and the location of its data, for a message.
pub(super) fn data(pv: &PvView) -> String {
    format!(
        "PV {} (data of {} in {} on node {})",
        pv.name,
        claim(pv),
        path(pv),
        node(pv)
    )
}

/// Reports the uncleaned volumes and the remedies.
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
        "\nEither:\n\
         1. Clean them: run the provisioner (install it again if it is gone) until these PVs are gone or Available;\n   \
            `kubectl describe pv NAME` shows what blocks a cleanup.\n\
         2. Abandon them with --abandon-uncleaned (in the chart: uninstall.abandonUncleaned=true): the finalizer is removed,\n   \
            and the data stays on the disks, readable by their next user.\n"
    )
}

/// Reports that no PV belongs to the named node; `held` are all PVs with our finalizer.
pub(super) fn no_match(
    named: &str,
    held: &[PvView],
    out: &mut (dyn Write + Send),
) -> io::Result<()> {
    let seen: BTreeSet<_> = held.iter().map(node).collect();
    let seen = if seen.is_empty() {
        "no PersistentVolume has it".to_owned()
    } else {
        let nodes = Vec::from_iter(seen).join("; ");
        format!("PersistentVolumes with it belong to {nodes}")
    };
    writeln!(
        out,
        "No PersistentVolume with our finalizer belongs to node {named:?} only; {seen}. Use the value of the label kubernetes.io/hostname as the name."
    )
}

/// The hostname label; without it, the hostnames of the node affinity.
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
