//! The order of the modules: each uses only those before it.

use std::fs;
use std::path::{Path, PathBuf};

/// From the bottom to the top.
const ORDER: [&str; 32] = [
    "types",
    "names",
    "quantity",
    "crash",
    "errors",
    "escape",
    "retry",
    "view",
    "host",
    "config",
    "args",
    "log",
    "memory",
    "isolation",
    "process_metrics",
    "metrics",
    "wipe",
    "cluster",
    "inventory",
    "plan",
    "report",
    "cache",
    "cleanup",
    "taint",
    "act",
    "status",
    "server",
    "controller",
    "node_cleanup",
    "cmd",
    "lib",
    "main",
];

fn rust_files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|it| it == "rs") {
            found.push(path);
        }
    }
}

/// The modules that a file names after `crate::`, without its tests and comments.
fn used(text: &str) -> Vec<&str> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let names = lines.flat_map(|line| line.split("crate::").skip(1));
    let name =
        |rest: &str| rest.find(|it: char| !it.is_alphanumeric() && it != '_').unwrap_or(rest.len());
    names.map(|rest| &rest[..name(rest)]).filter(|it| !it.is_empty()).collect()
}

#[test]
fn arrows_point_down() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let rank = |module: &str| ORDER.iter().position(|it| *it == module);
    let mut files = Vec::new();
    rust_files(&src, &mut files);
    assert!(files.len() > 100, "{files:?}");
    for file in files {
        let inside = file.strip_prefix(&src).unwrap();
        let module = inside.iter().next().unwrap().to_str().unwrap();
        let module = module.strip_suffix(".rs").unwrap_or(module);
        if inside.to_str().unwrap().contains("tests") {
            continue;
        }
        let own = rank(module).unwrap_or_else(|| panic!("{module} has no place in the order"));
        for other in used(&fs::read_to_string(&file).unwrap()) {
            let other_rank =
                rank(other).unwrap_or_else(|| panic!("{other} has no place in the order"));
            assert!(
                other_rank <= own,
                "{} uses {other}, which is above {module}",
                inside.display()
            );
        }
    }
}
