//! The address of the API server leads to another cluster for some seconds.

use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;

use control_plane::{ControlPlane, NodeOptions, Options};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use parking_lot::Mutex;

use super::*;
use crate::kit::{fast, offered_again, ready, status, status_of};

const POD: &str = "provisioner-pod";

/// An address that leads to one control plane at a time.
struct Address {
    port: u16,
    state: Arc<Mutex<(String, Vec<TcpStream>)>>,
}

impl Address {
    fn of(control_plane: &ControlPlane) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(Mutex::new((host_of(control_plane), Vec::new())));
        let now = Arc::clone(&state);
        std::thread::spawn(move || {
            for near in listener.incoming() {
                let near = near.unwrap();
                let mut state = now.lock();
                let far = TcpStream::connect(&state.0).unwrap();
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    std::thread::spawn(move || {
                        let _ = io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
                state.1.extend([near, far]);
            }
        });
        Self { port, state }
    }

    /// Leads to another one, and closes all connections.
    fn lead_to(&self, control_plane: &ControlPlane) {
        let mut state = self.state.lock();
        state.0 = host_of(control_plane);
        for connection in state.1.drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

fn host_of(control_plane: &ControlPlane) -> String {
    let url = control_plane.url();
    url.strip_prefix("http://").unwrap().to_owned()
}

/// Leads the provisioner to `other` while it releases a clean volume and is to offer a new one.
fn visit(is_copy: bool, cause: &str) {
    let stage = or_skip!(bare_stage());
    let Some(home) = stage.embedded() else {
        return support::skip("the address of a real cluster cannot lead elsewhere");
    };
    let other = ControlPlane::start(Options {
        node: Some(NodeOptions::new(stage.node())),
        ..Options::default()
    });
    let other = other.unwrap();
    if is_copy {
        other.store().copy_cluster_uid(home.store()).unwrap();
    }
    let address = Address::of(home);
    let kubeconfig = stage.sandbox.path().join("moving");
    let url = format!("http://127.0.0.1:{}", address.port);
    fs::write(&kubeconfig, home.kubeconfig().replace(home.url(), &url)).unwrap();
    stage.pod_with_host_path(POD, "/dev/null");
    let pods: Api<Pod> = Api::namespaced(stage.client.clone(), &stage.namespace());
    let pod = stage.request(pods.get(POD)).metadata.uid.unwrap();
    // By it the kubelet's directory is recognised.
    stage.sandbox.dir(&format!("kubelet/pods/{pod}")).unwrap();

    let [volume] = fast_volumes(&stage, ["vol"]);
    let mut provisioner = stage.provisioner_with(&[
        ("KUBECONFIG", kubeconfig.to_str().unwrap()),
        ("POD_NAME", POD),
        ("POD_UID", &pod),
    ]);
    let bound = stage.occupy("claim", &volume);
    let read = stage.faults().on(Verb::Get).resource(PVS);
    let held = read.name(&name(&bound)).skip(1).times(1).hold();
    stage.delete_claim("claim");
    stage.eventually("the volume is clean", || held.hits() == 1);

    address.lead_to(&other);
    let late = fast(&stage, "late");
    stage.eventually("the other cluster is found", || {
        let asked = |uid: &str| other.requests().count(|it| it.path.contains(uid)) > 0;
        asked("persistentvolumes") || asked("kube-system")
    });
    stage.eventually("writes are stopped", || {
        let degraded = status(&mut provisioner)["degraded"].to_string();
        degraded.contains(cause)
    });
    let (code, why) = provisioner.http_get("/ready").unwrap();
    assert!(code != 200 && why.contains(cause), "{code} {why}");
    held.clear();
    let passes = |provisioner: &mut Program| {
        let number = &status(provisioner)["pass"]["number"];
        number.as_u64().unwrap()
    };
    let before = passes(&mut provisioner);
    stage.eventually("more passes", || passes(&mut provisioner) >= before + 3);
    let writes = other.requests().count(control_plane::requests::Request::writes);
    assert_eq!(writes, 0, "nothing is written to another cluster");
    let volume_now = status_of(&mut provisioner, &volume);
    assert_eq!(volume_now["state"], "Cleaning", "it is not released");
    let found = stage.pvs_at(&volume);
    assert!(found.len() == 1 && uid(&found[0]) == uid(&bound));

    address.lead_to(home);
    offered_again(&stage, &volume, &bound);
    stage.available(&late, None);
    ready(&stage, &mut provisioner);
    assert_eq!(status(&mut provisioner)["degraded"], json!([]));
    assert_eq!(wipes(&provisioner, &volume), 1);
    assert_eq!(stage.pvs().len(), 2);
}

#[test]
fn release_in_an_empty_cluster_does_not_count_and_no_pv_is_created_there() {
    visit(false, "namespaces/kube-system is");
}

#[test]
fn release_in_a_copy_without_our_pod_does_not_count_and_no_pv_is_created_there() {
    visit(true, "/pods/provisioner-pod is absent");
}
