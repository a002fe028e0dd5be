//! Writes a mark to the attribute of its volume or to the state directory.

use super::codec::Content;
use super::{Mark, MarkError, MarkedVolume, Place, StateDir, attribute, files};

impl StateDir {
    /// Writes the mark of a volume, durably. It replaces all earlier records. Returns where it lies. Blocking: the
    /// caller sets the time limit, and holds the volume's lock until this returns.
    ///
    /// # Errors
    /// [`MarkError`]. The earlier mark counts unless the new one was written after all.
    pub fn write(&self, volume: &MarkedVolume<'_>, mark: &Mark) -> Result<Place, MarkError> {
        self.write_at(volume, mark, true)
    }

    /// The same in the state directory, where it outlives the filesystem.
    ///
    /// # Errors
    /// Likewise.
    pub fn keep(&self, volume: &MarkedVolume<'_>, mark: &Mark) -> Result<(), MarkError> {
        self.write_at(volume, mark, false).map(drop)
    }

    fn write_at(
        &self,
        volume: &MarkedVolume<'_>,
        mark: &Mark,
        may_be_attribute: bool,
    ) -> Result<Place, MarkError> {
        let marks = self.read_of(volume)?;
        let attribute = volume.root.map(attribute::read).transpose()?;
        let records = marks.records(volume, attribute);
        let mut content = Content {
            mark: mark.clone(),
            replaces: records.into_iter().map(|it| it.digest).collect(),
            identity: String::new(),
            entry: String::new(),
            directory: marks.directory.clone(),
        };
        let old_files = marks.files_of(volume).into_iter().map(|(name, _)| name);
        let refusal = match volume.root {
            Some(_) if !may_be_attribute => "the filesystem is made again".to_owned(),
            None => "a device has no attributes".to_owned(),
            Some(root) => match attribute::write(root, &content.encode()?) {
                Ok(()) => {
                    self.remove(old_files);
                    return Ok(Place::Attribute);
                }
                Err(error) if attribute::is_refusal(&error) => error.to_string(),
                Err(error) => return Err(error.into()),
            },
        };
        if !marks.has_directory {
            return Err(MarkError::NoPlace(refusal));
        }
        volume.identity.text.clone_into(&mut content.identity);
        volume.entry.clone_into(&mut content.entry);
        content.directory = None;
        let name = files::name(volume);
        self.replace(&name, &content.encode()?)?;
        self.remove(old_files.filter(|old| **old != name));
        Ok(Place::StateDirectory)
    }
}
