//! The story: what happens to a volume between two tenants. What it claims, it checks.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use support::Program;

use crate::cluster::{CLAIMS, PODS, PVS, STORAGE_CLASSES, is_available, text};
use crate::ground::Ground;
use crate::tenant::{Tenancy, move_in};
use crate::voice::{Voice, columns};

/// The columns that fit a terminal.
const OF_CLASSES: &[&str] = &["NAME", "AGE"];
const OF_PVS: &[&str] = &["NAME", "CAPACITY", "STATUS", "CLAIM", "STORAGECLASS", "AGE"];
const OF_CLAIMS: &[&str] = &[
    "NAME",
    "STATUS",
    "VOLUME",
    "CAPACITY",
    "STORAGECLASS",
    "AGE",
];
const OF_PODS: &[&str] = &["NAME", "READY", "STATUS", "AGE"];

/// Tells it from the disks to the second tenant.
pub fn tell(ground: &mut Ground, voice: &mut Voice) -> Result<()> {
    the_disks(ground, voice)?;
    discovery(ground, voice)?;
    offering(ground, voice)?;
    let tenancies = a_tenant(ground, voice)?;
    data(ground, voice, &tenancies)?;
    let times = release(ground, voice, &tenancies)?;
    the_next_tenant(ground, voice)?;
    what_it_says(ground, voice, &tenancies)?;
    summary(ground, voice, &times)
}

fn the_disks(ground: &Ground, voice: &mut Voice) -> Result<()> {
    voice.step("A node with some disks, mounted where only this process sees them")?;
    let disks = ground
        .machine
        .disks
        .iter()
        .map(|disk| (&disk.path, &disk.what));
    let strays = ground
        .machine
        .strays
        .iter()
        .map(|(path, what)| (path, what));
    let rows: Vec<_> = disks
        .chain(strays)
        .map(|(path, what)| vec![path.display().to_string(), what.clone()])
        .collect();
    voice.say(&columns(&rows))?;
    for left_out in &ground.machine.left_out {
        voice.say(&format!("Left out: {left_out}."))?;
    }
    Ok(())
}

fn discovery(ground: &Ground, voice: &mut Voice) -> Result<()> {
    voice.step("What would be offered, and why the rest would not")?;
    voice.shell("cat config/storageClassMap", &ground.storage_class_map())?;
    let found = ground.discover()?;
    voice.shell("local-volume-provisioner discover", &found)?;
    for disk in &ground.machine.disks {
        ensure!(
            found.contains(&disk.name()),
            "discover does not find {}",
            disk.path.display()
        );
    }
    Ok(())
}

fn offering(ground: &mut Ground, voice: &mut Voice) -> Result<()> {
    voice.step("The provisioner starts and offers every disk as a PersistentVolume")?;
    voice.say(&format!(
        "The API at {} knows one node, and a class per directory:",
        ground.cluster.url()
    ))?;
    for class in ground.classes() {
        ground.cluster.create(
            STORAGE_CLASSES,
            &json!({
                "metadata": { "name": class },
                "provisioner": "kubernetes.io/no-provisioner",
                "reclaimPolicy": "Delete",
                "volumeBindingMode": "WaitForFirstConsumer",
            }),
        )?;
    }
    voice.shell(
        "kubectl get storageclass",
        &ground.cluster.table(STORAGE_CLASSES, OF_CLASSES)?,
    )?;
    let start = Instant::now();
    ground.start_provisioner()?;
    let wanted = ground.machine.disks.len();
    let (cluster, provisioner) = (&ground.cluster, &mut ground.provisioner);
    cluster.eventually(&format!("sight of {wanted} Available PVs"), |cluster| {
        if !provisioner.as_mut().is_some_and(Program::is_running) {
            bail!("the provisioner has ended");
        }
        let pvs = cluster.list(PVS)?;
        Ok((pvs.iter().filter(|pv| is_available(pv)).count() == wanted).then_some(()))
    })?;
    let took = start.elapsed().as_millis();
    voice.shell("kubectl get pv", &ground.cluster.table(PVS, OF_PVS)?)?;
    voice.proven(&format!(
        "{wanted} volumes offered {took} ms after the start of the process"
    ))
}

fn a_tenant(ground: &Ground, voice: &mut Voice) -> Result<Vec<Tenancy>> {
    voice.step("A tenant claims them all")?;
    let tenancies = move_in(ground, "tenant-1", "data")?;
    voice.shell("kubectl get pod", &ground.cluster.table(PODS, OF_PODS)?)?;
    voice.shell("kubectl get pvc", &ground.cluster.table(CLAIMS, OF_CLAIMS)?)?;
    Ok(tenancies)
}

fn data(ground: &Ground, voice: &mut Voice, tenancies: &[Tenancy]) -> Result<()> {
    voice.step("The tenant writes")?;
    for tenancy in tenancies {
        let disk = &ground.machine.disks[tenancy.disk];
        disk.write(&ground.machine.neighbour)?;
        ensure!(
            !disk.contents()?.is_empty(),
            "nothing was written to {}",
            disk.path.display()
        );
    }
    let rows = tenancies.iter().map(|tenancy| {
        let disk = &ground.machine.disks[tenancy.disk];
        Ok(vec![disk.name(), disk.contents()?.join("  ")])
    });
    voice.say(&columns(&rows.collect::<Result<Vec<_>>>()?))?;
    let neighbour = ground.machine.neighbour.display();
    voice.say(&format!(
        "way-out is a symbolic link to {neighbour}, which must survive."
    ))
}

fn release(ground: &Ground, voice: &mut Voice, tenancies: &[Tenancy]) -> Result<Vec<u128>> {
    voice.step("The tenant leaves: each volume is wiped, checked, and offered again")?;
    ground.cluster.delete(PODS, "tenant-1")?;
    voice.shell("kubectl delete pod tenant-1", "")?;
    let mut times = Vec::new();
    for tenancy in tenancies {
        let disk = &ground.machine.disks[tenancy.disk];
        let before = disk.contents()?;
        let start = Instant::now();
        ground.cluster.delete(CLAIMS, &tenancy.claim)?;
        let fresh = ground.cluster.eventually(
            &format!("new Available PV for {}", disk.path.display()),
            |cluster| {
                let is_fresh = |pv: &Value| {
                    Path::new(text(pv, "/spec/local/path")) == disk.path
                        && text(pv, "/metadata/uid") != tenancy.uid
                        && is_available(pv)
                };
                Ok(cluster.list(PVS)?.into_iter().find(is_fresh))
            },
        )?;
        let took = start.elapsed().as_millis();
        let after = disk.contents()?;
        let told = if after.is_empty() {
            "nothing".to_owned()
        } else {
            after.join("  ")
        };
        voice.shell(
            &format!("kubectl delete pvc {}", tenancy.claim),
            &columns(&[
                vec!["before", before.join("  ").as_str()],
                vec!["after", told.as_str()],
            ]),
        )?;
        ensure!(
            after.is_empty(),
            "{} still holds {}",
            disk.path.display(),
            told
        );
        voice.proven(&format!(
            "{} is clean, and offered again as {} after {took} ms",
            disk.name(),
            text(&fresh, "/metadata/name"),
        ))?;
        times.push(took);
    }
    ensure!(
        ground.machine.neighbour.is_file(),
        "{} was deleted through a symbolic link",
        ground.machine.neighbour.display()
    );
    voice.proven(&format!(
        "{} is still there",
        ground.machine.neighbour.display()
    ))?;
    voice.shell("kubectl get pv", &ground.cluster.table(PVS, OF_PVS)?)?;
    Ok(times)
}

fn the_next_tenant(ground: &Ground, voice: &mut Voice) -> Result<()> {
    voice.step("The next tenant finds nothing")?;
    let tenancies = move_in(ground, "tenant-2", "fresh")?;
    voice.shell("kubectl get pvc", &ground.cluster.table(CLAIMS, OF_CLAIMS)?)?;
    for tenancy in &tenancies {
        let disk = &ground.machine.disks[tenancy.disk];
        let found = disk.contents()?;
        ensure!(
            found.is_empty(),
            "{} still holds {}",
            disk.path.display(),
            found.join("  ")
        );
    }
    voice.proven(&format!("{} volumes, all empty", tenancies.len()))
}

fn what_it_says(ground: &mut Ground, voice: &mut Voice, tenancies: &[Tenancy]) -> Result<()> {
    voice.step("What the provisioner itself says")?;
    let first = tenancies.first().context("there was no tenant")?;
    let log = ground.log();
    let story: Vec<_> = log
        .lines()
        .filter(|line| line.contains(&first.pv))
        .map(short)
        .collect();
    ensure!(story.len() >= 4, "the log does not tell of {}", first.pv);
    voice.shell(
        &format!("grep {} provisioner.log   # shortened", first.pv),
        &story.join("\n"),
    )?;

    let metrics = ground.http("/metrics")?;
    let of_volumes = |line: &str| {
        let at = line
            .find("persistentvolume")
            .filter(|_| line.contains("_total{"))?;
        Some(line[at..].to_owned())
    };
    let chosen: Vec<_> = metrics.lines().filter_map(of_volumes).collect();
    let directories = ground.machine.disks.iter().filter(|disk| !disk.is_raw());
    let cleaned = format!(" {}", directories.count());
    let counted = |line: &String| {
        line.contains("delete_total{mode=\"Filesystem\"") && line.ends_with(&cleaned)
    };
    ensure!(
        chosen.iter().any(counted),
        "/metrics has not counted the cleanups:\n{metrics}"
    );
    voice.shell(
        "curl -s http://.../metrics | grep -o 'persistentvolume.*_total{.*'",
        &chosen.join("\n"),
    )
}

/// A line of the log without its date, its module, and the fields that are the same in all.
fn short(line: &str) -> String {
    let (time, rest) = line.split_once('Z').unwrap_or(("", line));
    let (_, message) = rest.split_once(": ").unwrap_or(("", rest));
    let message = message.split(" pv=").next().unwrap_or(message);
    format!("{}  {message}", time.get(11..23).unwrap_or(time))
}

fn summary(ground: &Ground, voice: &mut Voice, times: &[u128]) -> Result<()> {
    let slowest = times.iter().max().context("no volume was recycled")?;
    voice.blank()?;
    voice.proven(&format!(
        "{} volumes recycled, each within {slowest} ms of the deletion of its claim",
        ground.machine.disks.len()
    ))?;
    voice.say("(with a build for debugging; scripts/bench measures properly)")
}
