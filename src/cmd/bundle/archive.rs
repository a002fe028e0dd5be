//! The archive: a gzipped tar file with one directory.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;
use tar::{Builder, Header};

use super::pseudonyms::Pseudonyms;
use crate::cluster::ApiError;
use crate::errors::chain;
use crate::log::printable;

/// An archive that is written, and what could not be read for it.
pub(super) struct Archive<'a> {
    tar: Builder<GzEncoder<&'a mut (dyn Write + Send)>>,
    dir: String,
    seconds: u64,
    /// Without, names stay.
    pub names: Option<Pseudonyms>,
    errors: Vec<String>,
}

impl<'a> Archive<'a> {
    /// Begins an archive whose files are in `dir` and of this time.
    pub fn new(out: &'a mut (dyn Write + Send), dir: String, seconds: u64) -> Self {
        Self {
            tar: Builder::new(GzEncoder::new(out, Compression::default())),
            dir,
            seconds,
            names: None,
            errors: Vec::new(),
        }
    }

    /// Adds a text, with pseudonyms.
    pub fn text(&mut self, file: &str, text: &str) -> io::Result<()> {
        let replaced = self.names.as_ref().map(|names| names.replace(text));
        self.append(file, replaced.as_deref().unwrap_or(text))
    }

    /// Adds a document, with pseudonyms.
    pub fn json(&mut self, file: &str, mut value: Value) -> io::Result<()> {
        if let Some(names) = &self.names {
            names.replace_in(&mut value);
        }
        self.append(file, &format!("{value:#}\n"))
    }

    fn append(&mut self, file: &str, text: &str) -> io::Result<()> {
        let mut header = Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(self.seconds);
        let path = format!("{}/{file}", self.dir);
        self.tar.append_data(&mut header, path, text.as_bytes())
    }

    /// Records why something could not be read.
    pub fn failed(&mut self, what: &str, why: &str) {
        self.errors.push(format!("{what}: {}\n", printable(why)));
    }

    /// The objects. An error is recorded.
    pub fn read<T>(&mut self, what: &str, read: Result<Vec<T>, ApiError>) -> Vec<T> {
        read.unwrap_or_else(|error| {
            self.failed(what, &chain(&error));
            Vec::new()
        })
    }

    /// Completes the archive. Returns the number of errors.
    pub fn finish(mut self) -> io::Result<usize> {
        self.text("errors.txt", &self.errors.concat())?;
        self.tar.into_inner()?.finish()?.flush()?;
        Ok(self.errors.len())
    }
}
