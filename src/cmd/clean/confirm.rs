//! The question before a volume is cleaned.

use std::io::{self, BufRead, Write};

use nix::sys::termios::{FlushArg, tcflush};
use tokio::task::spawn_blocking;

use crate::types::MountPath;

use super::Refusal;

/// Has the path typed once more, which nobody does by habit.
pub async fn confirm(path: MountPath) -> Result<(), Refusal> {
    let answer = spawn_blocking(move || {
        // What was typed before the question is no answer to it.
        tcflush(io::stdin(), FlushArg::TCIFLUSH).map_err(|errno| Refusal::Terminal {
            source: errno.into(),
        })?;
        ask(&path, &mut io::stdin().lock(), &mut io::stderr())
    });
    answer.await.unwrap_or_else(|panic| {
        let source = io::Error::other(panic);
        Err(Refusal::Terminal { source })
    })
}

fn ask(path: &MountPath, input: &mut dyn BufRead, prompt: &mut dyn Write) -> Result<(), Refusal> {
    let mut answer = Vec::new();
    write!(
        prompt,
        "\nAll data in it will be lost. To go on, type its path: "
    )
    .and_then(|()| prompt.flush())
    .and_then(|()| input.read_until(b'\n', &mut answer))
    .map_err(|source| Refusal::Terminal { source })?;
    if answer.trim_ascii() == path.as_path().as_os_str().as_encoded_bytes() {
        Ok(())
    } else {
        Err(Refusal::NotConfirmed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_path_itself_is_a_yes() {
        let path = MountPath::normalise("/mnt/disks/a b").unwrap();
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
