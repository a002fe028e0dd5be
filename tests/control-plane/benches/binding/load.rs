//! The volumes and the claims.

use std::fmt;

use serde_json::{Value, json};

/// Everything that is made is in this namespace, or has a name that begins so.
pub const NAME: &str = "binding-bench";
const CLASSES: usize = 20;

/// Which volumes and claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// One class, one size.
    Uniform,
    /// Twenty classes, five sizes, three sets of access modes, both volume modes, some selectors.
    Mixed,
    /// Every claim selects the one volume that comes last.
    LastSelected,
    /// Every claim is larger than every volume.
    TooLarge,
    /// Every volume is reserved for a claim that does not exist, and nothing is left for the claims.
    Reserved,
}

impl Load {
    pub const ALL: [Self; 5] = [
        Self::Uniform,
        Self::Mixed,
        Self::LastSelected,
        Self::TooLarge,
        Self::Reserved,
    ];

    /// How many of the claims get a volume.
    pub fn bound(self, count: usize) -> usize {
        match self {
            Self::Uniform | Self::Mixed => count,
            Self::LastSelected => 1,
            Self::TooLarge | Self::Reserved => 0,
        }
    }

    /// The classes of all loads; nobody makes volumes for them.
    pub fn classes() -> Vec<Value> {
        let numbered = (0..CLASSES).map(|class| format!("{NAME}-{class}"));
        let class = |name: String| {
            json!({
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": {"name": name},
                "provisioner": "kubernetes.io/no-provisioner",
                "volumeBindingMode": "Immediate",
            })
        };
        numbered.chain([NAME.to_owned()]).map(class).collect()
    }

    pub fn volume(self, number: usize, count: usize) -> Value {
        let mut volume = json!({
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {
                "name": format!("{NAME}-{number:05}"),
                "labels": {"kubernetes.io/hostname": format!("node-{}", number % 100)},
            },
            "spec": {
                "capacity": {"storage": "10Gi"},
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": NAME,
                "volumeMode": "Filesystem",
                "local": {"path": format!("/mnt/disks/{number}")},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [{
                    "key": "kubernetes.io/hostname",
                    "operator": "In",
                    "values": [format!("node-{}", number % 100)],
                }]}]}},
            },
        });
        match self {
            Self::Uniform | Self::TooLarge => {}
            Self::Mixed => {
                let kind = Kind::of(number);
                kind.shape(&mut volume["spec"]);
                volume["spec"]["capacity"]["storage"] = json!(kind.size());
                volume["metadata"]["labels"]["rack"] = json!(kind.rack());
            }
            Self::LastSelected => {
                volume["metadata"]["labels"]["last"] = json!((number + 1 == count).to_string());
            }
            Self::Reserved => {
                volume["spec"]["claimRef"] =
                    json!({"namespace": NAME, "name": format!("nobody-{number}")});
            }
        }
        volume
    }

    pub fn claim(self, number: usize) -> Value {
        let mut claim = json!({
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": format!("{NAME}-{number:05}")},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "10Gi"}},
                "storageClassName": NAME,
                "volumeMode": "Filesystem",
            },
        });
        let spec = &mut claim["spec"];
        match self {
            Self::Uniform | Self::Reserved => {}
            Self::Mixed => {
                let kind = Kind::of(number);
                kind.shape(spec);
                spec["resources"]["requests"]["storage"] = json!(kind.size());
                if kind.selects() {
                    spec["selector"] = json!({"matchLabels": {"rack": kind.rack()}});
                }
            }
            Self::LastSelected => spec["selector"] = json!({"matchLabels": {"last": "true"}}),
            Self::TooLarge => spec["resources"]["requests"]["storage"] = json!("11Gi"),
        }
        claim
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uniform => "all the same",
            Self::Mixed => "of many kinds",
            Self::LastSelected => "all select the last volume",
            Self::TooLarge => "all claims too large",
            Self::Reserved => "all volumes reserved for nobody",
        })
    }
}

/// A kind of volume in [`Load::Mixed`]: as many claims as volumes are of each, so that all find one.
struct Kind {
    class: usize,
    variant: usize,
}

impl Kind {
    fn of(number: usize) -> Self {
        Self {
            class: number % CLASSES,
            variant: number / CLASSES,
        }
    }

    /// The claims of two of the classes.
    fn selects(&self) -> bool {
        self.class >= CLASSES - 2
    }

    fn rack(&self) -> String {
        format!("rack-{}", self.variant % 10)
    }

    fn size(&self) -> String {
        format!("{}Gi", 1 + self.variant % 5)
    }

    fn shape(&self, spec: &mut Value) {
        let modes = ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"];
        spec["storageClassName"] = json!(format!("{NAME}-{}", self.class));
        spec["accessModes"] = json!(modes[..=self.class % 3]);
        spec["volumeMode"] = json!(if self.class < 3 {
            "Block"
        } else {
            "Filesystem"
        });
    }
}
