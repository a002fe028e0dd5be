//! The errors of a scenario that is written wrongly, and what short forms stand for.

use std::path::Path;

use conformance::{
    scenario::{self, Scenario},
    step::Action,
};
use serde_json::{Value, json};

fn parse(text: &str) -> Result<Vec<Scenario>, String> {
    let parsed = scenario::parse(Path::new("scenarios/topic.yaml"), text);
    parsed.map_err(|error| format!("{error:#}"))
}

#[test]
fn an_error_names_the_file_the_scenario_and_the_step() {
    for (steps, told) in [
        (
            "{pv a: {sise: 1Gi}}",
            "step 1, {\"pv a\":{\"sise\":\"1Gi\"}}: unknown field `sise`",
        ),
        (
            "settle, {pv a: {size: 5}}",
            "step 2, {\"pv a\":{\"size\":5}}: invalid type",
        ),
        ("{pvx a: {}}", "there is no action \"pvx a\""),
        ("{delete pvx a: {}}", "there is no kind \"pvx\""),
        (
            "{wait pv x/a: Bound}",
            "objects of this kind have no namespace",
        ),
        ("{wait pv a: 5}", "wait takes a phase"),
        ("{pv a: {}, pv b: {}}", "a step has one action"),
        ("{pv a: {}, answers: no}", "answers: \"no\": it is a code"),
        (
            "{keep x: pv a uid}",
            "keep takes an object and a JSON pointer",
        ),
    ] {
        let text = format!("[{{name: odd, says: x, steps: [{steps}]}}]");
        let error = parse(&text).err().unwrap_or_default();
        assert!(
            error.starts_with("scenarios/topic.yaml: scenario odd: step") && error.contains(told),
            "{steps}: {error}"
        );
    }
    for (text, told) in [
        ("[{name: a, says: x}]", "scenario a: missing field `steps`"),
        (
            "[{name: a, says: x, steps: [], colour: red}]",
            "scenario a: unknown field `colour`",
        ),
        (
            "[{name: a, says: x, steps: []}, {name: a, says: y, steps: []}]",
            "two scenarios",
        ),
        ("[{name: a", "scenarios/topic.yaml: "),
    ] {
        let error = parse(text).err().unwrap_or_default();
        assert!(error.contains(told), "{text}: {error}");
    }
}

fn body(step: &str) -> Value {
    let text = format!("[{{name: one, says: x, class: missing, steps: [{step}]}}]");
    let scenarios = parse(&text).unwrap_or_default();
    match scenarios.first().map(|scenario| &scenario.steps[0].action) {
        Some(Action::Request(request)) => request.body.clone(),
        _ => Value::Null,
    }
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
    let open = body("{pvc c: {no-class: true}}");
    assert_eq!(open["spec"].get("storageClassName"), None);
    // A name that looks like a boolean is a name.
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
