use serde_json::json;

use super::{apply::Manager, *};
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

fn manager(name: &str) -> Manager {
    Manager {
        name: name.into(),
        subresource: String::new(),
        force: false,
    }
}

fn without_owners(mut object: Value) -> Value {
    object["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("managedFields");
    object
}

#[test]
fn apply_removes_what_its_manager_dropped() {
    let r = &resource::PODS;
    let first = json!({
        "metadata": {"name": "p", "labels": {"a": "1", "b": "2"}, "finalizers": ["x/x", "y/y"]},
        "spec": {"containers": [{"name": "one", "image": "i"}, {"name": "two", "image": "i"}]},
    });
    let live = apply::create(r, &first, &manager("me"));
    assert_eq!(without_owners(live.clone()), first);
    let second = json!({
        "metadata": {"name": "p", "labels": {"a": "1"}, "finalizers": ["y/y"]},
        "spec": {"containers": [{"name": "one", "image": "i"}]},
    });
    let live = apply::apply(r, &live, &second, &manager("me")).unwrap();
    assert_eq!(without_owners(live), second);
}

#[test]
fn apply_conflicts_with_other_owners() {
    let r = &resource::CONFIG_MAPS;
    let config = |k: &str, v: &str| json!({"metadata": {"name": "c"}, "data": {k: v}});
    let live = apply::create(r, &config("k", "1"), &manager("first"));

    let shared = apply::apply(r, &live, &config("k", "1"), &manager("second")).unwrap();
    let dropped = json!({"metadata": {"name": "c"}});
    let kept = apply::apply(r, &shared, &dropped, &manager("second")).unwrap();
    assert_eq!(kept["data"]["k"], "1", "still owned by the first");

    let refused = apply::apply(r, &live, &config("k", "2"), &manager("second")).unwrap_err();
    assert_eq!((refused.code, refused.reason), (409, "Conflict"));
    assert!(
        refused.message.contains("conflict with \"first\": .data.k"),
        "{refused}"
    );

    let force = Manager {
        force: true,
        ..manager("second")
    };
    let forced = apply::apply(r, &live, &config("k", "2"), &force).unwrap();
    assert_eq!(forced["data"]["k"], "2");
    let refused = apply::apply(r, &forced, &config("k", "3"), &manager("first")).unwrap_err();
    assert!(
        refused.message.contains("conflict with \"second\""),
        "{refused}"
    );
}

#[test]
fn an_update_takes_ownership() {
    let r = &resource::CONFIG_MAPS;
    let config = json!({"metadata": {"name": "c"}, "data": {"k": "1", "l": "1"}});
    let live = apply::create(r, &config, &manager("applier"));
    let mut edited = live.clone();
    edited["data"]["k"] = json!("edited");
    apply::take_over(r, &live, &mut edited, &manager("kubectl-edit"));
    let refused = apply::apply(r, &edited, &config, &manager("applier")).unwrap_err();
    assert!(
        refused
            .message
            .contains("conflict with \"kubectl-edit\" using v1: .data.k"),
        "{refused}"
    );
}

#[test]
fn the_first_apply_to_an_older_object_respects_what_is_there() {
    let r = &resource::CONFIG_MAPS;
    let live = json!({"metadata": {"name": "c"}, "data": {"k": "1"}});
    let config = json!({"metadata": {"name": "c"}, "data": {"k": "2"}});
    let refused = apply::apply(r, &live, &config, &manager("me")).unwrap_err();
    assert!(refused.message.contains("before-first-apply"), "{refused}");
    let config = json!({"metadata": {"name": "c"}, "data": {"l": "2"}});
    let new = apply::apply(r, &live, &config, &manager("me")).unwrap();
    assert_eq!(new["data"], json!({"k": "1", "l": "2"}));
}
