//! The two pieces of Kubernetes' own API that a configuration holds: node selector terms and
//! tolerations. They are read by hand, so that a slip in one is found now and named, and not when
//! the API server refuses every volume of the class.

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, Toleration};

use super::fault::Problem;
use super::raw::Node;
use super::section::{Place, Report, Section, label_name, text, word};

/// One term of a class's `selector`.
pub(super) fn node_selector_term(
    place: &Place,
    node: Node,
    report: &mut Report,
) -> Option<NodeSelectorTerm> {
    let mut section = Section::open(place, node, report)?;
    let match_expressions = section.list("matchExpressions", requirement);
    let match_fields = section.list("matchFields", requirement);
    section.close();
    let some = |list: Vec<_>| (!list.is_empty()).then_some(list);
    Some(NodeSelectorTerm {
        match_expressions: some(match_expressions),
        match_fields: some(match_fields),
    })
}

/// How many values an operator takes: in words, and as a test.
type Arity = (&'static str, fn(usize) -> bool);

const NONE: Arity = ("none", |n| n == 0);
const ONE: Arity = ("one", |n| n == 1);
const SOME: Arity = ("at least one", |n| n > 0);
const OPERATORS: [(&str, (&str, Arity)); 6] = [
    ("In", ("In", SOME)),
    ("NotIn", ("NotIn", SOME)),
    ("Exists", ("Exists", NONE)),
    ("DoesNotExist", ("DoesNotExist", NONE)),
    ("Gt", ("Gt", ONE)),
    ("Lt", ("Lt", ONE)),
];

fn requirement(place: &Place, node: Node, report: &mut Report) -> Option<NodeSelectorRequirement> {
    let mut section = Section::open(place, node, report)?;
    let key = section.required("key", label_name);
    let operator = section.required("operator", |node| word(node, &OPERATORS));
    let values = section.list("values", |place, node, report| {
        report.check(place, &node, text(&node).map(str::to_owned))
    });
    if let Some((operator, (takes, fits))) = operator
        && !fits(values.len())
    {
        let problem = Problem::SelectorValues {
            operator,
            takes,
            found: values.len(),
        };
        section
            .report
            .fault(&place.key("values"), &Node::Null, problem);
    }
    section.close();
    Some(NodeSelectorRequirement {
        key: key?,
        operator: operator?.0.to_owned(),
        values: (!values.is_empty()).then_some(values),
    })
}

/// One of `jobTolerations`.
pub(super) fn toleration(place: &Place, node: Node, report: &mut Report) -> Option<Toleration> {
    const OPERATORS: [(&str, &str); 2] = [("Exists", "Exists"), ("Equal", "Equal")];
    const EFFECTS: [(&str, &str); 4] = [
        ("NoSchedule", "NoSchedule"),
        ("PreferNoSchedule", "PreferNoSchedule"),
        ("NoExecute", "NoExecute"),
        // Every effect, as when the key is left out.
        ("", ""),
    ];
    let before = report.faults.len();
    let mut section = Section::open(place, node, report)?;
    let owned = |text: &str| Some(text.to_owned());
    let toleration = Toleration {
        key: section.value("key", |node| match text(node)? {
            "" => Ok(None),
            _ => label_name(node).map(Some),
        }),
        operator: section.value("operator", |node| word(node, &OPERATORS).map(owned)),
        value: section.value("value", |node| text(node).map(owned)),
        effect: section
            .value("effect", |node| word(node, &EFFECTS).map(owned))
            .filter(|effect| !effect.is_empty()),
        toleration_seconds: section.value("tolerationSeconds", |node| {
            text(node)?
                .trim()
                .parse()
                .map(Some)
                .map_err(|_| Problem::Seconds)
        }),
    };
    section.close();
    (report.faults.len() == before).then_some(toleration)
}
