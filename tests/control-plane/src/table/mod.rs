//! Server-side printing: `meta.k8s.io/v1 Table`, which is what `kubectl get` asks for.

mod columns;
mod words;

use serde_json::{Value, json};

use crate::resource::Resource;

/// One column: heading, value type, and whether only `-o wide` shows it.
pub(super) struct Column {
    name: &'static str,
    wide: bool,
    cell: fn(&Value) -> Value,
}

/// What a row carries beside its cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IncludeObject {
    None,
    Metadata,
    Object,
}

/// The headings of a type.
pub(crate) fn column_definitions(r: &'static Resource) -> Vec<Value> {
    let definition = |c: &Column| {
        json!({
            "name": c.name,
            "type": "string",
            "format": if c.name == "Name" { "name" } else { "" },
            "description": "",
            "priority": i32::from(c.wide),
        })
    };
    columns::of(r).iter().map(definition).collect()
}

/// One object as a row.
pub(crate) fn row(r: &'static Resource, object: &Value, include: IncludeObject) -> Value {
    let cells: Vec<_> = columns::of(r).iter().map(|c| (c.cell)(object)).collect();
    let mut row = json!({"cells": cells});
    match include {
        IncludeObject::None => {}
        IncludeObject::Metadata => row["object"] = partial(object),
        IncludeObject::Object => row["object"] = object.clone(),
    }
    row
}

/// The whole table.
pub(crate) fn table(r: &'static Resource, metadata: &Value, rows: &[Value]) -> Value {
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": column_definitions(r),
        "rows": rows,
    })
}

/// Only the metadata of an object.
pub(crate) fn partial(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": object["metadata"],
    })
}
