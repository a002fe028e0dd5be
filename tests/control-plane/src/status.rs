//! The API's error: a `metav1.Status` with the code, reason and message that a real API server
//! would send, so that clients take the same branch.

use std::fmt;

use serde_json::{Value, json};

use crate::resource::Resource;

/// A refused request.
#[derive(Debug, Clone, PartialEq)]
pub struct Status {
    /// HTTP status code.
    pub code: u16,
    /// Machine-readable reason, for example `NotFound`.
    pub reason: &'static str,
    /// What went wrong, for a person.
    pub message: String,
    /// `details` of the body: name, group, kind, uid, causes.
    pub details: Option<Box<Value>>,
    /// Seconds after which the client may try again (`Retry-After`).
    pub retry_after: Option<u32>,
}

/// One field that validation refused; the kinds are those of apimachinery's `field.Error`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    reason: &'static str,
    field: String,
    message: String,
}

impl Cause {
    /// A value that has to be there is not.
    pub fn required(field: impl Into<String>, detail: &str) -> Self {
        let tail = if detail.is_empty() { String::new() } else { format!(": {detail}") };
        Self::new("FieldValueRequired", field, format!("Required value{tail}"))
    }

    /// A value that does not parse, or is out of range, or may not change.
    pub fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self::new("FieldValueInvalid", field, format!("Invalid value: {value}: {detail}"))
    }

    /// A value that may not be there at all.
    pub fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self::new("FieldValueForbidden", field, format!("Forbidden: {detail}"))
    }

    /// A value outside an enumeration.
    pub fn not_supported(field: impl Into<String>, value: &Value, allowed: &[&str]) -> Self {
        let allowed: Vec<_> = allowed.iter().map(|a| format!("{a:?}")).collect();
        let message =
            format!("Unsupported value: {value}: supported values: {}", allowed.join(", "));
        Self::new("FieldValueNotSupported", field, message)
    }

    /// A value that may not change.
    pub fn immutable(field: impl Into<String>, value: &Value) -> Self {
        Self::invalid(field, value, "field is immutable")
    }

    /// A value that is too large to keep.
    pub fn too_long(field: impl Into<String>, detail: &str) -> Self {
        Self::new("FieldValueTooLong", field, format!("Too long: {detail}"))
    }

    fn new(reason: &'static str, field: impl Into<String>, message: String) -> Self {
        Self { reason, field: field.into(), message }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

impl Status {
    /// A status of any code; the named constructors are preferred.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None, retry_after: None }
    }

    fn about(mut self, r: &Resource, name: &str) -> Self {
        self.details = Some(Box::new(details(r, r.plural, name)));
        self
    }

    /// 404 for an object.
    pub fn not_found(r: &Resource, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} \"{name}\" not found", r.qualified())).about(r, name)
    }

    /// 404 for a path that no resource answers to.
    pub fn no_such_path() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource")
    }

    /// 409 on create.
    pub fn already_exists(r: &Resource, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", r.qualified());
        Self::new(409, "AlreadyExists", message).about(r, name)
    }

    /// 409 on create while an earlier object of that name has not gone yet.
    pub fn still_being_deleted(r: &Resource, name: &str) -> Self {
        let mut status = Self::already_exists(r, name);
        status.message = format!("object is being deleted: {}", status.message);
        status
    }

    /// 409 for a stale resourceVersion or a failed precondition.
    pub fn conflict(r: &Resource, name: &str, why: &str) -> Self {
        let message =
            format!("Operation cannot be fulfilled on {} \"{name}\": {why}", r.qualified());
        Self::new(409, "Conflict", message).about(r, name)
    }

    /// 409 for a delete that means another object, or another version of it. The store says this, and
    /// knows kinds only.
    pub fn not_the_one(r: &Resource, name: &str, why: &str) -> Self {
        let kind = qualified_kind(r);
        let message = format!("Operation cannot be fulfilled on {kind} \"{name}\": {why}");
        let mut status = Self::new(409, "Conflict", message);
        status.details = Some(Box::new(details(r, r.kind, name)));
        status
    }

    /// 422 with every faulty field at once.
    pub fn invalid(r: &Resource, name: &str, causes: &[Cause]) -> Self {
        let listed = match causes {
            [one] => one.to_string(),
            many => {
                let all: Vec<_> = many.iter().map(ToString::to_string).collect();
                format!("[{}]", all.join(", "))
            }
        };
        let qualified = qualified_kind(r);
        let mut status =
            Self::new(422, "Invalid", format!("{qualified} \"{name}\" is invalid: {listed}"));
        let causes: Vec<_> = causes
            .iter()
            .map(|c| json!({"reason": c.reason, "message": c.message, "field": c.field}))
            .collect();
        let mut details = details(r, r.kind, name);
        details["causes"] = causes.into();
        status.details = Some(Box::new(details));
        status
    }

    /// 403.
    pub fn forbidden(r: &Resource, name: &str, why: &str) -> Self {
        let message = format!("{} \"{name}\" is forbidden: {why}", r.qualified());
        Self::new(403, "Forbidden", message).about(r, name)
    }

    /// 410: the version asked for is no longer kept.
    pub fn gone(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// 400.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 400: to do it would be worse.
    pub(crate) fn no_dry_runs() -> Self {
        Self::bad_request("there are no dry runs here")
    }

    /// 500.
    #[expect(clippy::needless_pass_by_value, reason = "what `map_err` hands over")]
    pub(crate) fn internal(error: impl ToString) -> Self {
        Self::new(500, "InternalError", error.to_string())
    }

    /// 405.
    pub fn method_not_allowed() -> Self {
        Self::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
    }

    /// 422 for options that contradict each other, or that there are not.
    pub fn invalid_options(kind: &str, why: impl fmt::Display) -> Self {
        Self::unprocessable(format!("{kind}.meta.k8s.io \"\" is invalid: {why}"))
    }

    /// 500 for a fault of the client that the real server takes for its own.
    pub fn unexpected(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    /// 504: a version of the future was asked for.
    pub fn too_large_version(wanted: u64, now: u64) -> Self {
        let why = "Too large resource version";
        let message = format!("{why}: {wanted}, current: {now}");
        let mut status = Self::new(504, "Timeout", message).with_retry_after(1);
        let cause = json!({"reason": "ResourceVersionTooLarge", "message": why});
        status.details = Some(Box::new(json!({"causes": [cause]})));
        status
    }

    /// 415.
    pub fn unsupported_media_type(got: &str) -> Self {
        let message = format!("the body of the request was in an unknown format: {got:?}");
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// 415 for a patch of a type that there is not.
    pub fn unsupported_patch() -> Self {
        Self::new(415, "UnsupportedMediaType", "415: Unsupported Media Type")
    }

    /// 422 for a patch that cannot be applied (a failed `test`, a path that is not there).
    pub fn unprocessable(message: impl Into<String>) -> Self {
        Self::new(422, "Invalid", message)
    }

    /// Sets `Retry-After`, in seconds.
    pub fn with_retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// Whether the object (or path) does not exist.
    pub fn is_not_found(&self) -> bool {
        self.code == 404
    }

    /// Whether an object of that name is already there.
    pub fn is_already_exists(&self) -> bool {
        self.code == 409 && self.reason == "AlreadyExists"
    }

    /// The body as a real API server sends it.
    pub fn to_json(&self) -> Value {
        let mut body = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "code": self.code,
        });
        if !self.reason.is_empty() {
            body["reason"] = self.reason.into();
        }
        if let Some(details) = &self.details {
            body["details"] = (**details).clone();
        }
        if let Some(seconds) = self.retry_after {
            body["details"]["retryAfterSeconds"] = json!(seconds);
        }
        body
    }
}

/// `Kind` or `Kind.group`, as validation names a type.
fn qualified_kind(r: &Resource) -> String {
    if r.group.is_empty() { r.kind.to_owned() } else { format!("{}.{}", r.kind, r.group) }
}

/// What the `details` of a body begin with; what is empty is left out.
fn details(r: &Resource, kind: &str, name: &str) -> Value {
    let all = [("name", name), ("group", r.group), ("kind", kind)];
    let given = all.into_iter().filter(|(_, value)| !value.is_empty());
    given.map(|(key, value)| (key.to_owned(), Value::from(value))).collect()
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} {})", self.message, self.code, self.reason)
    }
}

impl std::error::Error for Status {}
