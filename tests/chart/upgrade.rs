//! A release of the other provisioner's chart, upgraded to this one on a real API server.

use std::ffi::OsString;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::rbac::v1::Role;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Config, ResourceExt};
use serde::de::DeserializeOwned;
use support::skip;

use crate::helm::{Helm, chart_dir};

/// A release of these tests alone, of which no pod ever runs.
const RELEASE: &str = "chart-upgrade-test";
const NAMESPACE: &str = "default";
const NOWHERE: &str = "nodeSelector.chart-upgrade-test=nowhere";
const INSTANCE: &str = "app.kubernetes.io/instance";
/// Tells the test's definition of a ServiceMonitor from that of a Prometheus operator.
const OF_THIS_TEST: &str = "local-volume-provisioner.test/upgrade";

/// Helm at work in the cluster that `TEST_KUBECONFIG` names.
struct Release {
    helm: Helm,
    kubeconfig: OsString,
}

impl Release {
    fn new() -> Option<Self> {
        let Some(kubeconfig) = std::env::var_os("TEST_KUBECONFIG") else {
            skip("TEST_KUBECONFIG names no real cluster to upgrade a release in");
            return None;
        };
        let helm = Helm::find()?;
        let release = Self { helm, kubeconfig };
        // What a run that was killed has left.
        release.uninstall().unwrap();
        Some(release)
    }

    fn run(&self, command: &str, args: &[&str]) -> Result<String, String> {
        let head = [command, RELEASE, "--namespace", NAMESPACE];
        let line = [&head[..], args].concat();
        self.helm.run(Some(&self.kubeconfig), &line)
    }

    /// Installs a release of the other chart, and nothing of the one before is left.
    fn begin(&self, name: &str, label: &str) {
        self.uninstall().unwrap();
        let chart = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/chart/go-chart");
        let values = format!("name={name},label={label}");
        self.run("install", &[chart, "--set", &values]).unwrap();
    }

    fn uninstall(&self) -> Result<String, String> {
        self.run("uninstall", &["--no-hooks", "--ignore-not-found", "--wait"])
    }

    fn upgrade(&self, sets: &str) -> Result<String, String> {
        let chart = chart_dir();
        let sets = [NOWHERE, "serviceMonitor.enabled=true,image=none", sets].join(",");
        self.run("upgrade", &[chart.to_str().unwrap(), "--set", &sets])
    }

    /// Name and UID of each object that has the release's label.
    fn objects<K>(&self) -> Vec<(String, String)>
    where
        K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        self.ask(async |client| {
            let api: Api<K> = Api::namespaced(client, NAMESPACE);
            let ours = ListParams::default().labels(&format!("{INSTANCE}={RELEASE}"));
            let list = api.list(&ours).await.unwrap();
            let entry = |object: K| (object.name_any(), object.uid().unwrap());
            list.into_iter().map(entry).collect()
        })
    }

    fn ask<T>(&self, question: impl AsyncFnOnce(Client) -> T) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let kubeconfig = Kubeconfig::read_from(&self.kubeconfig).unwrap();
            let options = KubeConfigOptions::default();
            let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
            question(Client::try_from(config.unwrap()).unwrap()).await
        })
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        let _ = self.uninstall();
        self.ask(async |client| {
            let definitions: Api<CustomResourceDefinition> = Api::all(client);
            let of_this_test = ListParams::default().labels(OF_THIS_TEST);
            let _ = definitions.delete_collection(&DeleteParams::default(), &of_this_test).await;
        });
    }
}

#[test]
fn the_other_provisioners_release_is_upgraded_in_place_or_not_at_all() {
    let release = or_skip!(Release::new());
    let usual = format!("{RELEASE}-local-static-provisioner");
    let of_own_name = format!("{RELEASE}-foo");
    let as_usual = "set nameOverride to local-static-provisioner";
    // DaemonSet and label; each wrong setting with its reported remedy; the right one.
    for (name, label, wrong, right) in [
        (
            &*usual,
            "local-static-provisioner",
            vec![("", as_usual), ("fullnameOverride=x", "and remove fullnameOverride")],
            "nameOverride=local-static-provisioner",
        ),
        (
            &*of_own_name,
            "foo",
            vec![
                ("nameOverride=local-static-provisioner", "set nameOverride to foo"),
                ("", "set nameOverride to foo"),
            ],
            "nameOverride=foo",
        ),
        (
            "upgraded-disks",
            "local-static-provisioner",
            vec![
                ("fullnameOverride=upgraded-disks", as_usual),
                ("nameOverride=local-static-provisioner", "fullnameOverride to upgraded-disks"),
            ],
            "fullnameOverride=upgraded-disks,nameOverride=local-static-provisioner",
        ),
    ] {
        release.begin(name, label);
        let before = release.objects::<DaemonSet>();
        let uid = |objects: &[(String, String)]| {
            let found = objects.iter().find(|(other, _)| other == name);
            found.map(|(_, uid)| uid.clone())
        };
        let service = release.objects::<Service>();
        for (sets, remedy) in wrong {
            let said = release.upgrade(sets).unwrap_err();
            assert!(said.contains(remedy) && said.contains(name), "{sets}: {said}");
            assert_eq!(release.objects::<DaemonSet>(), before);
        }
        // Once in place, and once more as a release of ours.
        for sets in [right, &format!("{right},pauseCleaning=true")] {
            release.upgrade(sets).unwrap();
            let now = release.objects::<DaemonSet>();
            assert_eq!(now.len(), 1, "{now:?}");
            assert_eq!(uid(&now), uid(&before), "{sets}");
            assert_eq!(release.objects::<Service>(), service);
            let roles = release.objects::<Role>();
            assert_eq!(roles.len(), 1, "{roles:?}");
            assert_eq!(roles[0].0, format!("{name}-jobs"));
        }
        let renamed = release.upgrade("nameOverride=renamed").unwrap_err();
        assert!(renamed.contains(name), "{renamed}");
    }
}
