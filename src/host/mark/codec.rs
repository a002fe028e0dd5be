//! The text of a mark: a line with the version, a line of JSON, empty lines, and a line with the SHA-256 of all bytes
//! before it.
//!
//! A text with an unknown version, a missing key or a wrong checksum is not readable: what it says may restrict. Unknown
//! keys of the mark are kept: a later version, which may run on this node again, wrote them.

use std::io;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{DIGEST_LENGTH, Mark, MarkOnDisk, MarkState};
use crate::host::sha256;

const VERSION: &str = "version=1\n";

/// The length of each attribute, so that later writes need no more space. With it, the attribute of a root fills an ext4
/// block of 1 KiB, the smallest there is. A longer text lies in the state directory, where it needs no reserved space.
pub(super) const PADDED_BYTES: usize = 896;

/// The line of the checksum, without its value.
const CHECKSUM: &str = "checksum=";

/// The bytes of one place.
#[derive(Clone, Debug)]
pub(super) struct Record {
    /// The first 16 hexadecimal digits of the checksum, or of the SHA-256 of all bytes if they are not readable.
    pub digest: String,
    /// What they say; `None` if they are not readable.
    pub content: Option<Content>,
}

impl Record {
    pub fn read(bytes: &[u8]) -> Self {
        let (mut digest, content) = match Content::decode(bytes) {
            Some((checksum, content)) => (checksum, Some(content)),
            None => (sha256(bytes), None),
        };
        digest.truncate(DIGEST_LENGTH);
        Self { digest, content }
    }

    /// How much it restricts, for the choice between several.
    pub fn restriction(&self) -> (Option<usize>, Option<Timestamp>) {
        let Some(Content { mark, .. }) = &self.content else {
            return (Some(MarkState::ALL.len()), None);
        };
        let rank = MarkState::ALL.iter().position(|it| *it == mark.state);
        (rank, Some(mark.written_at))
    }

    pub fn on_disk(self) -> MarkOnDisk {
        match self.content {
            Some(content) => MarkOnDisk::Valid(content.mark),
            None => MarkOnDisk::Unreadable { digest: self.digest },
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Content {
    pub mark: Mark,
    /// The digests of the records that do not count any more.
    pub replaces: Vec<String>,
    /// The text of the identity; empty in an attribute, which lies in its volume.
    pub identity: String,
    /// The name in the discovery directory; empty in an attribute.
    pub entry: String,
    /// Of an attribute: [`super::MarkFact::directory`] of the state directory that would have a newer mark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
}

impl Content {
    pub fn is_attribute(&self) -> bool {
        self.identity.is_empty()
    }

    pub fn encode(&self) -> io::Result<Vec<u8>> {
        let mut text = format!("{VERSION}{}\n", serde_json::to_string(self)?);
        let end = PADDED_BYTES - (CHECKSUM.len() + 64 + 1);
        text.extend(std::iter::repeat_n('\n', end.saturating_sub(text.len())));
        let checksum = sha256(text.as_bytes());
        text.extend([CHECKSUM, &checksum, "\n"]);
        Ok(text.into_bytes())
    }

    /// The checksum and the content.
    fn decode(bytes: &[u8]) -> Option<(String, Self)> {
        let text = std::str::from_utf8(bytes).ok()?;
        let (body, checksum) = text.strip_suffix('\n')?.rsplit_once(CHECKSUM)?;
        if sha256(body.as_bytes()) != checksum {
            return None;
        }
        let content = serde_json::from_str(body.strip_prefix(VERSION)?).ok()?;
        Some((checksum.to_owned(), content))
    }
}
