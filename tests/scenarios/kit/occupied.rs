//! A volume of which a tenant has made use.

use std::collections::BTreeMap;

use super::*;

/// A volume with a tenant's data, whose PV is Bound to the claim `claim` and marked as used.
pub struct Occupied {
    pub provisioner: Program,
    pub pv: PersistentVolume,
    pub path: PathBuf,
    /// The device of a raw volume.
    device: Option<LoopDevice>,
    data: BTreeMap<PathBuf, Vec<u8>>,
    pub stage: Stage,
}

/// A tmpfs of the class `fast`, with the secret in it.
pub fn occupied() -> Option<Occupied> {
    crate::stage().map(Occupied::fast)
}

/// A device of the class `raw` with these further settings, scribbled on.
pub fn occupied_raw(settings: &Value) -> Option<Occupied> {
    crate::stage().map(|stage| Occupied::raw(stage, settings))
}

impl Occupied {
    /// As [`occupied`].
    pub fn fast(stage: Stage) -> Self {
        stage.class("fast", &json!({}));
        let path = fast(&stage, "vol-1");
        Self::at(stage, path)
    }

    /// As [`occupied_raw`].
    pub fn raw(stage: Stage, settings: &Value) -> Self {
        let (device, path) = raw_volume(&stage, settings);
        Self::raw_at(stage, path, device)
    }

    /// A device that a configured class offers, scribbled on.
    pub fn raw_at(stage: Stage, path: PathBuf, device: LoopDevice) -> Self {
        Self::new(stage, path, Some(device))
    }

    /// A directory that a configured class offers, with the secret in it.
    pub fn at(stage: Stage, path: PathBuf) -> Self {
        Self::new(stage, path, None)
    }

    fn new(stage: Stage, path: PathBuf, device: Option<LoopDevice>) -> Self {
        let provisioner = stage.provisioner();
        let pv = stage.used(&stage.bind("claim", &path));
        let mut volume = Self { provisioner, pv, path, device, data: BTreeMap::new(), stage };
        volume.write();
        volume
    }

    fn write(&mut self) {
        match &self.device {
            Some(device) => scribble(device.path()),
            None => keep_secret(&self.path),
        }
        self.note_data();
    }

    /// Has [`Occupied::is_kept`] compare with what is on the volume now.
    pub fn note_data(&mut self) {
        self.data = data_at(&self.path);
    }

    /// The device of a raw volume.
    pub fn device(&self) -> &LoopDevice {
        self.device.as_ref().unwrap()
    }

    /// Gives the volume, which is Available, to another tenant with a claim of the same name.
    pub fn occupy_again(&mut self) {
        self.pv = self.stage.used(&self.stage.bind("claim", &self.path));
        self.write();
    }

    /// Deletes the claim and waits until the PV is Released.
    pub fn release(&self) {
        self.stage.delete_claim("claim");
        self.stage.in_phase(&name(&self.pv), "Released");
    }

    /// Deletes the PV, without waiting for its removal.
    pub fn delete_pv(&self) {
        self.stage.delete_pv(&name(&self.pv));
    }

    /// Sets (or, with null, removes) an annotation of the PV.
    pub fn annotate(&mut self, key: &str, value: impl Into<Value>) {
        self.pv = annotate(&self.stage, &name(&self.pv), key, value);
    }

    /// Ends the provisioner.
    pub fn stop(&mut self) {
        let status = self.provisioner.stop(self.stage.timeout()).unwrap();
        assert!(status.success(), "{status}");
    }

    /// Starts another provisioner.
    pub fn start(&mut self) {
        self.provisioner = self.stage.provisioner();
    }

    /// Waits until the cleanup waits for something.
    pub fn waits(&mut self) {
        cleanup_waits(&self.stage, &mut self.provisioner, &self.path);
    }

    /// Asserts, after two passes, that the PV is in this phase, and neither it nor any of the data has changed.
    pub fn is_kept(&mut self, phase: &str, why: &str) {
        let (stage, pv) = (&self.stage, &self.pv);
        stage.still(&mut self.provisioner, why, || {
            is_untouched(stage, pv, phase) && data_at(&self.path) == self.data
        });
    }

    /// Waits until the volume is offered with a new PV, and asserts that no data is left.
    pub fn is_cleaned(&self) -> PersistentVolume {
        let fresh = offered_again(&self.stage, &self.path, &self.pv);
        match &self.device {
            Some(device) => assert_eq!(secrets_on(device.path()), [0; 0]),
            None => assert!(entries(&self.path).is_empty()),
        }
        fresh
    }
}
