//! The real `kubectl` as a client. What it prints is written in `stories/`, and was printed by a real
//! Kubernetes: here the same commands are given to this control plane, which has to print the same.
//!
//! With `TEST_KUBECONFIG` they go to the cluster of that kubeconfig instead, which is what
//! `scripts/test --real` does. With `RECORD=1` what they print is written into the stories: of a cluster as
//! what has to be, of this control plane where a story says that it differs, and why.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod normal;
mod server;
mod story;

use std::{
    env, fs,
    path::Path,
    process::Command,
    sync::{PoisonError, RwLock},
};

use server::Server;
use story::{Part, Story};

/// Half a minute of one processor each: the slow tier, unless it is about a cluster.
macro_rules! slow_stories {
    ($($name:ident)*) => { $(
        #[test]
        fn $name() {
            let asked = ["TEST_KUBECONFIG", "RECORD"].iter().any(|v| env::var_os(v).is_some());
            if !asked && !support::slow() {
                return support::skip("it takes half a minute; scripts/test --slow runs it");
            }
            tell(stringify!($name));
        }
    )* };
}

macro_rules! stories {
    ($($name:ident)*) => { $(
        #[test]
        fn $name() {
            tell(stringify!($name));
        }
    )* };
}

stories! {
    first_steps
    looking_around
    reading
}

slow_stories! {
    changing
    describing
    refusing
    running
    waiting
}

#[test]
fn every_story_is_told() {
    let stories = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kubectl/stories");
    for story in fs::read_dir(stories).unwrap() {
        let name = story.unwrap().file_name().into_string().unwrap();
        let test = format!("\n    {}\n", name.trim_end_matches(".txt"));
        assert!(
            include_str!("main.rs").contains(&test),
            "no test for {name}"
        );
    }
}

/// The example of `control-plane --help`, and of docs/control-plane.md, as somebody types it.
#[test]
fn the_first_minute_works() {
    let program = Path::new(env!("CARGO_BIN_EXE_control-plane"));
    let help = Command::new(program).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let example = help
        .lines()
        .skip_while(|line| !line.starts_with("A first minute"));
    let example: Vec<_> = example
        .skip(1)
        .map_while(|line| line.strip_prefix("  "))
        .collect();
    let docs = include_str!("../../../../docs/control-plane.md");
    assert!(docs.contains(&format!("```sh\n{}\n```", example.join("\n"))));
    let Some(path) = server::path_with_kubectl() else {
        return;
    };
    let home = tempfile::tempdir().unwrap();
    let kubeconfig = home.path().join("kubeconfig");
    let script = example
        .join("\n")
        .replace("/tmp/first-minute", kubeconfig.to_str().unwrap());
    let output = Command::new("timeout")
        .args(["60", "sh", "-euc", &format!("exec 2>&1\n{script}\nwait")])
        .env(
            "PATH",
            format!("{}:{path}", program.parent().unwrap().display()),
        )
        .env("HOME", home.path())
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(
        printed.contains("persistentvolumeclaim/data condition met"),
        "{script}\n{printed}"
    );
    let rows = printed
        .lines()
        .filter(|line| line.contains(" Bound "))
        .count();
    assert_eq!(rows, 2, "{printed}");
    assert!(!kubeconfig.exists(), "it was ended, and has tidied up");
}

/// The story that cordons and taints its node, for a moment.
const HARD_ON_ITS_NODE: &str = "running";

fn tell(name: &str) {
    // The stories of a cluster share its node: one sees what another does to it.
    static NODE: RwLock<()> = RwLock::new(());
    let (_alone, _together);
    if name == HARD_ON_ITS_NODE {
        _alone = NODE.write().unwrap_or_else(PoisonError::into_inner);
    } else {
        _together = NODE.read().unwrap_or_else(PoisonError::into_inner);
    }
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/kubectl/stories/{name}.txt"));
    let mut story = Story::parse(&fs::read_to_string(&path).unwrap());
    let Some(server) = Server::for_story(name) else {
        return;
    };
    let record = env::var_os("RECORD").is_some();
    let mut failures = Vec::new();
    for part in &mut story.parts {
        match part {
            Part::Text(_) => {}
            Part::File { name, content } => server.write(name, content),
            Part::Command(command) => {
                let printed = server.run(&command.line);
                if record {
                    command.record(printed, server.is_real());
                } else if let Err(failure) = command.judge(&printed, server.is_real()) {
                    failures.push(failure);
                }
            }
        }
    }
    if record {
        fs::write(path, story.to_string()).unwrap();
    }
    assert!(
        failures.is_empty(),
        "{} commands of {name} printed something else\n\n{}",
        failures.len(),
        failures.join("\n")
    );
}
