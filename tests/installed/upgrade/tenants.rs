//! Volumes of tenants, in each state that a change of version meets.

use serde_json::{Value, json};

use crate::cluster::{USERS, name, path};
use crate::disks::{entries, is_on_device};
use crate::marks::{in_state, lose, restore, write, written};
use crate::{Cluster, Release};

/// The class of filesystems, and that of raw devices.
pub const CLASSES: [(&str, &str); 2] = [("files", "Filesystem"), ("raw", "Block")];

/// What became of a tenant's volume under the first version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Bound, with a pod that runs.
    Running,
    /// Bound, without a pod.
    Idle,
    /// Released, with the policy Retain.
    Retained,
    /// Its PV was deleted, and its claim was not.
    Terminating,
    /// Its PV was deleted by force. The mark is left.
    Orphaned,
    /// Its PV was restored from a backup. The mark names the former one.
    Held,
}

pub const STATES: [State; 6] = [
    State::Running,
    State::Idle,
    State::Retained,
    State::Terminating,
    State::Orphaned,
    State::Held,
];

impl State {
    /// How `/status` shows it, under each version.
    pub fn shown(self) -> &'static str {
        match self {
            Self::Running | Self::Idle => "Bound",
            Self::Retained => "Retained",
            Self::Terminating => "Terminating",
            Self::Orphaned => "Skipped",
            Self::Held => "MarkMismatch",
        }
    }

    /// Whether a claim is bound to the volume.
    fn has_claim(self) -> bool {
        !matches!(self, Self::Retained | Self::Orphaned)
    }
}

/// A tenant's volume.
pub struct Tenant {
    pub state: State,
    pub claim: String,
    mode: &'static str,
    pub pv: Value,
    /// That of the pod that runs.
    pod: Value,
}

/// Brings volumes of both modes to each state.
pub fn bring(cluster: &Cluster, release: &Release) -> Vec<Tenant> {
    let all = CLASSES.iter().flat_map(|class| STATES.map(|state| (class, state)));
    let named: Vec<_> = all
        .map(|((class, mode), state)| {
            let claim = format!("{state:?}-{class}").to_lowercase();
            write(cluster, &claim, class, mode);
            (state, claim, *mode)
        })
        .collect();
    named
        .into_iter()
        .map(|(state, claim, mode)| {
            let pv = written(cluster, &claim);
            let mut tenant = Tenant { state, claim, mode, pv, pod: Value::Null };
            tenant.enter(cluster);
            assert!(tenant.has_data(), "{}", tenant.claim);
            in_state(cluster, release, path(&tenant.pv), state.shown());
            tenant
        })
        .collect()
}

impl Tenant {
    fn data(&self) -> String {
        format!("data of {}", self.claim)
    }

    /// Whether the volume has the tenant's data.
    pub fn has_data(&self) -> bool {
        let volume = path(&self.pv);
        match self.mode {
            "Block" => is_on_device(volume, self.data().as_bytes()),
            _ => std::fs::read_to_string(volume.join("file")).is_ok_and(|it| it == self.data()),
        }
    }

    /// Whether the volume has nothing of the tenant.
    pub fn is_clean(&self) -> bool {
        !self.has_data() && (self.mode == "Block" || entries(path(&self.pv)).is_empty())
    }

    fn now(&self, cluster: &Cluster) -> Option<Value> {
        cluster.get("persistentvolume", name(&self.pv), None)
    }

    /// Brings the volume to its state.
    fn enter(&mut self, cluster: &Cluster) {
        let (claim, pv) = (&*self.claim, &self.pv);
        match self.state {
            State::Running => {
                cluster.pod(claim, claim, self.mode, "sleep 1000");
                cluster.pod_in_phase(claim, "Running");
                self.pod = cluster.get("pod", claim, Some(USERS)).unwrap();
            }
            State::Idle => {}
            State::Retained => {
                self.set_policy(cluster, "Retain");
                cluster.delete_claim(claim);
                cluster.in_phase(pv, "Released");
            }
            State::Terminating => {
                cluster.delete("pv", name(pv), &["--wait=false"]);
            }
            State::Orphaned => {
                lose(cluster, pv);
                cluster.delete_claim(claim);
            }
            State::Held => {
                lose(cluster, pv);
                self.pv = restore(cluster, pv);
                cluster.event(&self.pv, "VolumeMarkMismatch");
            }
        }
    }

    fn set_policy(&self, cluster: &Cluster, policy: &str) {
        let patch = json!({ "spec": { "persistentVolumeReclaimPolicy": policy } }).to_string();
        cluster.kubectl(&["patch", "pv", name(&self.pv), "--patch", &patch]).unwrap();
    }

    /// Asserts that the other version has taken the volume over as it was.
    pub fn was_kept(&self, cluster: &Cluster, release: &Release) {
        let claim = &*self.claim;
        in_state(cluster, release, path(&self.pv), self.state.shown());
        assert!(self.has_data(), "{claim}");
        let pv = self.now(cluster);
        let uid = pv.as_ref().map(|pv| &pv["metadata"]["uid"]);
        let is_lost = self.state == State::Orphaned;
        assert_eq!(uid, (!is_lost).then(|| &self.pv["metadata"]["uid"]), "{claim}");
        if let Some(pv) = &pv {
            let is_terminating = self.state == State::Terminating;
            assert_eq!(pv["metadata"]["deletionTimestamp"].is_string(), is_terminating, "{claim}");
            let phase = if self.state.has_claim() { "Bound" } else { "Released" };
            assert_eq!(pv["status"]["phase"], phase, "{claim}");
        }
        if self.state == State::Held {
            cluster.event(&self.pv, "VolumeMarkMismatch");
        }
        if self.state == State::Running {
            let pod = cluster.get("pod", claim, Some(USERS)).unwrap();
            assert_eq!(pod["metadata"]["uid"], self.pod["metadata"]["uid"]);
            assert_eq!(pod["status"]["phase"], "Running");
            assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 0);
        }
    }

    /// Asserts that a new pod of the tenant reads its data.
    pub fn is_readable(&self, cluster: &Cluster) {
        if !self.state.has_claim() {
            return;
        }
        if self.state == State::Running {
            cluster.delete("pod", &self.claim, &[]);
        }
        let data = self.data();
        let read = match self.mode {
            "Block" => format!("dd if=/dev/data bs=1M skip=8 2>/dev/null | head -c {}", data.len()),
            _ => "cat /data/file".into(),
        };
        assert_eq!(cluster.run_pod("reader", &self.claim, self.mode, &read), data);
    }

    /// The tenant leaves, or gives up its data.
    pub fn release(&self, cluster: &Cluster) {
        match self.state {
            State::Orphaned => {}
            State::Retained => self.set_policy(cluster, "Delete"),
            _ => cluster.delete_claim(&self.claim),
        }
    }

    /// Asserts that the volume is then recycled, or still has the data if an operator has to decide; which of these.
    pub fn ended(&self, cluster: &Cluster, release: &Release) -> &'static str {
        match self.state {
            State::Orphaned => {
                in_state(cluster, release, path(&self.pv), "Skipped");
                assert!(self.has_data() && self.now(cluster).is_none(), "{}", self.claim);
                "kept, not offered"
            }
            State::Held => {
                cluster.in_phase(&self.pv, "Released");
                release.still("its data is kept", || self.has_data());
                let uid = self.now(cluster).map(|pv| pv["metadata"]["uid"].clone());
                assert_eq!(uid.as_ref(), Some(&self.pv["metadata"]["uid"]), "{}", self.claim);
                "kept, not wiped"
            }
            _ => {
                cluster.recycled(&self.pv);
                assert!(self.is_clean(), "{}", self.claim);
                "recycled"
            }
        }
    }
}
