//! The plan is pure: it has no client, no clock, and reads no file.

use std::fs;
use std::path::Path;

#[test]
fn the_plan_has_no_way_to_the_outside() {
    let forbidden = [
        "kube::Client",
        "kube::Api",
        "kube::client",
        "kube::api",
        "kube::runtime",
        "tokio",
        "std::fs",
        ".is_dir()",
        ".exists()",
        "std::net",
        "std::process",
        "std::env",
        "procfs",
        "nix::",
        "Instant",
        "SystemTime",
        "Timestamp::now",
    ];
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/plan");
    let mut read = 0;
    for file in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        if file.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&file).unwrap();
            for word in forbidden {
                assert!(!text.contains(word), "{} mentions {word}", file.display());
            }
            read += 1;
        }
    }
    assert!(read >= 10, "only {read} files were read");
}
