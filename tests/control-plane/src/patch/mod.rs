//! The patch formats of the API, each as a function from an object to its new state.

mod lists;
mod strategic;

use json_patch::{AddOperation, PatchOperation};
use serde_json::Value;

use crate::{resource::Resource, status::Status};

/// A patch that does not depend on who sends it.
#[derive(Debug)]
pub(crate) enum Patch {
    /// RFC 6902.
    Json(Vec<PatchOperation>),
    /// RFC 7386.
    Merge(Value),
    /// Kubernetes' own: lists with a key are merged item by item.
    Strategic(Value),
}

impl Patch {
    /// A JSON patch. A list of something else is no patch that could be applied.
    pub(crate) fn json(body: Value) -> Result<Self, Status> {
        if !body.as_array().is_some_and(|operations| operations.iter().all(Value::is_object)) {
            return Err(Status::bad_request("a JSON patch must be a list of operations"));
        }
        let operations = serde_json::from_value(body);
        operations.map(Self::Json).map_err(|error| {
            Status::unprocessable(format!("the JSON patch cannot be applied: {error}"))
        })
    }

    pub(crate) fn apply(&self, r: &'static Resource, object: &Value) -> Result<Value, Status> {
        let mut new = object.clone();
        match self {
            Self::Json(operations) => {
                for operation in operations {
                    json_operation(&mut new, operation)?;
                }
            }
            Self::Merge(patch) => json_patch::merge(&mut new, patch),
            Self::Strategic(patch) => strategic::merge(r, &mut new, patch),
        }
        Ok(new)
    }
}

/// One operation. The API server's library lets `replace` create a key that is missing, and takes it for `null` in a
/// `test`.
fn json_operation(object: &mut Value, operation: &PatchOperation) -> Result<(), Status> {
    let done = match operation {
        PatchOperation::Replace(replace) if creates_key(object, replace.path.as_str()) => {
            let add = AddOperation { path: replace.path.clone(), value: replace.value.clone() };
            json_patch::patch(object, &[PatchOperation::Add(add)])
        }
        PatchOperation::Test(test)
            if test.value.is_null() && creates_key(object, test.path.as_str()) =>
        {
            Ok(())
        }
        _ => json_patch::patch(object, std::slice::from_ref(operation)),
    };
    done.map_err(|error| {
        tracing::debug!(%error, "JSON patch refused");
        Status::unprocessable("the server rejected our request due to an error in our request")
    })
}

fn creates_key(object: &Value, path: &str) -> bool {
    let Some((parent, _)) = path.rsplit_once('/') else {
        return false;
    };
    object.pointer(path).is_none() && object.pointer(parent).is_some_and(Value::is_object)
}
