//! Changes of API objects by others than provisioners. The object may be gone.

use control_plane::resource::Resource;
use control_plane::store::{DeleteOptions, Part};
use serde_json::{Value, json};

use crate::script::name;
use crate::world::World;

impl World {
    /// Changes an object; `namespace` is "" if it has none.
    pub fn modify(
        &self,
        of: &'static Resource,
        namespace: &str,
        name: &str,
        change: impl FnOnce(&mut Value),
    ) {
        let changed = |object: &Value| {
            let mut object = object.clone();
            change(&mut object);
            Ok(object)
        };
        let _ = self.store.modify(of, namespace, name, Part::Main, changed);
    }

    /// Deletes an object at once.
    pub fn delete(&self, of: &'static Resource, object: &Value) {
        let options = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
        let namespace = object["metadata"]["namespace"].as_str();
        let namespace = namespace.unwrap_or_default();
        let _ = self.store.delete(of, namespace, name(object), &options);
    }

    /// Sets an annotation, or removes it if it is null.
    pub fn annotate(
        &self,
        of: &'static Resource,
        namespace: &str,
        name: &str,
        key: &str,
        value: Value,
    ) {
        self.modify(of, namespace, name, |object| {
            let annotations = &mut object["metadata"]["annotations"];
            if !annotations.is_object() {
                *annotations = json!({});
            }
            let annotations = annotations.as_object_mut().unwrap();
            match value {
                Value::Null => annotations.remove(key),
                value => annotations.insert(key.to_owned(), value),
            };
        });
    }
}
