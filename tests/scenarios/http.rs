//! What is reported over HTTP, and by `discover` on the command line.

use std::fs;
use std::net::TcpStream;
use std::process::{Command, Output};

use control_plane::faults::Answer;
use control_plane::requests::Verb;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::{Value, json};
use support::{LoopDevice, Program, Stage};

use super::kit::{fast, fast_stage, occupied, raw_volume, ready, stage_with};
use super::stage;

/// A node on which everything has happened once: a cleanup, a failed one, a failed request.
pub fn eventful() -> Option<(Stage, LoopDevice, Program)> {
    let mut stage = stage()?;
    stage.add_arg("--discovery-period=500ms");
    stage.class("fast", &json!({}));
    let settings = json!({ "blockCleanerCommand": ["/bin/false"] });
    let (device, disk) = raw_volume(&stage, &settings);
    let volume = fast(&stage, "vol");
    fs::write(volume.with_file_name("file"), "").unwrap();
    let faults = stage.faults();
    let failed =
        faults.on(Verb::Create).resource("persistentvolumes").times(1).answer(Answer::code(500));
    let mut provisioner = stage.provisioner();
    let old = stage.occupy("claim", &volume);
    stage.delete_claim("claim");
    stage.available(&volume, old.metadata.uid.as_deref());
    stage.bind("disk", &disk);
    stage.delete_claim("disk");
    // Asked of the program, which tries again in ten seconds: its event may take a while.
    stage.eventually("the failure shows", || {
        let (_, text) = provisioner.http_get("/metrics").unwrap();
        text.contains("CleaningFailed")
    });
    assert_eq!(failed.hits(), 1);
    Some((stage, device, provisioner))
}

#[test]
fn status_is_a_document_with_a_version() {
    let (stage, _device, mut provisioner) = or_skip!(eventful());
    let status: Value = stage.eventually("the failure is in the status", || {
        let (code, text) = provisioner.http_get("/status").unwrap();
        assert_eq!(code, 200);
        let status: Value = serde_json::from_str(&text).unwrap();
        text.contains("CleaningFailed").then_some(status)
    });
    assert_eq!(status["schemaVersion"], 1);
    assert_eq!(
        (&status["node"], &status["paused"], &status["degraded"]),
        (&json!(stage.node()), &json!(false), &json!([]))
    );
    assert!(status["ready"].is_boolean());
    let class = |name: &str| {
        let classes = status["classes"].as_array().unwrap();
        classes.iter().find(|class| class["name"] == stage.named(name)).cloned().unwrap()
    };
    let fast = class("fast");
    assert_eq!((&fast["ready"], &fast["faults"]), (&json!(true), &json!([])));
    let volumes = fast["volumes"].as_array().unwrap();
    let [file, vol] = &volumes[..] else { panic!("{volumes:?}") };
    assert_eq!(
        (&file["entry"], &file["state"], &file["reason"]),
        (&json!("file"), &json!("Skipped"), &json!("NotADirectoryOrBlockDevice"))
    );
    assert_eq!((&vol["state"], &vol["reason"]), (&json!("Available"), &Value::Null));
    assert_eq!(
        (&vol["path"], &vol["mode"], &vol["phase"]),
        (&json!("/mnt/disks/fast/vol"), &json!("Filesystem"), &json!("Available"))
    );
    assert_eq!(vol["capacity"], 20 << 20);
    assert_eq!(vol["identity"], "v1:fs=tmpfs,path=/mnt/disks/fast/vol,root=/");
    let raw = class("raw");
    let disk = &raw["volumes"][0];
    assert_eq!((&disk["entry"], &disk["state"]), (&json!("disk"), &json!("CleaningFailed")));
    let cleanup = disk["cleanup"].as_object().unwrap();
    for key in ["state", "attempts", "progress", "rate", "eta", "lastError"] {
        assert!(cleanup.contains_key(key), "no {key} in {cleanup:?}");
    }
    assert_eq!((&cleanup["state"], &cleanup["attempts"]), (&json!("Failed"), &json!(1)));
    assert!(cleanup["lastError"].as_str().unwrap().contains("/bin/false"), "{cleanup:?}");
    stage.event("VolumeFailedDelete", "/bin/false");
    assert!(stage.pv(disk["pv"].as_str().unwrap()).is_some());
}

/// Anyone who reaches the port can open connections. A cleanup needs descriptors, too.
#[test]
fn idle_connections_stop_neither_probes_nor_cleanups() {
    let mut volume = or_skip!(occupied());
    let limit = Resource::RLIMIT_NOFILE;
    let (_, most) = getrlimit(limit).unwrap();
    setrlimit(limit, most, most).unwrap();
    let address = volume.provisioner.http_address().unwrap();
    let connect = |_| TcpStream::connect(&address).unwrap();
    let idle: Vec<_> = (0..1100).map(connect).collect();
    assert_eq!(volume.provisioner.http_get("/healthz").unwrap().0, 200);
    let files = format!("/proc/{}/fd", volume.provisioner.pid());
    let files = fs::read_dir(files).unwrap().count();
    assert!(files < 200, "{files} files are open");
    volume.release();
    volume.is_cleaned();
    drop(idle);
}

#[test]
fn ready_says_why_not_and_then_200() {
    let stage = or_skip!(stage_with(&["--metrics-path=/numbers", "--discovery-period=300ms"]));
    stage.class("fast", &json!({}));
    fast(&stage, "vol");
    let faults = stage.faults();
    let refused = faults.on(Verb::Create).resource("persistentvolumes").answer(Answer::code(500));
    let mut provisioner = stage.provisioner();
    stage.eventually("the loop lives", || {
        (provisioner.http_get("/healthz").ok()?.0 == 200).then_some(())
    });
    let why = format!("class \"{}\"", stage.named("fast"));
    stage.eventually("it says what it waits for", || {
        let (code, text) = provisioner.http_get("/ready").ok()?;
        assert_eq!(code, 503);
        (text.contains(&why) && refused.hits() > 0).then_some(())
    });
    refused.clear();
    ready(&stage, &mut provisioner);
    assert_eq!(provisioner.http_get("/numbers").unwrap().0, 200);
    assert_eq!(provisioner.http_get("/metrics").unwrap().0, 404);
}

fn discover(stage: &Stage, format: &str) -> String {
    discover_with(stage.command(), stage, format)
}

fn discover_with(mut command: Command, stage: &Stage, format: &str) -> String {
    // Offline: there is no cluster that it could ask.
    command.env_remove("KUBECONFIG").arg("discover").args(["-o", format]);
    let Output { status, stdout, stderr } =
        command.arg("--config").arg(stage.config_dir()).output().unwrap();
    let fault = String::from_utf8_lossy(&stderr);
    assert_eq!(status.code(), Some(1), "a class is broken: {fault}");
    String::from_utf8(stdout).unwrap()
}

#[test]
fn discover_says_offline_what_would_be_offered_and_why_the_rest_would_not() {
    let (stage, []) = or_skip!(fast_stage([]));
    stage.class("broken", &json!({ "volumeMode": "Blok" }));
    let volume = fast(&stage, "vol");
    stage.sandbox.dir("disks/fast/no-mount").unwrap();

    let document: Value = serde_json::from_str(&discover(&stage, "json")).unwrap();
    assert_eq!((&document["kind"], &document["apiVersion"]), (&json!("List"), &json!("v1")));
    let classes = document["classes"].as_array().unwrap();
    let class = |base: &str| {
        let name = stage.named(base);
        classes.iter().find(|class| class["name"] == *name).unwrap()
    };
    let volumes = class("fast")["volumes"].as_array().unwrap();
    let skipped = volumes.iter().find(|it| it["state"] == "Skipped").unwrap();
    assert_eq!((&skipped["entry"], &skipped["reason"]), (&json!("no-mount"), &json!("NotMounted")));
    assert!(class("broken")["faults"].to_string().contains("Blok"), "{document}");
    let yaml: Value = serde_saphyr::from_str(&discover(&stage, "yaml")).unwrap();
    assert_eq!(yaml, document);
    let table = discover(&stage, "table");
    let row =
        |entry: &str| table.lines().find(|line| line.split_whitespace().next() == Some(entry));
    assert!(
        row("vol").unwrap().contains(document["items"][0]["metadata"]["name"].as_str().unwrap()),
        "{table}"
    );
    assert!(row("no-mount").unwrap().contains("NotMounted"), "{table}");
    assert!(table.contains("is not a valid mount point") && table.contains("Blok"), "{table}");

    let mut nameless = stage.command();
    nameless.env_remove("MY_NODE_NAME");
    let own: Value = serde_json::from_str(&discover_with(nameless, &stage, "json")).unwrap();
    let own_name = nix::unistd::gethostname().unwrap();
    assert_eq!(
        own["items"][0]["metadata"]["labels"]["kubernetes.io/hostname"],
        json!(own_name.to_str().unwrap().to_lowercase())
    );

    // What it says is what happens.
    let _provisioner = stage.provisioner();
    let made = serde_json::to_value(stage.available(&volume, None)).unwrap();
    let said = &document["items"][0];
    assert_eq!(document["items"].as_array().unwrap().len(), 1);
    assert_eq!(said["metadata"]["name"], made["metadata"]["name"]);
    assert_eq!(said["metadata"]["labels"], made["metadata"]["labels"]);
    for (key, value) in said["spec"].as_object().unwrap() {
        assert_eq!(value, &made["spec"][key], "{key}");
    }
}
