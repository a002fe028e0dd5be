//! Tenants: claims for every disk, and a Pod that uses them.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::cluster::{CLAIMS, PODS, PVS, text};
use crate::disks::{DEVICES, FILESYSTEMS};
use crate::fixture::Fixture;

/// A volume that a claim has got.
pub struct Tenancy {
    /// The claim's name.
    pub claim: String,
    /// The PV's name.
    pub pv: String,
    /// The PV's UID: the next one for the same disk has the same name.
    pub uid: String,
    /// Which of the machine's disks it is.
    pub disk: usize,
}

/// Makes a claim for every disk and a Pod that uses them all, and waits until it runs; returns which
/// claim got which disk.
pub fn move_in(fixture: &Fixture, pod: &str, prefix: &str) -> Result<Vec<Tenancy>> {
    let cluster = &fixture.cluster;
    let mut claims = Vec::new();
    for (number, disk) in (1..).zip(&fixture.machine.disks) {
        let name = format!("{prefix}-{number}");
        let (class, mode) =
            if disk.is_raw() { (DEVICES, "Block") } else { (FILESYSTEMS, "Filesystem") };
        cluster.create(
            CLAIMS,
            &json!({
                "metadata": { "name": name },
                "spec": {
                    "storageClassName": class,
                    "volumeMode": mode,
                    "accessModes": ["ReadWriteOnce"],
                    "resources": { "requests": { "storage": "16Mi" } },
                },
            }),
        )?;
        claims.push((name, disk.is_raw()));
    }
    let of_mode = |raw: bool, place: &str| -> Vec<Value> {
        let names = claims.iter().filter(|claim| claim.1 == raw).map(|claim| &claim.0);
        names.map(|name| json!({ "name": name, place: format!("/volumes/{name}") })).collect()
    };
    let volumes = claims
        .iter()
        .map(|(name, _)| json!({ "name": name, "persistentVolumeClaim": { "claimName": name } }));
    cluster.create(
        PODS,
        &json!({
            "metadata": { "name": pod },
            "spec": {
                "containers": [{
                    "name": "main",
                    "image": "tenant",
                    "volumeMounts": of_mode(false, "mountPath"),
                    "volumeDevices": of_mode(true, "devicePath"),
                }],
                "volumes": volumes.collect::<Vec<_>>(),
            },
        }),
    )?;
    cluster.eventually(&format!("running pod {pod}"), |cluster| {
        let pods = cluster.list(PODS)?;
        let runs =
            |p: &&Value| text(p, "/metadata/name") == pod && text(p, "/status/phase") == "Running";
        Ok(pods.iter().find(runs).map(drop))
    })?;
    let pvs = cluster.list(PVS)?;
    let by_claim: BTreeMap<&str, &Value> =
        pvs.iter().map(|pv| (text(pv, "/spec/claimRef/name"), pv)).collect();
    let tenancy = |claim: String| {
        let pv =
            by_claim.get(claim.as_str()).with_context(|| format!("claim {claim} has no PV"))?;
        let path = Path::new(text(pv, "/spec/local/path"));
        let disk = fixture.machine.disks.iter().position(|disk| disk.path == path);
        Ok(Tenancy {
            pv: text(pv, "/metadata/name").to_owned(),
            uid: text(pv, "/metadata/uid").to_owned(),
            disk: disk.with_context(|| format!("{} is not mounted", path.display()))?,
            claim,
        })
    };
    claims.into_iter().map(|(claim, _)| tenancy(claim)).collect()
}
