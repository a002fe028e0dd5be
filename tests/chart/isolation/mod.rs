//! Node isolation: what a real API server permits to the provisioner of a compromised node.
//!
//! Requires the cluster that `TEST_KUBECONFIG` names. All that is made there is labelled, and removed
//! at the end; what a run that was killed has left is removed by the next.

mod events;
mod fixture;
mod objects;

use std::future::Future;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::time::{Duration, Instant};

use futures::FutureExt;
use k8s_openapi::api::core::v1::{Node, PersistentVolume};
use kube::api::DeleteParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};
use local_volume_provisioner::names::LABEL_IDENTITY_HASH;
use serde_json::{Value, json};
use support::names::DEFAULT_TAINT_KEY;
use support::skip;

use crate::helm::Helm;
use fixture::Act::{CreateJob, CreatePv, DeleteJob, DeletePv, PatchPv};
use fixture::{Answer, Fixture, HOST_DIR, HOSTNAME, Requester, clear, create, install};
use objects::{affinity, finalizers, hostname, job, pv, take_startup_taint_off, with};

/// How long the API server may take to enforce a policy.
const POLICY_TIMEOUT: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_compromised_node_cannot_touch_another_nodes_volumes() {
    let Some(path) = std::env::var_os("TEST_KUBECONFIG") else {
        return skip("TEST_KUBECONFIG names no real cluster, whose API server has to judge");
    };
    let helm = or_skip!(Helm::find());
    let kubeconfig = Kubeconfig::read_from(path).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    let config = config.unwrap();
    let fixture = Fixture {
        admin: Client::try_from(config.clone()).unwrap(),
        config,
        name: format!("isolation-{}", std::process::id()),
    };
    clear(&fixture.admin).await;
    let outcome = AssertUnwindSafe(story(&helm, &fixture)).catch_unwind().await;
    clear(&fixture.admin).await;
    if let Err(panic) = outcome {
        resume_unwind(panic);
    }
}

async fn story(helm: &Helm, fixture: &Fixture) {
    install(helm, fixture).await;
    let (mine, other) = (fixture.node("mine"), fixture.node("other"));
    let nodes: Api<Node> = Api::all(fixture.admin.clone());
    for node in [&mine, &other] {
        let taint = |key| json!({ "key": key, "effect": "NoSchedule" });
        let object = json!({
            "metadata": { "name": node, "labels": { HOSTNAME: node } },
            "spec": { "taints": [taint(DEFAULT_TAINT_KEY), taint("example.com/dedicated")] },
        });
        create(&nodes, object).await.unwrap();
    }
    let scene = Scene {
        attacker: fixture.provisioner(Some(&mine)).await,
        victim: fixture.provisioner(Some(&other)).await,
        unbound: fixture.provisioner(None).await,
        theirs: fixture.node("their-pv"),
        account: fixture.name.clone(),
        pvs: Api::all(fixture.admin.clone()),
        mine,
        other,
    };
    scene.set().await;
    scene.its_own_work_is_done().await;
    scene.other_volumes_are_out_of_reach().await;
    scene.other_nodes_are_out_of_reach().await;
    scene.of_its_own_node_only_the_startup_taint_is_in_reach().await;
    scene.jobs_run_here_and_take_nothing_along().await;
    scene.events_say_which_node_they_are_from().await;
    scene.a_token_of_no_node_can_do_nothing().await;

    let pvs = &scene.pvs;
    let untouched = pvs.get(&scene.theirs).await.unwrap();
    assert_eq!(untouched.metadata.deletion_timestamp, None);
    assert_eq!(untouched.labels()[HOSTNAME], scene.other);
    // The policies do not affect other clients.
    let answer = pvs.delete(&scene.theirs, &DeleteParams::default()).await;
    answer.unwrap();
}

/// Two nodes, one of them compromised, and a token that was made for neither.
struct Scene {
    attacker: Requester,
    victim: Requester,
    unbound: Requester,
    /// The nodes' names.
    mine: String,
    other: String,
    /// The victim's PV.
    theirs: String,
    /// The provisioner's ServiceAccount.
    account: String,
    /// As an administrator has them.
    pvs: Api<PersistentVolume>,
}

impl Scene {
    fn name(&self, suffix: &str) -> String {
        format!("{}-{suffix}", self.mine)
    }

    async fn set(&self) {
        // Permissions, too, are in force only when the API server has seen them.
        let volume = pv(&self.theirs, &self.other);
        let volumes = async || self.victim.does(CreatePv(volume.clone())).await;
        at_last("a PV of its own is allowed", volumes, Answer::is_done).await;
        let job = job("theirs", &self.other);
        let jobs = async || self.victim.does(CreateJob(job.clone())).await;
        at_last("a Job for itself is allowed", jobs, Answer::is_done).await;
        until_in_force(&self.attacker, &self.name("probe"), &self.other).await;
        self.until_events_are_judged().await;
    }

    async fn its_own_work_is_done(&self) {
        let (attacker, mine, other) = (&self.attacker, &self.mine, &self.other);
        let [own, adopted, unlisted] = &["pv", "go-pv", "unlisted"].map(|name| self.name(name));
        let ours = finalizers(&json!(["local-volume-provisioner/cleanup"]));
        let unlabelled = with(pv(adopted, mine), "/metadata/labels", json!({}));
        let hash = json!({ "metadata": { "labels": { LABEL_IDENTITY_HASH: "0" } } });
        let larger = json!({ "spec": { "capacity": { "storage": "2Gi" } } });
        let of_old_class = with(pv(unlisted, mine), "/spec/storageClassName", json!("gone"));
        create(&self.pvs, of_old_class).await.unwrap();
        for (what, act) in [
            ("a PV of its own", CreatePv(pv(own, mine))),
            ("its own PV's finalizer", PatchPv(own, ours)),
            ("its own PV", DeletePv(own)),
            ("a Terminating PV's finalizer", PatchPv(own, finalizers(&json!(null)))),
            ("a PV without the label", CreatePv(unlabelled)),
            ("the label that it lacks", PatchPv(adopted, hostname(mine))),
            ("a PV's size", PatchPv(adopted, larger)),
            ("the hash of its identity", PatchPv(adopted, hash)),
            ("the label of a PV of a class that is gone", PatchPv(unlisted, hostname(mine))),
            ("a PV of a class that is gone", DeletePv(unlisted)),
            ("a Job for itself", CreateJob(job("own", mine))),
            ("its own Job", DeleteJob("own")),
        ] {
            attacker.may(what, act).await;
        }
        let given_away = PatchPv(adopted, hostname(other));
        attacker.may_not("another node's label", given_away, &["node isolation"]).await;
        let bound = json!({ "spec": { "claimRef": { "namespace": "kube-system", "name": "x" } } });
        let words = ["node isolation", adopted, "claimRef"];
        let bound = PatchPv(adopted, bound);
        attacker.may_not("a PV's claim", bound, &words).await;
    }

    async fn other_volumes_are_out_of_reach(&self) {
        let (attacker, mine, other, theirs) =
            (&self.attacker, &self.mine, &self.other, &self.theirs);
        let name = &self.name("attack");
        let said = ["node isolation", mine, name, HOSTNAME];
        let own = || pv(name, mine);
        let second_term = || {
            let mut terms = affinity(&[mine]);
            let more = affinity(&[other])["required"]["nodeSelectorTerms"][0].clone();
            let list = terms["required"]["nodeSelectorTerms"].as_array_mut();
            list.unwrap().push(more);
            terms
        };
        let remote = || {
            let mut pv = own();
            pv["spec"].as_object_mut().unwrap().remove("local");
            pv["spec"]["nfs"] = json!({ "server": "example.com", "path": "/" });
            pv
        };
        let bound_to = |terms| with(own(), "/spec/nodeAffinity", terms);
        let at = |path: &str| with(own(), "/spec/local/path", json!(path));
        let of_class = |class: Value| with(own(), "/spec/storageClassName", class);
        let claimed = || {
            let mut pv = own();
            pv["spec"]["claimRef"] = json!({ "namespace": "kube-system", "name": "x" });
            pv
        };
        for (what, pv) in [
            ("for another node", pv(name, other)),
            ("for both", bound_to(affinity(&[mine, other]))),
            ("for another by a second term", bound_to(second_term())),
            ("labelled as another's", with(own(), "/metadata/labels", json!({ HOSTNAME: other }))),
            ("that is not local", remote()),
        ] {
            let what = format!("a PV {what}");
            attacker.may_not(&what, CreatePv(pv), &said).await;
        }
        for (what, pv, word) in [
            ("of another class", of_class(json!("other")), "classes"),
            ("of no class", of_class(json!(null)), "classes"),
            ("of the system", at("/etc/kubernetes"), "hostDirs"),
            ("of the directory", at(HOST_DIR), "hostDirs"),
            ("beside it", at("/mnt/isolation-test-2/disk"), "hostDirs"),
            ("deeper", at("/mnt/isolation-test/disk/x"), "hostDirs"),
            ("for a claim", claimed(), "claimRef"),
        ] {
            let (what, words) = (format!("a PV {what}"), ["node isolation", name, word]);
            attacker.may_not(&what, CreatePv(pv), &words).await;
        }
        let said = ["node isolation", mine, theirs];
        for (what, act) in [
            ("another's finalizer", PatchPv(theirs, finalizers(&json!([])))),
            ("another's label", PatchPv(theirs, hostname(mine))),
            ("another's PV", DeletePv(theirs)),
        ] {
            attacker.may_not(what, act, &said).await;
        }
    }

    async fn other_nodes_are_out_of_reach(&self) {
        let said = ["node isolation", &*self.mine, &*self.other];
        self.attacker
            .change_node(&self.other, take_startup_taint_off)
            .await
            .refused("another Node", &said);
    }

    /// A hostname label like another node's would draw the other's pods and volumes here.
    async fn of_its_own_node_only_the_startup_taint_is_in_reach(&self) {
        let (attacker, mine, other) = (&self.attacker, &self.mine, &self.other);
        let said = ["node isolation", DEFAULT_TAINT_KEY];
        let set = |pointer: &'static str, key: &'static str, value: Value| {
            move |node: &mut Value| node.pointer_mut(pointer).unwrap()[key] = value.clone()
        };
        for (what, change) in [
            ("its hostname", set("/metadata/labels", HOSTNAME, json!(other))),
            ("a label", set("/metadata/labels", "x", json!("x"))),
            ("an annotation", set("/metadata", "annotations", json!({ "x": "x" }))),
            ("a finalizer", set("/metadata", "finalizers", json!(["example.com/x"]))),
            ("all taints", set("/spec", "taints", json!([]))),
            (
                "another taint",
                set("/spec", "taints", json!([{ "key": "x", "effect": "NoExecute" }])),
            ),
            ("cordoning", set("/spec", "unschedulable", json!(true))),
            ("the provider", set("/spec", "providerID", json!("x://x"))),
        ] {
            attacker.change_node(mine, change).await.refused(what, &said);
        }
        attacker.change_node_status(mine).await.refused("the status", &said);
        attacker
            .change_node(mine, take_startup_taint_off)
            .await
            .allowed("its own Node's startup taint");
    }

    async fn jobs_run_here_and_take_nothing_along(&self) {
        let (attacker, mine, other) = (&self.attacker, &self.mine, &self.other);
        let said = ["node isolation", "theirs"];
        attacker.may_not("another's Job", DeleteJob("theirs"), &said).await;
        let of = |field: &str, value: Value| {
            with(job("x", mine), &format!("/spec/template/spec/{field}"), value)
        };
        let secret = json!({ "name": "dev", "secret": { "secretName": "x" } });
        let key = json!({ "secretKeyRef": { "name": "x", "key": "x" } });
        let secret_value = json!({ "name": "A", "valueFrom": key });
        for (what, job, word) in [
            ("elsewhere", job("x", other), "select that node"),
            ("anywhere", of("nodeSelector", json!({})), "select that node"),
            ("elsewhere by name", of("nodeName", json!(other)), "select that node"),
            ("with an account", of("serviceAccountName", json!(self.account)), "ServiceAccount"),
            ("with a Secret", of("volumes/0", secret), "hostPaths"),
            (
                "with a Secret to pull by",
                of("imagePullSecrets", json!([{ "name": "x" }])),
                "imagePullSecrets",
            ),
            (
                "with a token",
                of("automountServiceAccountToken", json!(true)),
                "automountServiceAccountToken",
            ),
            (
                "with a token by default",
                of("automountServiceAccountToken", json!(null)),
                "automountServiceAccountToken",
            ),
            ("with a Secret's value", of("containers/0/env/0", secret_value), "Secrets"),
        ] {
            let what = format!("a Job {what}");
            attacker.may_not(&what, CreateJob(job), &[word]).await;
        }
    }

    async fn a_token_of_no_node_can_do_nothing(&self) {
        let (unbound, mine, theirs) = (&self.unbound, &self.mine, &self.theirs);
        let said = ["a token that belongs to no node"];
        let pv = pv(&self.name("x"), mine);
        unbound.may_not("a PV", CreatePv(pv), &said).await;
        unbound.may_not("a PV", DeletePv(theirs), &said).await;
        unbound.change_node(mine, take_startup_taint_off).await.refused("a Node", &said);
    }
}

/// Waits until all the policies are known to the API server, by doing what they forbid.
async fn until_in_force(attacker: &Requester, name: &str, other: &str) {
    let volumes = async || attacker.does(CreatePv(pv(name, other))).await;
    refused_at_last(volumes).await;
    refused_at_last(async || attacker.change_node(other, |_| ()).await).await;
    refused_at_last(async || attacker.does(CreateJob(job(name, other))).await).await;
}

async fn refused_at_last<F: Future<Output = Answer>>(attempt: impl Fn() -> F) {
    let is_refused = |answer: &Answer| {
        let said = answer.refusal();
        said.is_some_and(|said| said.contains("node isolation"))
    };
    at_last("a policy is in force", attempt, is_refused).await;
}

async fn at_last<F: Future<Output = Answer>>(
    what: &str,
    attempt: impl Fn() -> F,
    is_wanted: impl Fn(&Answer) -> bool,
) {
    let deadline = Instant::now() + POLICY_TIMEOUT;
    loop {
        // Before the attempt: a thread that was suspended past the deadline tries once more.
        let is_last = Instant::now() >= deadline;
        let answer = attempt().await;
        if is_wanted(&answer) {
            return;
        }
        assert!(!is_last, "not in time: {what}; {answer:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
