//! What the provisioner of a node may say of objects.

use serde_json::{Value, json};

use super::fixture::Act::CreateEvent;
use super::{Scene, refused_at_last};

impl Scene {
    fn event(&self) -> Value {
        let component = "local-volume-provisioner";
        let about = json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": "data", "namespace": self.account });
        json!({
            "metadata": { "generateName": "data.", "namespace": self.account },
            "involvedObject": about,
            "reason": "VolumeCleaned",
            "type": "Normal",
            "source": { "component": component, "host": self.mine },
            "reportingComponent": component,
            "reportingInstance": format!("{component}-{}-uid", self.mine),
        })
    }

    pub async fn events_say_which_node_they_are_from(&self) {
        let (attacker, mine, other) = (&self.attacker, &self.mine, &self.other);
        let with = |pointer: &str, value: Value| {
            let mut event = self.event();
            *event.pointer_mut(pointer).unwrap() = value;
            event
        };
        attacker.may("an event", CreateEvent(self.event())).await;
        let about = |kind: &str, name: &str| {
            let api = json!({ "apiVersion": "v1", "kind": kind, "name": name });
            let mut event = with("/involvedObject", api);
            event["metadata"]["namespace"] = json!("default");
            event
        };
        let words = ["node isolation", mine, "source.host"];
        for (what, event) in [
            ("from another node", with("/source/host", json!(other))),
            ("from the scheduler", with("/source/component", json!("default-scheduler"))),
            ("by the scheduler", with("/reportingComponent", json!("default-scheduler"))),
            ("about another Node", about("Node", other)),
            ("about a Secret", about("Secret", "x")),
        ] {
            let what = format!("an event {what}");
            attacker.may_not(&what, CreateEvent(event), &words).await;
        }
    }

    pub async fn until_events_are_judged(&self) {
        let mut event = self.event();
        event["source"]["host"] = json!(self.other);
        refused_at_last(async || self.attacker.does(CreateEvent(event.clone())).await).await;
    }
}
