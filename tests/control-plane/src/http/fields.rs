//! `fieldValidation`: what is said of fields that there are not, and of those that stand there twice.

use std::{collections::HashSet, fmt};

use hyper::{Method, Response};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::{Call, answer, body::Body};
use crate::{meta, resource::Resource, status::Status, typed};

/// What the client wants to happen.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Mode {
    Ignore,
    Warn,
    Strict,
}

/// The checks of one request, and what they found.
#[derive(Debug)]
pub(super) struct Fields {
    mode: Mode,
    /// In words.
    found: Vec<String>,
    /// Paths.
    unknown: Vec<String>,
}

impl Fields {
    pub(super) fn of(call: &Call) -> Result<Self, Status> {
        let mode = match call.query.get("fieldValidation") {
            "Ignore" => Mode::Ignore,
            "" | "Warn" => Mode::Warn,
            "Strict" => Mode::Strict,
            other => {
                let options = match call.method {
                    Method::POST => "CreateOptions",
                    Method::PUT => "UpdateOptions",
                    _ => "PatchOptions",
                };
                let why = format!(
                    "fieldValidation: Unsupported value: {other:?}: supported values: \"\", \"Ignore\", \
                     \"Strict\", \"Warn\""
                );
                return Err(Status::invalid_options(options, why));
            }
        };
        let (found, unknown) = Default::default();
        Ok(Self {
            mode,
            found,
            unknown,
        })
    }

    /// Looks for fields of the body that stand there twice. The last one has counted.
    pub(super) fn look_for_duplicates(&mut self, body: &[u8]) {
        if self.mode == Mode::Ignore {
            return;
        }
        let mut json = serde_json::Deserializer::from_slice(body);
        let path = String::new();
        let twice = &mut self.found;
        // What is no JSON has been refused already.
        let _ = Twice { path, twice }.deserialize(&mut json);
    }

    /// The object without the fields that there are not.
    ///
    /// # Errors
    /// What a decoder says: a field of another type, or, if the client is strict, all that was found.
    pub(super) fn known(
        &mut self,
        r: &'static Resource,
        mut object: Value,
    ) -> Result<Value, String> {
        self.unknown = typed::prune(r, &mut object)?;
        let unknown = self.unknown.iter();
        self.found
            .extend(unknown.map(|path| format!("unknown field {path:?}")));
        if self.mode == Mode::Strict && !self.found.is_empty() {
            return Err(format!("strict decoding error: {}", self.found.join(", ")));
        }
        Ok(object)
    }

    /// [`Fields::known`] of what a client sent as a whole.
    pub(super) fn known_of_body(
        &mut self,
        r: &'static Resource,
        object: Value,
    ) -> Result<Value, Status> {
        self.known(r, object).map_err(|why| {
            let Resource { kind, version, .. } = r;
            Status::bad_request(format!(
                "{kind} in version {version:?} cannot be handled as a {kind}: {why}"
            ))
        })
    }

    /// [`Fields::known`] of what somebody applies: nobody can own a field that there is not.
    pub(super) fn known_of_apply(
        &mut self,
        r: &'static Resource,
        object: Value,
    ) -> Result<Value, Status> {
        let (ns, name) = (
            meta::namespace(&object).to_owned(),
            meta::name(&object).to_owned(),
        );
        let object = self.known_of_body(r, object)?;
        match self.unknown.first() {
            None => Ok(object),
            Some(path) => Err(Status::unexpected(format!(
                "failed to create typed patch object ({ns}/{name}; {}/{}, Kind={}): .{path}: field not \
                 declared in schema",
                r.group, r.version, r.kind
            ))),
        }
    }

    /// [`Fields::known`] of what a patch has made.
    pub(super) fn known_of_patched(
        &mut self,
        r: &'static Resource,
        object: Value,
    ) -> Result<Value, Status> {
        let text = Value::from(object.to_string());
        self.known(r, object)
            .map_err(|why| Status::unpatchable(&text, &why))
    }

    /// Tells the client of what was found.
    pub(super) fn warn(&self, response: &mut Response<Body>) {
        if self.mode == Mode::Warn {
            for warning in &self.found {
                answer::warn(response, warning);
            }
        }
    }
}

/// Goes through JSON and notes the keys that stand in an object twice.
struct Twice<'a> {
    path: String,
    twice: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Twice<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Twice<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            let path = match self.path.as_str() {
                "" => key.clone(),
                path => format!("{path}.{key}"),
            };
            if !seen.insert(key) {
                self.twice.push(format!("duplicate field {path:?}"));
            }
            let twice = &mut *self.twice;
            map.next_value_seed(Twice { path, twice })?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        for i in 0.. {
            let path = format!("{}[{i}]", self.path);
            let twice = &mut *self.twice;
            if list.next_element_seed(Twice { path, twice })?.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
}
