//! What somebody is told who writes a scenario wrongly, and that short forms say what they should.

use std::path::Path;

use conformance::{
    scenario::{self, Scenario},
    step::{Action, Request},
};
use serde_json::{Value, json};

fn parse(text: &str) -> Result<Vec<Scenario>, String> {
    scenario::parse(Path::new("scenarios/topic.yaml"), text).map_err(|error| error.to_string())
}

/// The text that one scenario with these steps is refused with.
fn refused(steps: &str) -> String {
    let text = format!("[{{name: odd, says: x, steps: [{steps}]}}]");
    parse(&text)
        .err()
        .unwrap_or_else(|| format!("{steps}: it was taken"))
}

#[test]
fn an_error_names_the_file_the_scenario_the_step_and_the_key() {
    for (steps, told) in [
        (
            "{pv a: {sise: 1Gi}}",
            "step 1, {\"pv a\":{\"sise\":\"1Gi\"}}: unknown field `sise`",
        ),
        (
            "settle, {pv a: {size: 5}}",
            "step 2, {\"pv a\":{\"size\":5}}: invalid type: integer `5`, expected a string",
        ),
        ("{pvx a: {}}", "there is no action \"pvx a\""),
        ("{delete pvx a: {}}", "there is no kind \"pvx\"; known are"),
        (
            "{wait pv x/a: Bound}",
            "pv \"x/a\": objects of this kind have no namespace",
        ),
        (
            "{wait pv a: 5}",
            "wait takes a phase, `gone`, or fields of the object",
        ),
        ("{pv a: {}, pv b: {}}", "a step has one action"),
        ("{pv a: {}, answers: no}", "answers: \"no\": it is a code"),
        ("{pv a: {}, shows: /spec}", "shows: a list of strings"),
        (
            "{keep x: pv a uid}",
            "keep takes an object and a JSON pointer",
        ),
        ("jump", "there is no action \"jump\""),
    ] {
        let error = refused(steps);
        assert!(
            error.starts_with("scenarios/topic.yaml: scenario odd: step") && error.contains(told),
            "{steps}: {error}"
        );
    }
}

#[test]
fn so_does_one_about_the_scenario_itself() {
    for (text, told) in [
        ("[{name: a, says: x}]", "scenario a: missing field `steps`"),
        (
            "[{says: x, steps: []}]",
            "scenario number 1: missing field `name`",
        ),
        (
            "[{name: a, says: x, steps: [], colour: red}]",
            "scenario a: unknown field `colour`",
        ),
        (
            "[{name: a, says: x, steps: [], class: slow}]",
            "scenario a: unknown variant `slow`",
        ),
        (
            "[{name: A/b, says: x, steps: []}]",
            "scenario A/b: its name may hold",
        ),
        (
            "[{name: a, says: x, steps: [], record: [pvx c]}]",
            "record or waiting: \"pvx c\": there is no kind",
        ),
        (
            "[{name: a, says: x, steps: []}, {name: a, says: y, steps: []}]",
            "there is another one of this name",
        ),
        ("[{name: a", "scenarios/topic.yaml: "),
    ] {
        let error = parse(text).err().unwrap_or_default();
        assert!(error.contains(told), "{text}: {error}");
    }
}

fn request(step: &str) -> Option<Request> {
    let text = format!("[{{name: one, says: x, class: missing, steps: [{step}]}}]");
    match &parse(&text).ok()?.first()?.steps.first()?.action {
        Action::Request(request) => Some((**request).clone()),
        _ => None,
    }
}

fn body(step: &str) -> Value {
    request(step).map_or(Value::Null, |request| request.body)
}

#[test]
fn a_short_form_has_defaults_and_yields_to_what_it_is_merged_with() {
    let volume =
        body("{pv a: {size: 2Gi, claim: other/c, with: {spec: {local: null, nfs: {path: /x}}}}}");
    assert_eq!(volume["metadata"]["name"], "${a}");
    let spec = &volume["spec"];
    assert_eq!(spec["capacity"], json!({"storage": "2Gi"}));
    assert_eq!(spec["accessModes"], json!(["ReadWriteOnce"]));
    assert_eq!(spec["storageClassName"], "${standard}");
    assert_eq!(spec["claimRef"]["namespace"], "${other}");
    assert_eq!(spec["local"], Value::Null);
    assert_eq!(spec["nfs"], json!({"path": "/x"}));

    let claim = body("{pvc c: {class: '', volume: a}}");
    assert_eq!(claim["metadata"]["name"], "c");
    assert_eq!(claim["spec"]["storageClassName"], "");
    assert_eq!(claim["spec"]["volumeName"], "${a}");
    assert_eq!(
        body("{pvc c: {no-class: true}}")["spec"].get("storageClassName"),
        None
    );
}

#[test]
fn a_name_that_looks_like_a_boolean_is_a_name() {
    assert_eq!(body("{pod p: {node: n}}")["spec"]["nodeName"], "${n}");
}

#[test]
fn an_object_that_is_refused_is_not_recorded() {
    let text = "[{name: one, says: x, steps: [{pv a: {}, answers: 422}, {pvc c: {}}]}]";
    let recorded = parse(text).map(|scenarios| {
        let targets = scenarios.iter().flat_map(|s| &s.record);
        targets.map(ToString::to_string).collect::<Vec<_>>()
    });
    assert_eq!(recorded, Ok(vec!["pvc c".to_owned()]));
}
