//! Which directory of the host each `mountDir` shows.
//!
//! A container's mounts are made when it starts. A class that gets another `hostDir` for the same
//! `mountDir` has it in the next container: in this one, the old directory is still to be seen there,
//! and its disks would be offered and cleaned under the names of others.

use std::collections::BTreeSet;
use std::path::Path;

use super::Config;
use crate::types::{HostPath, MountPath};

/// What the configurations of this process have said so far.
#[derive(Clone, Debug)]
pub struct Shown(BTreeSet<(MountPath, HostPath)>);

impl Shown {
    /// What the first configuration says, which the container was made for.
    #[must_use]
    pub fn at_start(config: &Config) -> Self {
        let mut shown = Self(BTreeSet::new());
        shown.learn(config);
        shown
    }

    /// From now on this holds, too.
    pub fn learn(&mut self, config: &Config) {
        let classes = config.classes.values();
        let pairs = classes.map(|class| (class.mount_dir.clone(), class.host_dir.clone()));
        self.0.extend(pairs);
    }

    /// Whether nothing that is known contradicts a configuration.
    ///
    /// # Errors
    /// For the first class of which this container does not have the directory.
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
        // It hides what those further out have there.
        let nearest = around.map(depth).max();
        self.0.iter().find(|(known_mount, known_host)| {
            let (known_mount, known_host) = (known_mount.as_path(), Path::new(known_host.as_str()));
            if let Ok(below) = mount.strip_prefix(known_mount) {
                Some(depth(known_mount)) == nearest && known_host.join(below) != host
            } else if let Ok(below) = known_mount.strip_prefix(mount) {
                // Around a mount lies the container's own directory, if not another mount.
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
    fn only_what_was_mounted_from_the_start_or_is_unknown_suits() {
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
    fn of_mounts_in_one_another_the_nearest_counts() {
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
    fn what_was_in_force_is_remembered() {
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

    /// Which is a warning at the start, whatever the container shows there.
    #[test]
    fn two_that_share_a_mount_dir_from_the_start_may_go_on() {
        let both = config(&[("/host/a", "/a"), ("/host/b", "/a")]);
        Shown::at_start(&both).suits(&both).unwrap();
    }
}
