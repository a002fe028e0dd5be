//! `devices`: which disks of the node become volumes of a class, without an entry that an operator makes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_with::{DeserializeFromStr, SerializeDisplay};

use super::pattern::NamePattern;
use super::text;
use crate::quantity;
use crate::types::FsType;

/// The rule of a class. Only blank disks are taken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Devices {
    /// `match` (required): globs of links below `/dev/disk`. A disk that none of its links matches is not looked at.
    #[serde(rename = "match")]
    pub links: Vec<NamePattern>,
    /// `exclude` (default none): globs of links. A disk with such a link is left alone.
    #[serde(default)]
    pub exclude: Vec<NamePattern>,
    /// `minSize` (default none).
    #[serde(default)]
    pub min_size: Option<Bytes>,
    /// `maxSize` (default none).
    #[serde(default)]
    pub max_size: Option<Bytes>,
    /// `rotational` (default either): only disks that rotate, or only others.
    #[serde(default, deserialize_with = "text::optional_flag")]
    pub rotational: Option<bool>,
    /// `model` (default any): globs of the model that the disk reports, with `_` for blanks.
    #[serde(default)]
    pub model: NamePattern,
    /// `filesystem` (default none: the disk itself; or `ext4`, `xfs`): what is made on each disk, and made again to clean it.
    #[serde(default)]
    pub filesystem: Option<FsType>,
    /// `mountOptions` (default none): options with which these filesystems are mounted.
    #[serde(default)]
    pub mount_options: Vec<String>,
    /// `approve` (default `Plan`; or `Auto`): whether an operator approves the disks first.
    #[serde(default)]
    pub approve: Approve,
}

/// Who approves that disks are taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Approve {
    /// An operator, by the hash of the list.
    #[default]
    Plan,
    /// The rule is enough.
    Auto,
}

impl Devices {
    /// Whether the rule matches a link.
    pub fn matches(&self, link: &str) -> bool {
        any(&self.links, link)
    }

    /// Whether it excludes a link.
    pub fn excludes(&self, link: &str) -> bool {
        any(&self.exclude, link)
    }

    /// Whether it names a link without a wildcard.
    pub fn names(&self, link: &str) -> bool {
        let mut globs = self.links.iter().flat_map(NamePattern::globs);
        globs.any(|glob| glob == link)
    }
}

fn any(globs: &[NamePattern], link: &str) -> bool {
    globs.iter().any(|glob| glob.matches(link))
}

/// A size in bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, DeserializeFromStr, SerializeDisplay,
)]
pub struct Bytes(pub u64);

impl FromStr for Bytes {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        quantity::parse(text).map(Self).ok_or("not a size")
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&quantity::format(self.0))
    }
}
