//! Which host directory is mounted at each `mountDir` of this container.
//!
//! A container's mounts do not change while it runs. If a class gets another `hostDir` for the same `mountDir`, this
//! container still has the old directory there: its disks would be offered and cleaned under the wrong paths.

use std::collections::BTreeSet;
use std::path::Path;

use super::Config;
use crate::types::{HostPath, MountPath};

/// The pairs of `mountDir` and `hostDir` of all configurations so far.
#[derive(Clone, Debug)]
pub struct Shown(BTreeSet<(MountPath, HostPath)>);

impl Shown {
    /// The pairs of the first configuration, which the container's mounts were created for.
    #[must_use]
    pub fn at_start(config: &Config) -> Self {
        let mut shown = Self(BTreeSet::new());
        shown.learn(config);
        shown
    }

    /// Adds the pairs of a configuration that takes effect.
    pub fn learn(&mut self, config: &Config) {
        let classes = config.classes.values();
        let pairs = classes.map(|class| (class.mount_dir.clone(), class.host_dir.clone()));
        self.0.extend(pairs);
    }

    /// Checks that a configuration does not contradict the known pairs.
    ///
    /// # Errors
    /// For the first class whose `hostDir` is not mounted at its `mountDir`.
    pub fn suits(&self, config: &Config) -> Result<(), String> {
        for class in config.classes.values() {
            let (mount_dir, host_dir) = (&class.mount_dir, &class.host_dir);
            if self.0.contains(&(mount_dir.clone(), host_dir.clone())) {
                continue;
            }
            if let Some((known_mount, known_host)) = self.contradiction(mount_dir, host_dir) {
                return Err(format!(
                    "class {:?}: its mountDir {mount_dir} cannot be the host's {host_dir} in this \
                     container, where the first configuration had the host's {known_host} at \
                     {known_mount}; a container's mounts never change: replace the pod (delete it; \
                     restarting its container changes nothing)",
                    class.name
                ));
            }
        }
        Ok(())
    }

    fn contradiction(&self, mount: &MountPath, host: &HostPath) -> Option<&(MountPath, HostPath)> {
        let (mount, host) = (mount.as_path(), Path::new(host.as_str()));
        let depth = |known: &Path| known.components().count();
        let known = self.0.iter().map(|(known_mount, _)| known_mount.as_path());
        let around = known.filter(|known| mount.starts_with(known));
        // The innermost mount hides the others.
        let nearest = around.map(depth).max();
        self.0.iter().find(|(known_mount, known_host)| {
            let (known_mount, known_host) = (known_mount.as_path(), Path::new(known_host.as_str()));
            if let Ok(below) = mount.strip_prefix(known_mount) {
                Some(depth(known_mount)) == nearest && known_host.join(below) != host
            } else if let Ok(below) = known_mount.strip_prefix(mount) {
                // Outside of all mounts is the container's own filesystem.
                nearest.is_none() || host.join(below) != known_host
            } else {
                false
            }
        })
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
            ("/", "/", false),
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
            ("/", "/", false),
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
        for words in [
            "\"c0\"",
            "/host/a",
            "/host/b",
            "first configuration",
            "delete it",
        ] {
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
