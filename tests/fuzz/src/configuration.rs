//! The ConfigMap, which operators write.

use std::collections::BTreeMap;

use local_volume_provisioner::config::from_files;

/// The longest message: a longer one is not read at 3 a.m., and the API server cuts an event.
const LONGEST: usize = 1024;

/// Keys and their values, each ended by a byte 0xFF.
pub fn configuration(bytes: &[u8]) {
    let mut words = bytes.split(|byte| *byte == 0xFF).map(String::from_utf8_lossy);
    let mut files = BTreeMap::new();
    while let (Some(key), Some(value)) = (words.next(), words.next()) {
        files.insert(key.into_owned(), value.into_owned());
    }
    match from_files(&files) {
        Err(why) => assert!(!why.is_empty()),
        Ok(loaded) => {
            for fault in &loaded.faults {
                assert!(!fault.message.is_empty());
                if let Some(class) = &fault.class {
                    let is_used = loaded.config.classes.contains_key(class);
                    assert!(!is_used, "class {class:?} is used in spite of: {}", fault.message);
                }
                // A value of any length is cut.
                let class = fault.class.as_ref().map_or(0, String::len);
                let length = fault.message.len();
                assert!(length <= LONGEST + class, "{length} bytes: {}", fault.message);
            }
            for (name, class) in &loaded.config.classes {
                assert_eq!(*name, class.name);
                assert!(class.host_dir.as_str().starts_with('/'));
            }
            let again = from_files(&files).unwrap();
            assert_eq!(again.faults, loaded.faults, "the same text is read in two ways");
        }
    }
}
