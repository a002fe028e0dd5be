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

/// Writes it so that a reader sees either nothing or all of it. Whatever is there and is not from here
/// stays, and is an error of the kind `AlreadyExists`: it may be the only copy of somebody's own.
pub(crate) fn write(path: &Path, url: &str) -> io::Result<()> {
    if !is_free(path)? {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "it is somebody else's file",
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

/// Whether nothing is lost with what is there: nothing, an empty file, or what one that was killed
/// has left. A link or a device may be replaced no more than a person's file.
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
