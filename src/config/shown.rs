//! Which host directory is mounted at each `mountDir` of this container.
//!
//! A container's mounts do not change while it runs. If a class gets another `hostDir` for the same `mountDir`, this
//! container still has the old directory there: its disks would be offered and cleaned under the wrong paths.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::{Class, Config};

/// The pairs of `mountDir` and `hostDir` of all configurations so far.
#[derive(Clone, Debug)]
pub struct Shown(BTreeSet<(PathBuf, PathBuf)>);

fn dirs(class: &Class) -> (PathBuf, PathBuf) {
    let host_dir = class.host_dir.as_str().into();
    (class.mount_dir.as_path().to_owned(), host_dir)
}

impl Shown {
    /// The pairs of the first configuration, which the container's mounts were created for.
    pub fn at_start(config: &Config) -> Self {
        let classes = config.classes.values();
        Self(classes.map(|class| dirs(class)).collect())
    }

    /// Adds the pairs of a configuration that takes effect.
    pub fn learn(&mut self, config: &Config) {
        self.0.extend(Self::at_start(config).0);
    }

    /// Checks that a configuration does not contradict the known pairs.
    ///
    /// # Errors
    /// For the first class whose `hostDir` is not mounted at its `mountDir`.
    pub fn suits(&self, config: &Config) -> Result<(), String> {
        for class in config.classes.values() {
            if let Some((mount, host)) = self.contradiction(&dirs(class)) {
                let (mount_dir, host_dir) = (&class.mount_dir, &class.host_dir);
                let (mount, host) = (mount.display(), host.display());
                return Err(format!(
                    "class {:?}: mountDir {mount_dir} cannot be the host's {host_dir}, since the first configuration had the host's {host} at {mount}, and a container's mounts never change: replace the pod (delete it)",
                    class.name
                ));
            }
        }
        Ok(())
    }

    fn contradiction(&self, dirs: &(PathBuf, PathBuf)) -> Option<&(PathBuf, PathBuf)> {
        let (mount, host) = dirs;
        if self.0.contains(dirs) {
            return None;
        }
        // The innermost mount, which hides the others, is the last: a directory precedes those below it.
        match self.0.iter().rfind(|(known, _)| mount.starts_with(known)) {
            Some(it) => (mount.strip_prefix(&it.0) != host.strip_prefix(&it.1)).then_some(it),
            // Outside of all mounts is the container's own filesystem.
            None => self.0.iter().find(|(known, _)| known.starts_with(mount)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::from_files;

    fn config(classes: &[(&str, &str)]) -> Config {
        let class = |(number, (host, mount)): (usize, &(&str, &str))| {
            format!("c{number}: {{hostDir: {host}, mountDir: {mount}}}\n")
        };
        let map: String = classes.iter().enumerate().map(class).collect();
        let files = [("storageClassMap".to_owned(), map)].into();
        from_files(&files).unwrap().config
    }

    #[test]
    fn only_directories_mounted_at_start_or_unknown_are_accepted() {
        let shown = Shown::at_start(&config(&[("/host/a", "/a"), ("/mnt/b", "/mnt/b")]));
        for (host, mount, suits) in [
            ("/host/a", "/a", true),
            ("/host/b", "/a", false),
            ("/host/a/x", "/a/x", true),
            ("/host/b/x", "/a/x", false),
            ("/mnt/b/x/y", "/mnt/b/x/y", true),
            ("/mnt", "/mnt", false),
            ("/host/a", "/elsewhere", true),
            ("/mnt/bb", "/mnt/bb", true),
            ("/host/ab", "/ab", true),
        ] {
            let found = shown.suits(&config(&[(host, mount)]));
            assert_eq!(found.is_ok(), suits, "{host} at {mount}: {found:?}");
        }
    }

    #[test]
    fn nearest_of_nested_mounts_decides() {
        let shown = Shown::at_start(&config(&[("/mnt", "/mnt"), ("/ssd", "/mnt/fast")]));
        for (host, mount, suits) in [
            ("/ssd/x", "/mnt/fast/x", true),
            ("/mnt/fast/x", "/mnt/fast/x", false),
            ("/mnt/slow", "/mnt/slow", true),
            ("/ssd", "/mnt/slow", false),
        ] {
            let found = shown.suits(&config(&[(host, mount)]));
            assert_eq!(found.is_ok(), suits, "{host} at {mount}: {found:?}");
        }
        let mut shown = Shown::at_start(&config(&[("/mnt", "/mnt")]));
        shown.learn(&config(&[("/mnt/a/b", "/mnt/a/b")]));
        shown.suits(&config(&[("/mnt/a", "/mnt/a")])).unwrap();
        shown.suits(&config(&[("/a", "/mnt/a")])).unwrap_err();
    }

    #[test]
    fn earlier_configurations_are_remembered() {
        let mut shown = Shown::at_start(&config(&[]));
        let first = config(&[("/host/a", "/a")]);
        shown.suits(&first).unwrap();
        shown.learn(&first);
        shown.learn(&config(&[]));
        let error = shown.suits(&config(&[("/host/b", "/a")])).unwrap_err();
        let text = &error;
        for words in ["\"c0\"", "/host/a", "/host/b", "first configuration", "delete it"] {
            assert!(text.contains(words), "{text}");
        }
        shown.suits(&first).unwrap();
    }

    /// At start this is a warning; whatever is mounted there, it is no contradiction later.
    #[test]
    fn classes_sharing_a_mount_dir_at_start_are_accepted() {
        let both = config(&[("/host/a", "/a"), ("/host/b", "/a")]);
        Shown::at_start(&both).suits(&both).unwrap();
    }
}
