//! How stored objects are shown: in full, as metadata only, as a table row, or, for
//! `events.k8s.io`, under that group's field names.

use std::{borrow::Cow, sync::Arc};

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Value, json};

use crate::{
    event_view,
    resource::{self, Resource},
    table::{self, IncludeObject},
};

/// What the client asked for in `Accept`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Full,
    Metadata,
    Table(IncludeObject),
}

impl Format {
    /// The first alternative of `Accept` that is JSON and known; plain JSON if there is none, so
    /// that clients which prefer protobuf get something they can read as well.
    pub(crate) fn negotiate(accept: &str, include_object: &str) -> Self {
        let include = match include_object {
            "None" => IncludeObject::None,
            "Object" => IncludeObject::Object,
            _ => IncludeObject::Metadata,
        };
        for alternative in accept.split(',') {
            let mut parts = alternative.split(';').map(str::trim);
            if !matches!(parts.next(), Some("application/json" | "*/*" | "application/*")) {
                continue;
            }
            let parts: Vec<_> = parts.collect();
            let shape = parts.iter().find_map(|part| part.strip_prefix("as="));
            if shape.is_some() && !parts.contains(&"v=v1") {
                continue;
            }
            match shape {
                None => return Self::Full,
                Some("Table") => return Self::Table(include),
                Some("PartialObjectMetadata" | "PartialObjectMetadataList") => {
                    return Self::Metadata;
                }
                Some(_) => {}
            }
        }
        Self::Full
    }
}

/// One type as one client sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View {
    /// The type that was asked for.
    pub(crate) resource: &'static Resource,
    pub(crate) format: Format,
}

/// The type under which objects of `r` are stored.
pub(crate) fn stored(r: &'static Resource) -> &'static Resource {
    if r == &resource::EVENTS_V1 { &resource::EVENTS } else { r }
}

impl View {
    /// One object as it is sent.
    pub(crate) fn object<'a>(&self, object: &'a Value) -> Cow<'a, Value> {
        match self.format {
            Format::Full if self.resource == &resource::EVENTS_V1 => {
                Cow::Owned(event_view::from_core(object))
            }
            Format::Full => Cow::Borrowed(object),
            Format::Metadata => Cow::Owned(table::partial(object)),
            Format::Table(include) => {
                let r = stored(self.resource);
                let metadata = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
                Cow::Owned(table::table(r, &metadata, &[table::row(r, object, include)]))
            }
        }
    }

    /// A listing as it is sent. The objects are asked for one by one, as many as they may be.
    pub(crate) fn list(
        &self,
        objects: impl Iterator<Item = Arc<Value>>,
        metadata: &Value,
    ) -> serde_json::Result<Vec<u8>> {
        if let Format::Table(include) = self.format {
            let r = stored(self.resource);
            let rows: Vec<_> = objects.map(|o| table::row(r, &o, include)).collect();
            return serde_json::to_vec(&table::table(r, metadata, &rows));
        }
        let (kind, api_version) = match self.format {
            Format::Metadata => {
                ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1".to_owned())
            }
            _ => (format!("{}List", self.resource.kind), self.resource.api_version()),
        };
        let mut list = serde_json::to_vec(&json!({
            "apiVersion": api_version,
            "kind": kind,
            "metadata": metadata,
        }))?;
        // Instead of the closing brace.
        list.pop();
        list.extend_from_slice(br#","items":["#);
        for (index, object) in objects.enumerate() {
            if index > 0 {
                list.push(b',');
            }
            let item =
                Item { object: self.object(&object), typed: self.format == Format::Metadata };
            serde_json::to_writer(&mut list, &item)?;
        }
        list.extend_from_slice(b"]}");
        Ok(list)
    }

    /// A watch event's object of a bookmark.
    pub(crate) fn bookmark(&self, resource_version: u64, initial_events_end: bool) -> Value {
        let mut metadata = json!({"resourceVersion": resource_version.to_string()});
        if initial_events_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        match self.format {
            Format::Full => json!({
                "kind": self.resource.kind,
                "apiVersion": self.resource.api_version(),
                "metadata": metadata,
            }),
            Format::Metadata => table::partial(&json!({"metadata": metadata})),
            Format::Table(_) => {
                let row = json!({"cells": [], "object": {
                    "kind": self.resource.kind,
                    "apiVersion": self.resource.api_version(),
                    "metadata": metadata,
                }});
                let metadata = json!({"resourceVersion": resource_version.to_string()});
                table::table(stored(self.resource), &metadata, &[row])
            }
        }
    }
}

/// Items of a list do not repeat kind and version, except where the list mixes kinds.
struct Item<'a> {
    object: Cow<'a, Value>,
    typed: bool,
}

impl Serialize for Item<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &*self.object {
            Value::Object(fields) if !self.typed => {
                let mut map = serializer.serialize_map(None)?;
                for (key, value) in fields {
                    if key != "kind" && key != "apiVersion" {
                        map.serialize_entry(key, value)?;
                    }
                }
                map.end()
            }
            other => other.serialize(serializer),
        }
    }
}
