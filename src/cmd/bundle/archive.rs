//! The archive: a gzipped tar file with one directory.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;
use tar::{Builder, Header};

use super::pseudonyms::Pseudonyms;

/// An archive that is written.
pub(super) struct Archive<'a> {
    tar: Builder<GzEncoder<&'a mut (dyn Write + Send)>>,
    dir: String,
    /// When it was created.
    seconds: u64,
    /// Without, names stay.
    pub names: Option<Pseudonyms>,
}

impl<'a> Archive<'a> {
    /// Begins an archive whose files are in `dir` and of this time.
    pub fn new(out: &'a mut (dyn Write + Send), dir: String, seconds: u64) -> Self {
        Self {
            tar: Builder::new(GzEncoder::new(out, Compression::default())),
            dir,
            seconds,
            names: None,
        }
    }

    /// Adds a text, or a document as JSON, with pseudonyms.
    pub fn add(&mut self, file: &str, mut content: Value) -> io::Result<()> {
        if let Some(names) = &self.names {
            names.replace_in(&mut content);
        }
        let text = match content {
            Value::String(text) => text,
            document => format!("{document:#}\n"),
        };
        let mut header = Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(self.seconds);
        let path = format!("{}/{file}", self.dir);
        self.tar.append_data(&mut header, path, text.as_bytes())
    }

    /// Completes the archive.
    pub fn finish(self) -> io::Result<()> {
        self.tar.into_inner()?.finish()?.flush()
    }
}
