//! The story: what happens to a volume between two tenants. What it claims, it checks.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use support::Program;

use crate::cluster::{CLAIMS, PODS, PVS, STORAGE_CLASSES, is_available, text};
use crate::fixture::Fixture;
use crate::printer::{Printer, columns};
use crate::tenant::{Tenancy, move_in};

/// The columns that fit a terminal.
const OF_CLASSES: &[&str] = &["NAME", "AGE"];
const OF_PVS: &[&str] = &["NAME", "CAPACITY", "STATUS", "CLAIM", "STORAGECLASS", "AGE"];
const OF_CLAIMS: &[&str] = &["NAME", "STATUS", "VOLUME", "CAPACITY", "STORAGECLASS", "AGE"];
const OF_PODS: &[&str] = &["NAME", "READY", "STATUS", "AGE"];

/// Runs it from the disks to the second tenant.
pub fn tell(fixture: &mut Fixture, printer: &mut Printer) -> Result<()> {
    the_disks(fixture, printer)?;
    discovery(fixture, printer)?;
    offering(fixture, printer)?;
    let tenancies = a_tenant(fixture, printer)?;
    data(fixture, printer, &tenancies)?;
    let times = release(fixture, printer, &tenancies)?;
    let next = the_next_tenant(fixture, printer)?;
    a_lost_object(fixture, printer, &next)?;
    what_it_says(fixture, printer, &tenancies)?;
    summary(fixture, printer, &times)
}

fn the_disks(fixture: &Fixture, printer: &mut Printer) -> Result<()> {
    printer.step("A node with some disks, mounted where only this process sees them")?;
    let disks = fixture.machine.disks.iter().map(|disk| (&disk.path, &disk.what));
    let no_volumes = fixture.machine.no_volumes.iter().map(|(path, what)| (path, what));
    let rows: Vec<_> = disks
        .chain(no_volumes)
        .map(|(path, what)| vec![path.display().to_string(), what.clone()])
        .collect();
    printer.say(&columns(&rows))?;
    for left_out in &fixture.machine.left_out {
        printer.say(&format!("Left out: {left_out}."))?;
    }
    Ok(())
}

fn discovery(fixture: &Fixture, printer: &mut Printer) -> Result<()> {
    printer.step("What would be offered, and why the rest would not")?;
    printer.shell("cat config/storageClassMap", &fixture.storage_class_map())?;
    let found = fixture.discover()?;
    printer.shell("local-volume-provisioner discover", &found)?;
    for disk in &fixture.machine.disks {
        ensure!(found.contains(&disk.name()), "discover does not find {}", disk.path.display());
    }
    Ok(())
}

fn offering(fixture: &mut Fixture, printer: &mut Printer) -> Result<()> {
    printer.step("The provisioner starts and offers every disk as a PersistentVolume")?;
    printer.say(&format!(
        "The API at {} knows one node, and a class per directory:",
        fixture.cluster.url()
    ))?;
    for class in fixture.classes() {
        fixture.cluster.create(
            STORAGE_CLASSES,
            &json!({
                "metadata": { "name": class },
                "provisioner": "kubernetes.io/no-provisioner",
                "reclaimPolicy": "Delete",
                "volumeBindingMode": "WaitForFirstConsumer",
            }),
        )?;
    }
    printer
        .shell("kubectl get storageclass", &fixture.cluster.table(STORAGE_CLASSES, OF_CLASSES)?)?;
    let start = Instant::now();
    fixture.start_provisioner()?;
    let wanted = fixture.machine.disks.len();
    let (cluster, provisioner) = (&fixture.cluster, &mut fixture.provisioner);
    cluster.eventually(&format!("sight of {wanted} Available PVs"), |cluster| {
        if !provisioner.as_mut().is_some_and(Program::is_running) {
            bail!("the provisioner has ended");
        }
        let pvs = cluster.list(PVS)?;
        Ok((pvs.iter().filter(|pv| is_available(pv)).count() == wanted).then_some(()))
    })?;
    let took = start.elapsed().as_millis();
    printer.shell("kubectl get pv", &fixture.cluster.table(PVS, OF_PVS)?)?;
    printer.proven(&format!("{wanted} volumes offered {took} ms after the start of the process"))
}

fn a_tenant(fixture: &Fixture, printer: &mut Printer) -> Result<Vec<Tenancy>> {
    printer.step("A tenant claims them all")?;
    let tenancies = move_in(fixture, "tenant-1", "data")?;
    printer.shell("kubectl get pod", &fixture.cluster.table(PODS, OF_PODS)?)?;
    printer.shell("kubectl get pvc", &fixture.cluster.table(CLAIMS, OF_CLAIMS)?)?;
    Ok(tenancies)
}

fn data(fixture: &Fixture, printer: &mut Printer, tenancies: &[Tenancy]) -> Result<()> {
    printer.step("The tenant writes")?;
    for tenancy in tenancies {
        let disk = &fixture.machine.disks[tenancy.disk];
        disk.write(&fixture.machine.neighbour)?;
        ensure!(!disk.contents()?.is_empty(), "nothing was written to {}", disk.path.display());
    }
    let rows = tenancies.iter().map(|tenancy| {
        let disk = &fixture.machine.disks[tenancy.disk];
        Ok(vec![disk.name(), disk.contents()?.join("  ")])
    });
    printer.say(&columns(&rows.collect::<Result<Vec<_>>>()?))?;
    let neighbour = fixture.machine.neighbour.display();
    printer.say(&format!("way-out is a symbolic link to {neighbour}, which must survive."))
}

fn release(fixture: &Fixture, printer: &mut Printer, tenancies: &[Tenancy]) -> Result<Vec<u128>> {
    printer.step("The tenant leaves: each volume is wiped, checked, and offered again")?;
    fixture.cluster.delete(PODS, "tenant-1")?;
    printer.shell("kubectl delete pod tenant-1", "")?;
    let mut times = Vec::new();
    for tenancy in tenancies {
        let disk = &fixture.machine.disks[tenancy.disk];
        let before = disk.contents()?;
        let start = Instant::now();
        fixture.cluster.delete(CLAIMS, &tenancy.claim)?;
        let fresh = fixture.cluster.eventually(
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
        let contents = if after.is_empty() { "nothing".to_owned() } else { after.join("  ") };
        printer.shell(
            &format!("kubectl delete pvc {}", tenancy.claim),
            &columns(&[
                vec!["before", before.join("  ").as_str()],
                vec!["after", contents.as_str()],
            ]),
        )?;
        ensure!(after.is_empty(), "{} still holds {}", disk.path.display(), contents);
        printer.proven(&format!(
            "{} is clean, and offered again as {} after {took} ms",
            disk.name(),
            text(&fresh, "/metadata/name"),
        ))?;
        times.push(took);
    }
    ensure!(
        fixture.machine.neighbour.is_file(),
        "{} was deleted through a symbolic link",
        fixture.machine.neighbour.display()
    );
    printer.proven(&format!("{} is still there", fixture.machine.neighbour.display()))?;
    printer.shell("kubectl get pv", &fixture.cluster.table(PVS, OF_PVS)?)?;
    Ok(times)
}

fn the_next_tenant(fixture: &Fixture, printer: &mut Printer) -> Result<Vec<Tenancy>> {
    printer.step("The next tenant finds nothing")?;
    let tenancies = move_in(fixture, "tenant-2", "fresh")?;
    printer.shell("kubectl get pvc", &fixture.cluster.table(CLAIMS, OF_CLAIMS)?)?;
    for tenancy in &tenancies {
        let disk = &fixture.machine.disks[tenancy.disk];
        let found = disk.contents()?;
        ensure!(found.is_empty(), "{} still holds {}", disk.path.display(), found.join("  "));
    }
    printer.proven(&format!("{} volumes, all empty", tenancies.len()))?;
    Ok(tenancies)
}

fn a_lost_object(
    fixture: &mut Fixture,
    printer: &mut Printer,
    tenancies: &[Tenancy],
) -> Result<()> {
    printer.step("A PersistentVolume is lost, as with a restored etcd: its data is not offered")?;
    let lost = tenancies.first().context("there was no tenant")?;
    let disk = &fixture.machine.disks[lost.disk];
    let (entry, path) = (disk.name(), disk.path.display().to_string());
    disk.write(&fixture.machine.neighbour)?;
    fixture.cluster.lose(PVS, &lost.pv)?;
    let provisioner = &mut fixture.provisioner;
    let skipped = fixture.cluster.eventually("dirty volume", |_| {
        let provisioner = provisioner.as_mut().context("the provisioner has not started")?;
        let status: Value = serde_json::from_str(&provisioner.http_get("/status")?.1)?;
        let classes = status["classes"].as_array().into_iter().flatten();
        let mut volumes =
            classes.flat_map(|class| class["volumes"].as_array().into_iter().flatten());
        let is_dirty = |it: &&Value| text(it, "/entry") == entry && text(it, "/reason") == "Dirty";
        Ok(volumes.find(is_dirty).cloned())
    })?;
    printer.shell(
        "local-volume-provisioner status",
        &columns(&[
            vec!["ENTRY", "STATE", "WHAT"],
            vec![&entry, text(&skipped, "/state"), text(&skipped, "/reason")],
        ]),
    )?;
    let detail = text(&skipped, "/detail");
    let (why, _) = detail.split_once(", of PV UID").context("it names no PV")?;
    printer.say(&format!("{} ...", why.replace(&path, &entry)))?;
    let disk = &fixture.machine.disks[lost.disk];
    ensure!(!disk.contents()?.is_empty(), "the data on {entry} was deleted");
    printer.proven(&format!("{entry} keeps its data: its mark names a PV that is gone"))
}

fn what_it_says(fixture: &mut Fixture, printer: &mut Printer, tenancies: &[Tenancy]) -> Result<()> {
    printer.step("What the provisioner itself says")?;
    let first = tenancies.first().context("there was no tenant")?;
    let log = fixture.log();
    let story: Vec<_> = log.lines().filter(|line| line.contains(&first.pv)).map(short).collect();
    ensure!(story.len() >= 4, "the log does not tell of {}", first.pv);
    printer
        .shell(&format!("grep {} provisioner.log   # shortened", first.pv), &story.join("\n"))?;

    let metrics = fixture.http("/metrics")?;
    let of_volumes = |line: &str| {
        let at = line.find("persistentvolume").filter(|_| line.contains("_total{"))?;
        Some(line[at..].to_owned())
    };
    let chosen: Vec<_> = metrics.lines().filter_map(of_volumes).collect();
    let directories = fixture.machine.disks.iter().filter(|disk| !disk.is_raw());
    let cleaned = format!(" {}", directories.count());
    let counted = |line: &String| {
        line.contains("delete_total{mode=\"Filesystem\"") && line.ends_with(&cleaned)
    };
    ensure!(chosen.iter().any(counted), "/metrics has not counted the cleanups:\n{metrics}");
    printer.shell(
        "curl -s http://.../metrics | grep -o 'persistentvolume.*_total{.*'",
        &chosen.join("\n"),
    )
}

/// A line of the log without its date, its module, and the fields that are the same in all.
fn short(line: &str) -> String {
    let (time, rest) = line.split_once('Z').unwrap_or(("", line));
    // The fields of the span are before the module.
    let (_, message) = rest.split_once(" local_volume_provisioner::").unwrap_or(("", rest));
    let (_, message) = message.split_once(": ").unwrap_or(("", message));
    let message = message.split(" pv=").next().unwrap_or(message);
    format!("{}  {message}", time.get(11..23).unwrap_or(time))
}

fn summary(fixture: &Fixture, printer: &mut Printer, times: &[u128]) -> Result<()> {
    let slowest = times.iter().max().context("no volume was recycled")?;
    printer.blank()?;
    printer.proven(&format!(
        "{} volumes recycled, each within {slowest} ms of the deletion of its claim",
        fixture.machine.disks.len()
    ))?;
    printer.say("(with a build for debugging; scripts/bench measures properly)")
}
