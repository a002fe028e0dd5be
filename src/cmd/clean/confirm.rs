//! The question before a volume is cleaned.

use std::io::{self, BufRead, Write};

use anyhow::{Context, Result, ensure};
use nix::sys::termios::{FlushArg, tcflush};
use tokio::task::spawn_blocking;

use crate::types::MountPath;

/// Requires the operator to type the path, which cannot be confirmed by habit.
pub async fn confirm(path: MountPath) -> Result<()> {
    let answer = spawn_blocking(move || {
        // Discards input that was typed before the question.
        tcflush(io::stdin(), FlushArg::TCIFLUSH).context("the question cannot be asked")?;
        ask(&path, &mut io::stdin().lock(), &mut io::stderr())
    });
    answer.await?
}

fn ask(path: &MountPath, input: &mut dyn BufRead, prompt: &mut dyn Write) -> Result<()> {
    let mut answer = Vec::new();
    write!(
        prompt,
        "\nAll data in it will be lost. To go on, type its path: "
    )
    .and_then(|()| prompt.flush())
    .and_then(|()| input.read_until(b'\n', &mut answer))
    .context("the question cannot be asked")?;
    ensure!(
        answer.trim_ascii() == path.as_path().as_os_str().as_encoded_bytes(),
        "that is not its path"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_path_confirms() {
        let path: MountPath = "/mnt/disks/a b".parse().unwrap();
        for (typed, good) in [
            ("/mnt/disks/a b\n", true),
            (" /mnt/disks/a b \r\n", true),
            ("/mnt/disks/a b", true),
            ("", false),
            ("\n", false),
            ("yes\n", false),
            ("/mnt/disks/a\n", false),
            ("/mnt/disks/a b/\n", false),
            ("\n/mnt/disks/a b\n", false),
        ] {
            let mut shown = Vec::new();
            let answer = ask(&path, &mut typed.as_bytes(), &mut shown);
            assert_eq!(answer.is_ok(), good, "{typed:?}");
            assert!(shown.ends_with(b"type its path: "));
        }
    }
}
