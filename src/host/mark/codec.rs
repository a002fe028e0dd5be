//! The text of a mark: lines `key=value`, the version first, the SHA-256 of all other bytes last.
//!
//! Values are percent-encoded where they hold `%`, a control character or anything but ASCII: users and administrators
//! choose the names of claims, classes and entries. A text with an unknown version, an unknown key or a wrong checksum
//! is not readable.

use std::collections::BTreeMap;

use jiff::Timestamp;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

use super::{Mark, MarkOnDisk, MarkState, RootAttributes};
use crate::host::sha256;

const VERSION: &str = "1";

/// The least length of a text, so that later writes need no more space. With it, the attribute of a root fills an ext4
/// block of 1 KiB, the smallest there is.
pub(super) const PADDED_BYTES: usize = 896;

/// The line of the checksum, without its value.
const CHECKSUM: &str = "checksum=";

const RESERVED: &AsciiSet = &CONTROLS.add(b'%');

/// The bytes of one place.
#[derive(Clone, Debug)]
pub(super) struct Record {
    /// The first 16 hexadecimal digits of the SHA-256 of the bytes.
    pub digest: String,
    /// What they say; `None` if they are not readable.
    pub content: Option<Content>,
}

impl Record {
    pub fn read(bytes: &[u8]) -> Self {
        let mut digest = sha256(bytes);
        digest.truncate(16);
        let content = Content::decode(bytes);
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
            None => MarkOnDisk::Unreadable {
                digest: self.digest,
            },
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Content {
    pub mark: Mark,
    /// The digests of the records that do not count any more.
    pub replaces: Vec<String>,
    /// The text of the identity; empty in an attribute, which lies in its volume.
    pub identity: String,
    /// The name in the discovery directory; empty in an attribute.
    pub entry: String,
}

impl Content {
    pub fn encode(&self) -> Vec<u8> {
        let mark = &self.mark;
        let mut fields = vec![
            ("version", VERSION.to_owned()),
            ("cluster", mark.cluster.clone()),
            ("pv-uid", mark.pv_uid.clone()),
            ("token", mark.token.clone()),
            ("state", mark.state.as_str().to_owned()),
            ("identity-hash", mark.identity_hash.clone()),
            ("class", mark.class.clone()),
            ("read-only", mark.read_only.to_string()),
            ("written-at", mark.written_at.to_string()),
            ("replaces", self.replaces.join(",")),
            ("identity", self.identity.clone()),
            ("entry", self.entry.clone()),
        ];
        fields.extend(mark.claim.clone().map(|claim| ("claim", claim)));
        fields.extend(mark.header.clone().map(|header| ("header", header)));
        fields.extend(mark.root.as_ref().map(|root| ("root", root.encode())));
        let mut text = String::new();
        for (key, value) in fields {
            let value = utf8_percent_encode(&value, RESERVED).to_string();
            text.extend([key, "=", &value, "\n"]);
        }
        let end = PADDED_BYTES.saturating_sub(CHECKSUM.len() + 65);
        while text.len() < end {
            text.push('\n');
        }
        let checksum = sha256(text.as_bytes());
        text.extend([CHECKSUM, &checksum, "\n"]);
        text.into_bytes()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let (body, checksum) = text.strip_suffix('\n')?.rsplit_once(CHECKSUM)?;
        if sha256(body.as_bytes()) != checksum {
            return None;
        }
        let mut fields = BTreeMap::new();
        for line in body.lines().filter(|line| !line.is_empty()) {
            let (key, value) = line.split_once('=')?;
            let value = percent_decode_str(value).decode_utf8().ok()?;
            fields.insert(key, value.into_owned());
        }
        if fields.remove("version")? != VERSION {
            return None;
        }
        let state = fields.remove("state")?;
        let replaces = fields.remove("replaces")?;
        let root = match fields.remove("root") {
            Some(root) => Some(RootAttributes::decode(&root)?),
            None => None,
        };
        let content = Self {
            mark: Mark {
                cluster: fields.remove("cluster")?,
                pv_uid: fields.remove("pv-uid")?,
                token: fields.remove("token")?,
                state: MarkState::ALL.into_iter().find(|it| it.as_str() == state)?,
                identity_hash: fields.remove("identity-hash")?,
                class: fields.remove("class")?,
                claim: fields.remove("claim"),
                header: fields.remove("header"),
                read_only: fields.remove("read-only")?.parse().ok()?,
                written_at: fields.remove("written-at")?.parse().ok()?,
                root,
            },
            replaces: replaces.split_terminator(',').map(str::to_owned).collect(),
            identity: fields.remove("identity")?,
            entry: fields.remove("entry")?,
        };
        // An unknown key may restrict.
        fields.is_empty().then_some(content)
    }
}
