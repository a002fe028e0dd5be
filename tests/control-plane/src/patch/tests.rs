use serde_json::json;

use super::*;
use crate::resource;

fn strategic(object: &Value, patch: Value) -> Value {
    Patch::Strategic(patch)
        .apply(&resource::PODS, object)
        .unwrap()
}

fn json_patch(object: &Value, operations: Value) -> Result<Value, Status> {
    let operations = serde_json::from_value(operations).unwrap();
    Patch::Json(operations).apply(&resource::PODS, object)
}

#[test]
fn json_patches() {
    let object = json!({"a": {"b": 1}, "list": [1, 2]});
    let new = json_patch(
        &object,
        json!([
            {"op": "test", "path": "/a/b", "value": 1},
            {"op": "add", "path": "/list/-", "value": 3},
            {"op": "replace", "path": "/a/new", "value": true},
            {"op": "remove", "path": "/a/b"},
        ]),
    );
    assert_eq!(new, Ok(json!({"a": {"new": true}, "list": [1, 2, 3]})));
    for operation in [
        json!({"op": "test", "path": "/a/b", "value": 2}),
        json!({"op": "remove", "path": "/a/missing"}),
        json!({"op": "add", "path": "/no/parent", "value": 1}),
        json!({"op": "replace", "path": "/list/9", "value": 1}),
    ] {
        let refused = json_patch(&object, json!([operation])).unwrap_err();
        assert_eq!(
            (refused.code, refused.reason),
            (422, "Invalid"),
            "{operation}"
        );
    }
}

#[test]
fn merge_patch_replaces_lists_and_null_removes() {
    let object = json!({"metadata": {"finalizers": ["a/a"], "labels": {"x": "1", "y": "2"}}});
    let patch = json!({"metadata": {"finalizers": ["b/b"], "labels": {"x": null, "z": "3"}}});
    assert_eq!(
        Patch::Merge(patch).apply(&resource::PODS, &object),
        Ok(json!({"metadata": {"finalizers": ["b/b"], "labels": {"y": "2", "z": "3"}}}))
    );
}

#[test]
fn strategic_merge() {
    for (what, object, patch, expected) in [
        (
            "finalizers are a set",
            json!({"metadata": {"finalizers": ["a/a"]}}),
            json!({"metadata": {"finalizers": ["b/b", "a/a"]}}),
            json!({"metadata": {"finalizers": ["b/b", "a/a"]}}),
        ),
        (
            "a finalizer is taken out",
            json!({"metadata": {"finalizers": ["a/a", "b/b"]}}),
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a/a"]}}),
            json!({"metadata": {"finalizers": ["b/b"]}}),
        ),
        (
            "containers merge by name, new ones are added",
            json!({"spec": {"containers": [{"name": "a", "image": "x", "env": [{"name": "E"}]}]}}),
            json!({"spec": {"containers": [{"name": "a", "image": "y"}, {"name": "b"}]}}),
            json!({"spec": {"containers": [
                {"name": "a", "image": "y", "env": [{"name": "E"}]}, {"name": "b"}
            ]}}),
        ),
        (
            "an item is deleted by its key",
            json!({"spec": {"volumes": [{"name": "a"}, {"name": "b"}]}}),
            json!({"spec": {"volumes": [{"name": "a", "$patch": "delete"}]}}),
            json!({"spec": {"volumes": [{"name": "b"}]}}),
        ),
        (
            "a list is replaced when told so",
            json!({"spec": {"volumes": [{"name": "a"}, {"name": "b"}]}}),
            json!({"spec": {"volumes": [{"$patch": "replace"}, {"name": "c"}]}}),
            json!({"spec": {"volumes": [{"name": "c"}]}}),
        ),
        (
            "the order can be set",
            json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}]}}),
            json!({"spec": {
                "$setElementOrder/containers": [{"name": "c"}, {"name": "b"}, {"name": "a"}],
                "containers": [{"name": "c"}],
            }}),
            json!({"spec": {"containers": [{"name": "c"}, {"name": "b"}, {"name": "a"}]}}),
        ),
        (
            "retainKeys drops the others",
            json!({"spec": {"strategy": {"type": "a", "rolling": 1}}}),
            json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "b"}}}),
            json!({"spec": {"strategy": {"type": "b"}}}),
        ),
        (
            "other lists are replaced, null removes",
            json!({"spec": {"args": [1, 2], "x": 1}}),
            json!({"spec": {"args": [3], "x": null}}),
            json!({"spec": {"args": [3]}}),
        ),
    ] {
        assert_eq!(strategic(&object, patch), expected, "{what}");
    }
}
