//! What is recorded of an answer.

use serde_json::{Value, json};

use crate::{api::Answer, step::Request};

/// What a step asks to be recorded of its answer: its code, its reason, and what it shows.
pub fn of(request: &Request, answer: &Answer) -> Value {
    let mut shown = json!({"code": answer.code});
    if !answer.is_ok() {
        shown["reason"] = answer.reason().into();
    }
    for what in &request.shows {
        shown[what] = if let Some(header) = what.strip_prefix("header:") {
            let values = answer.headers.get_all(header).iter();
            values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect()
        } else if let Some(pointer) = what.strip_prefix("length:") {
            length(&at(&answer.body, pointer))
        } else {
            at(&answer.body, what)
        };
    }
    shown
}

fn at(body: &Value, pointer: &str) -> Value {
    let parts: Vec<&str> = pointer.split('/').skip(1).collect();
    pick(body, &parts)
}

/// For a value that differs each time, its length can be recorded: of a text in characters.
fn length(value: &Value) -> Value {
    match value {
        Value::String(text) => text.chars().count().into(),
        Value::Array(items) => items.len().into(),
        _ => Value::Null,
    }
}

/// A JSON pointer in which `*` is every element.
fn pick(value: &Value, pointer: &[&str]) -> Value {
    match pointer {
        [] => value.clone(),
        ["*", rest @ ..] => match value.as_array() {
            Some(items) => items.iter().map(|item| pick(item, rest)).collect(),
            None => Value::Null,
        },
        [part, rest @ ..] => {
            let next = value.pointer(&format!("/{part}"));
            next.map_or(Value::Null, |next| pick(next, rest))
        }
    }
}
