//! Query parameters.

use crate::status::Status;

#[derive(Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    pub(super) fn parse(query: &str) -> Self {
        let pairs = query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| {
                let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                (
                    decode(&key.replace('+', " ")),
                    decode(&value.replace('+', " ")),
                )
            });
        Self(pairs.collect())
    }

    /// The first value of a parameter; "" if it is missing.
    pub(super) fn get(&self, key: &str) -> &str {
        self.0
            .iter()
            .find(|(k, _)| k == key)
            .map_or("", |(_, value)| value)
    }

    pub(super) fn flag(&self, key: &str) -> bool {
        self.0
            .iter()
            .any(|(k, v)| k == key && matches!(v.as_str(), "" | "1" | "true"))
    }

    /// A number; `None` if it is missing.
    pub(super) fn number<T: std::str::FromStr>(&self, key: &str) -> Result<Option<T>, Status> {
        let text = self.get(key);
        if text.is_empty() {
            return Ok(None);
        }
        text.parse().map(Some).map_err(|_| {
            Status::bad_request(format!(
                "query parameter {key} is no valid number: {text:?}"
            ))
        })
    }

    /// Whether the write is only to be checked.
    pub(super) fn dry_run(&self) -> Result<bool, Status> {
        match self.get("dryRun") {
            "" => Ok(false),
            "All" => Ok(true),
            other => Err(Status::unprocessable(format!(
                "dryRun: Unsupported value: {other:?}: supported values: \"All\""
            ))),
        }
    }
}

/// Undoes percent-encoding; what is no valid escape stays as it is.
pub(super) fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let escape = (byte == b'%').then(|| tail.get(..2)).flatten();
        let hex = escape.and_then(|h| std::str::from_utf8(h).ok());
        if let Some(decoded) = hex.and_then(|h| u8::from_str_radix(h, 16).ok()) {
            bytes.push(decoded);
            rest = &tail[2..];
        } else {
            bytes.push(byte);
            rest = tail;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters() {
        let query = Query::parse("labelSelector=a%3Db%2Cc+in+%28d%29&watch&limit=5&bad=%zz");
        assert_eq!(query.get("labelSelector"), "a=b,c in (d)");
        assert!(query.flag("watch") && !query.flag("other") && !query.flag("limit"));
        assert_eq!(query.number::<u64>("limit"), Ok(Some(5)));
        assert_eq!(query.number::<u64>("none"), Ok(None));
        assert_eq!(query.number::<u64>("bad").unwrap_err().code, 400);
        assert_eq!(query.get("bad"), "%zz");
    }
}
