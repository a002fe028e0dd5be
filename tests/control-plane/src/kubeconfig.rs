//! The kubeconfig that points clients here: plain HTTP, no credentials.

use std::{io, path::Path};

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

/// Writes it so that a reader sees either nothing or all of it.
pub(crate) fn write(path: &Path, url: &str) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}", std::process::id()));
    let written =
        std::fs::write(&temporary, render(url)).and_then(|()| std::fs::rename(&temporary, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

/// Removes it, if it is still the one that points to `url`.
pub(crate) fn remove(path: &Path, url: &str) {
    if std::fs::read_to_string(path).is_ok_and(|text| text == render(url)) {
        let _ = std::fs::remove_file(path);
    }
}
