//! What a failed test leaves to its reader, beside the program's log: the provisioner's requests, and the
//! objects as they are in the end.

use std::fmt::Write;
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::ListParams;
use kube::{Api, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Stage;

/// The limit of one list: an API server that the test has killed does not answer.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);

impl Drop for Stage {
    fn drop(&mut self) {
        let missed = self.faults().missed();
        if missed.is_empty() && !std::thread::panicking() {
            return;
        }
        let mut report = String::from("--- the provisioner's requests ---\n");
        for request in self.requests().all() {
            let _ = writeln!(report, "{request}");
        }
        report.push_str("--- the objects in the end ---\n");
        let client = &self.client;
        let namespace = &self.namespace();
        let claims = Api::namespaced(client.clone(), namespace);
        let pods = Api::namespaced(client.clone(), namespace);
        self.add::<PersistentVolume>(&mut report, &Api::all(client.clone()));
        self.add::<PersistentVolumeClaim>(&mut report, &claims);
        self.add::<Pod>(&mut report, &pods);
        self.add::<Job>(&mut report, &Api::all(client.clone()));
        self.add::<Event>(&mut report, &Api::all(client.clone()));
        eprint!("{report}");
        assert!(std::thread::panicking(), "these faults hit no request: {missed:#?}");
    }
}

impl Stage {
    /// Adds a line of JSON for each object that bears the stage's id. It must not panic.
    fn add<K>(&self, report: &mut String, api: &Api<K>)
    where
        K: Resource<DynamicType = ()> + Clone + Serialize + DeserializeOwned + std::fmt::Debug,
    {
        let parameters = ListParams::default();
        let listing = async { tokio::time::timeout(LIST_TIMEOUT, api.list(&parameters)).await };
        let Ok(Ok(list)) = self.block_on(listing) else {
            let _ = writeln!(report, "the list of {} was not answered", K::plural(&()));
            return;
        };
        for mut object in list {
            object.meta_mut().managed_fields = None;
            let line = serde_json::to_string(&object).unwrap_or_default();
            if line.contains(&self.id) {
                let _ = writeln!(report, "{} {line}", K::kind(&()));
            }
        }
    }
}
