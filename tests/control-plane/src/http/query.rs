//! Query parameters.

use std::collections::HashMap;

use crate::status::Status;

#[derive(Debug)]
pub(super) struct Query(HashMap<String, String>);

impl Query {
    pub(super) fn parse(query: &str) -> Self {
        let pairs = form_urlencoded::parse(query.as_bytes());
        Self(pairs.into_owned().collect())
    }

    /// The value of a parameter; "" if it is missing.
    pub(super) fn get(&self, key: &str) -> &str {
        self.0.get(key).map_or("", String::as_str)
    }

    pub(super) fn flag(&self, key: &str) -> bool {
        let value = self.0.get(key).map(String::as_str);
        matches!(value, Some("" | "1" | "true"))
    }

    /// A number; `None` if it is missing.
    pub(super) fn number<T: std::str::FromStr>(&self, key: &str) -> Result<Option<T>, Status> {
        let text = self.get(key);
        if text.is_empty() {
            return Ok(None);
        }
        text.parse().map(Some).map_err(|_| {
            Status::bad_request(format!("query parameter {key} is no valid number: {text:?}"))
        })
    }
}
