//! Who may do what, and how it is reached: roles, accounts, secrets, Services, Leases.

use serde_json::{Value, json};

use super::{AGE, NAME, column, text, wide};
use crate::table::{Column, words::labels};

pub(super) static SECRETS: [Column; 4] = [
    NAME,
    column("Type", |o| text(&o["type"])),
    column("Data", |o| {
        json!(
            o["data"]
                .as_object()
                .map_or(0, serde_json::Map::len)
                .to_string()
        )
    }),
    AGE,
];

pub(super) static SERVICE_ACCOUNTS: [Column; 2] = [NAME, AGE];

pub(super) static LEASES: [Column; 3] = [
    NAME,
    column("Holder", |o| text(&o["spec"]["holderIdentity"])),
    AGE,
];

pub(super) static ROLE_BINDINGS: [Column; 6] = [
    NAME,
    column("Role", |o| {
        let [kind, name] =
            ["kind", "name"].map(|key| o["roleRef"][key].as_str().unwrap_or_default());
        json!(format!("{kind}/{name}"))
    }),
    AGE,
    wide("Users", |o| subjects(o, "User")),
    wide("Groups", |o| subjects(o, "Group")),
    wide("ServiceAccounts", |o| subjects(o, "ServiceAccount")),
];

/// Nothing gives a Service an address here.
pub(super) static SERVICES: [Column; 7] = [
    NAME,
    column("Type", |o| text(&o["spec"]["type"])),
    column("Cluster-IP", |o| {
        super::or(&o["spec"]["clusterIP"], "<none>")
    }),
    column("External-IP", |_| json!("<none>")),
    column("Port(s)", |o| {
        let ports = o["spec"]["ports"].as_array().into_iter().flatten();
        let ports: Vec<_> = ports.map(port).collect();
        json!(if ports.is_empty() {
            "<none>".to_owned()
        } else {
            ports.join(",")
        })
    }),
    AGE,
    wide("Selector", |o| json!(labels(&o["spec"]["selector"]))),
];

fn subjects(binding: &Value, kind: &str) -> Value {
    let all = binding["subjects"].as_array().into_iter().flatten();
    let wanted = all.filter(|subject| subject["kind"] == kind);
    let names = wanted.map(|subject| {
        let name = subject["name"].as_str().unwrap_or_default();
        match subject["namespace"].as_str() {
            Some(namespace) if !namespace.is_empty() => format!("{namespace}/{name}"),
            _ => name.to_owned(),
        }
    });
    json!(names.collect::<Vec<_>>().join(", "))
}

fn port(port: &Value) -> String {
    let protocol = port["protocol"].as_str().unwrap_or("TCP");
    let number = port["port"].as_u64().unwrap_or_default();
    match port["nodePort"].as_u64() {
        Some(node) if node > 0 => format!("{number}:{node}/{protocol}"),
        _ => format!("{number}/{protocol}"),
    }
}
