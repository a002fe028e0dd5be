//! The kubeconfig that points clients here: plain HTTP, no credentials.

use std::{fs, io, path::Path};

const NAME: &str = "control-plane";

/// A kubeconfig for the API server at `url`.
pub(crate) fn render(url: &str) -> String {
    format!(
        "apiVersion: v1\n\
         kind: Config\n\
         clusters:\n\
         - name: {NAME}\n  cluster:\n    server: {url}\n\
         users:\n\
         - name: {NAME}\n  user: {{}}\n\
         contexts:\n\
         - name: {NAME}\n  context:\n    cluster: {NAME}\n    user: {NAME}\n    namespace: default\n\
         current-context: {NAME}\n"
    )
}

/// Writes it so that a reader sees either nothing or all of it. A file that
/// no control plane wrote is not replaced: that is an error of the kind `AlreadyExists`.
pub(crate) fn write(path: &Path, url: &str) -> io::Result<()> {
    if !is_free(path)? {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "the file exists and was not written by a control plane; remove it or choose another path",
        ));
    }
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}", std::process::id()));
    let written = fs::write(&temporary, render(url)).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Removes it, if it is still the one that points to `url`.
pub(crate) fn remove(path: &Path, url: &str) {
    if fs::read_to_string(path).is_ok_and(|text| text == render(url)) {
        let _ = fs::remove_file(path);
    }
}

/// Whether the path may be written: there is no file, an empty one, or one that a killed control plane
/// left. A link or a device is not replaced.
fn is_free(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
        Ok(metadata) => Ok(metadata.is_file() && is_ours(&fs::read(path)?)),
    }
}

fn is_ours(content: &[u8]) -> bool {
    let text = String::from_utf8_lossy(content);
    let mut lines = text.lines();
    let url = lines.find_map(|line| line.trim_start().strip_prefix("server: "));
    content.is_empty() || url.is_some_and(|url| render(url) == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_empty_file_or_a_stale_kubeconfig_is_replaced() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("kubeconfig");
        let (url, stale) = ("http://127.0.0.1:1", render("http://127.0.0.1:2"));
        for other in [
            "apiVersion: v1\nkind: Config\nclusters: []\n",
            "notes\n",
            &format!("{stale}- name: mine\n"),
            &stale.replace("namespace: default", "namespace: mine"),
        ] {
            fs::write(&path, other).unwrap();
            let refused = write(&path, url).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
            remove(&path, url);
            assert_eq!(fs::read_to_string(&path).unwrap(), other);
        }
        for free in ["", &stale] {
            fs::write(&path, free).unwrap();
            write(&path, url).unwrap();
            remove(&path, url);
            assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
        }
        std::os::unix::fs::symlink("nowhere", &path).unwrap();
        write(&path, url).unwrap_err();
        fs::read_link(&path).unwrap();
    }
}
