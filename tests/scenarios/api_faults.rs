//! What the API server and the network may do in the middle of a cleanup, step by step.

mod events;
mod other_clusters;
mod outages;
mod permissions;
mod refused_releases;
mod stale_cache;
mod writes_under_way;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use control_plane::faults::{Answer, Fault, FaultBuilder};
use control_plane::requests::Verb;
use serde_json::json;
use support::stage::{name, uid};
use support::{Program, Stage};

use super::stage;
use crate::kit::{fast, fast_volumes, metric};

const PVS: &str = "persistentvolumes";
const CLAIMS: &str = "persistentvolumeclaims";
/// A failed cleanup pauses for ten seconds.
const A_RETRY_LATER: Duration = Duration::from_secs(40);

/// A stage on which our finalizer is put on by the commit, so that every step has a request.
fn bare_stage() -> Option<Stage> {
    let mut stage = stage()?;
    stage.configure("protectReleasedData", "false");
    stage.add_arg("--discovery-period=1s");
    Some(stage)
}

/// Such a stage with one volume.
fn bare_volume() -> Option<(Stage, PathBuf)> {
    let stage = bare_stage()?;
    let [volume] = fast_volumes(&stage, ["vol"]);
    Some((stage, volume))
}

/// How often the volume was wiped, as the log says it.
fn wipes(provisioner: &Program, path: &Path) -> usize {
    let path = format!("path={}", path.display());
    let log = provisioner.log();
    let wipes = log
        .lines()
        .filter(|line| line.contains("cleaning the volume"));
    wipes
        .filter(|line| line.split_whitespace().any(|word| word == path))
        .count()
}

fn entries(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

/// The requests of one cleanup and of the offer after it, in order; the number tells those apart
/// that are alike.
const STEPS: [(&str, Verb, &str, usize); 7] = [
    ("gate-pv", Verb::Get, PVS, 0),
    ("gate-claim", Verb::Get, CLAIMS, 0),
    ("finalizer", Verb::Patch, PVS, 0),
    ("delete", Verb::Delete, PVS, 0),
    ("reread", Verb::Get, PVS, 1),
    ("release", Verb::Patch, PVS, 1),
    ("create", Verb::Create, PVS, 0),
];

type Trouble = (&'static str, fn(FaultBuilder) -> Fault);

const TROUBLES: [Trouble; 5] = [
    ("error", |fault| fault.answer(Answer::code(500))),
    ("throttled", |fault| {
        fault.answer(Answer::code(429).retry_after(1))
    }),
    ("conflict", |fault| fault.answer(Answer::code(409))),
    ("reset-before", FaultBuilder::reset_before),
    ("reset-after", FaultBuilder::reset_after),
];

#[test]
fn every_step_of_a_cleanup_survives_every_kind_of_trouble() {
    let stage = or_skip!(bare_stage());
    stage.class("fast", &json!({}));
    let mut volumes = Vec::new();
    for (step, ..) in STEPS {
        for (trouble, _) in TROUBLES {
            let entry = format!("{step}-{trouble}");
            let path = fast(&stage, &entry);
            volumes.push((entry, path));
        }
    }
    let provisioner = stage.provisioner();
    let pvs: Vec<_> = volumes
        .iter()
        .map(|(entry, path)| stage.occupy(entry, path))
        .collect();

    let faults = stage.faults();
    let mut in_force = Vec::new();
    for (at, (claim, _)) in volumes.iter().enumerate() {
        let (_, verb, resource, skip) = STEPS[at / TROUBLES.len()];
        let object = if resource == CLAIMS {
            claim.clone()
        } else {
            name(&pvs[at])
        };
        let fault = faults
            .on(verb)
            .resource(resource)
            .name(&object)
            .skip(skip)
            .times(1);
        in_force.push(TROUBLES[at % TROUBLES.len()].1(fault));
    }
    // Lists of Pods have no name: one of each kind hits the first request.
    for (_, trouble) in TROUBLES {
        in_force.push(trouble(faults.on(Verb::List).resource("pods").times(1)));
    }
    for (claim, _) in &volumes {
        stage.delete_claim(claim);
    }
    for ((entry, path), old) in volumes.iter().zip(&pvs) {
        stage.within(A_RETRY_LATER, &format!("{entry} is offered again"), || {
            let found = stage.pvs_at(path);
            found.iter().all(|pv| uid(pv) != uid(old)) && found.len() == 1
        });
        stage.available(path, Some(&uid(old)));
        assert_eq!(entries(path), [""; 0], "{entry}: the data is gone");
        assert_eq!(
            wipes(&provisioner, path),
            1,
            "{entry}: a finished wipe is not repeated"
        );
    }
    assert_eq!(stage.pvs().len(), volumes.len(), "no second PV");
    for (at, fault) in in_force.iter().enumerate() {
        assert_eq!(fault.hits(), 1, "fault {at} met its request");
    }
}
