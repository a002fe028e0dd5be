//! Volumes that are directories: which of them are emptied, and when.

use std::{
    collections::{HashMap, HashSet},
    fs,
    path::PathBuf,
};

use proptest::prelude::*;
use serde_json::Value;

use super::{
    cases, check_end, check_way, owner, phase,
    steps::{Step, steps},
    text,
};
use crate::{
    controllers::{
        ControllerOptions,
        tests::{World, class, disturbance},
    },
    host_paths::HostPaths,
    meta,
    resource::{
        PERSISTENT_VOLUME_CLAIMS as CLAIMS, PERSISTENT_VOLUMES as VOLUMES, PODS, STORAGE_CLASSES,
    },
    store::{Event, EventKind},
};

/// What the user of a claim wrote into the directory of its volume.
struct Data {
    volume: String,
    file: PathBuf,
}

/// The users of the claims: they write when they get a volume, and look after it.
#[derive(Default)]
struct Users {
    /// By the UID of the claim.
    data: HashMap<String, Data>,
    /// Volumes whose claimRef a client edited. Where it does that while a volume is being emptied, the
    /// next claim's data is deleted as well, also by the real controller.
    freed: HashSet<String>,
    /// Directories that went with what was in them.
    deleted: Vec<PathBuf>,
}

impl Users {
    fn look(&mut self, world: &World) -> Result<(), TestCaseError> {
        let claims = world.store.list(&CLAIMS, None).items;
        let named: HashMap<&str, &str> = claims
            .iter()
            .map(|claim| (meta::uid(claim), text(&claim["spec"]["volumeName"])))
            .collect();
        let mut lost = Vec::new();
        for (claim, data) in self.data.iter().filter(|(_, data)| !data.file.exists()) {
            let is_its = named.get(claim.as_str()) == Some(&data.volume.as_str());
            let is_wrong = is_its && !self.freed.contains(&data.volume);
            prop_assert!(!is_wrong, "{} lost the data of its claim", data.volume);
            let directory = data.file.parent().filter(|path| !path.exists());
            self.deleted.extend(directory.map(PathBuf::from));
            lost.push(claim.clone());
        }
        self.data.retain(|claim, _| !lost.contains(claim));
        for volume in world.store.list(&VOLUMES, None).items {
            let (name, claim) = (meta::name(&volume), owner(&volume));
            let is_bound = phase(&volume) == "Bound" && named.get(claim) == Some(&name);
            if is_bound && !self.data.contains_key(claim) && !self.freed.contains(name) {
                let directory = PathBuf::from(text(&volume["spec"]["hostPath"]["path"]));
                let file = directory.join(claim);
                prop_assert!(fs::write(&file, "data").is_ok(), "{name} has no directory");
                let volume = name.to_owned();
                self.data.insert(claim.to_owned(), Data { volume, file });
            }
        }
        Ok(())
    }

    /// No available volume has the data of an earlier claim.
    fn leave(&self, world: &World) -> Result<(), TestCaseError> {
        for volume in world.store.list(&VOLUMES, None).items {
            let name = meta::name(&volume);
            if phase(&volume) == "Available" && !self.freed.contains(name) {
                let directory = text(&volume["spec"]["hostPath"]["path"]);
                let left: Vec<_> = fs::read_dir(directory).into_iter().flatten().collect();
                prop_assert!(left.is_empty(), "{volume}: {left:?}");
            }
        }
        Ok(())
    }
}

/// Directories are deleted with policy Delete alone.
fn check_deleted(writes: &[Event], deleted: &[PathBuf]) -> Result<(), TestCaseError> {
    for directory in deleted {
        let may_go = writes.iter().any(|event| {
            let spec = &event.object["spec"];
            spec["persistentVolumeReclaimPolicy"] == "Delete"
                && Some(text(&spec["hostPath"]["path"])) == directory.to_str()
        });
        prop_assert!(may_go, "{} was deleted", directory.display());
    }
    Ok(())
}

/// Pods that empty a volume are made for released ones alone.
fn check_recyclers(writes: &[Event]) -> Result<(), TestCaseError> {
    let mut volumes: HashMap<&str, &Value> = HashMap::new();
    let mut claims: HashMap<&str, &str> = HashMap::new();
    for event in writes {
        let (object, is_gone) = (&*event.object, event.kind == EventKind::Deleted);
        let (name, uid) = (meta::name(object), meta::uid(object));
        if event.resource == &VOLUMES && is_gone {
            volumes.remove(name);
        } else if event.resource == &VOLUMES {
            volumes.insert(name, object);
        } else if event.resource == &CLAIMS && is_gone {
            claims.remove(uid);
        } else if event.resource == &CLAIMS {
            claims.insert(uid, text(&object["spec"]["volumeName"]));
        } else if event.resource == &PODS
            && event.kind == EventKind::Added
            && let Some(of) = name.strip_prefix("recycler-for-")
        {
            let volume = volumes.get(of).copied();
            let Some(volume) = volume.filter(|v| matches!(phase(v), "Released" | "Failed")) else {
                return Err(TestCaseError::fail(format!("{of} is emptied: {volume:?}")));
            };
            let named = claims.get(owner(volume)).copied();
            let is_its = named.is_some_and(|named| named.is_empty() || named == of);
            prop_assert!(!is_its && !owner(volume).is_empty(), "emptied: {volume}");
        }
    }
    Ok(())
}

fn check(steps: &[Step]) -> Result<(), TestCaseError> {
    let root = tempfile::Builder::new().tempdir_in("/tmp").unwrap();
    let mut world = World::with(ControllerOptions {
        host_paths: Some(HostPaths::below(root.path()).unwrap()),
        ..ControllerOptions::default()
    });
    world.add_node("n1");
    world.add_node("n2");
    world.create(&STORAGE_CLASSES, class("fast", "Immediate"));
    world.create(&STORAGE_CLASSES, class("late", "WaitForFirstConsumer"));
    let mut writes = world.store.subscribe();
    let mut users = Users::default();
    users.freed.extend(steps.iter().filter_map(Step::frees));
    for step in steps {
        step.take(&mut world);
        users.look(&world)?;
        if matches!(step, Step::Settle) {
            world.settle_outside();
            users.look(&world)?;
        }
        if disturbance::has_crashed() {
            world.restart();
        }
    }
    world.let_go();
    world.disturb_no_more();
    for _ in 0..3 {
        world.rest();
        world.settle_outside();
        users.look(&world)?;
    }
    check_end(&world)?;
    users.leave(&world)?;
    let writes: Vec<_> = std::iter::from_fn(|| writes.try_recv().ok()).collect();
    check_recyclers(&writes)?;
    check_deleted(&writes, &users.deleted)?;
    check_way(writes.into_iter())
}

proptest! {
    #![proptest_config(cases(40))]

    #[test]
    fn directories_are_emptied_when_their_claims_are_gone(steps in steps()) {
        check(&steps)?;
    }
}
