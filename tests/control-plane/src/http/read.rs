//! `get` and `list`.

use axum::{http::header::ACCEPT, response::Response};
use serde_json::json;

use super::{Call, Server, answer, target::Target};
use crate::{
    faults::Faults,
    resource,
    selectors::Selectors,
    status::Status,
    store::{Shelf, Store, Stored},
    view::{self, Format, View},
};

/// How this client wants to see objects of the target's type.
pub(super) fn view(target: &Target, call: &Call) -> View {
    let format = Format::negotiate(call.header(ACCEPT), call.query.get("includeObject"));
    View { resource: target.resource, format }
}

pub(super) fn selectors(target: &Target, call: &Call) -> Result<Selectors, Status> {
    let r = view::stored(target.resource);
    let mut fields = call.query.get("fieldSelector").to_owned();
    if target.resource == &resource::EVENTS_V1 {
        fields = fields.replace("regarding.", "involvedObject.");
    }
    Selectors::parse(r, call.query.get("labelSelector"), &fields)
}

pub(super) fn get(server: &Server, target: &Target, call: &Call) -> Result<Response, Status> {
    let r = view::stored(target.resource);
    let object = server.store.get(r, &target.namespace, &target.name)?;
    answer::json(200, &view(target, call).object(&object))
}

pub(super) fn list(
    server: &Server,
    faults: &Faults,
    target: &Target,
    call: &Call,
) -> Result<Response, Status> {
    let selectors = selectors(target, call)?;
    let limit: Option<usize> = call.query.number("limit")?.filter(|limit| *limit > 0);
    let token = Token::parse(call.query.get("continue"))?;
    let mut listing = read(&server.store, faults, target, call, token.as_ref())?;
    if let Some(token) = &token {
        let last = (token.namespace.as_str(), token.name.as_str());
        listing.items.retain(|o| key(o) > last);
    }
    if !selectors.is_empty() {
        listing.items.retain(|o| selectors.matches(&o.value()));
    }

    let mut metadata = json!({"resourceVersion": listing.resource_version.to_string()});
    if let Some(limit) = limit.filter(|limit| *limit < listing.items.len()) {
        let remaining = listing.items.len() - limit;
        listing.items.truncate(limit);
        if let Some(last) = listing.items.last() {
            metadata["continue"] = json!(Token::after(last, listing.resource_version).to_string());
        }
        // With a selector the real server cannot tell either.
        if selectors.is_empty() {
            metadata["remainingItemCount"] = json!(remaining);
        }
    }
    let bytes = view(target, call)
        .list(listing.items.iter().map(|o| o.value()), &metadata)
        .map_err(Status::internal)?;
    Ok(answer::bytes_of_json(200, bytes))
}

/// Every page of a listing shows the version of the first; otherwise the query decides.
fn read(
    store: &Store,
    faults: &Faults,
    target: &Target,
    call: &Call,
    token: Option<&Token>,
) -> Result<Shelf, Status> {
    let r = view::stored(target.resource);
    let ns = target.list_namespace();
    let version = call.query.get("resourceVersion");
    if let Some(token) = token {
        if !matches!(version, "" | "0") {
            return Err(Status::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        return store.shelf_at(r, ns, token.version).map_err(|_| {
            Status::gone(
                "The provided continue parameter is too old to display a consistent list result. \
                 You can start a new list without the continue parameter.",
            )
        });
    }
    // The caches answer this, and may lag.
    if version == "0"
        && let Some(held) = faults.stream_of(r.plural).held_after
        && let Ok(past) = store.shelf_at(r, ns, held)
    {
        return Ok(past);
    }
    let exact = call.query.get("resourceVersionMatch") == "Exact";
    let version: u64 = call.query.number("resourceVersion")?.unwrap_or(0);
    let now = store.revision();
    if version > now {
        return Err(Status::too_large_version(version, now));
    }
    if exact { store.shelf_at(r, ns, version) } else { Ok(store.shelf(r, ns)) }
}

fn key(object: &Stored) -> (&str, &str) {
    (&object.namespace, &object.name)
}

/// Where the next page begins.
struct Token {
    version: u64,
    namespace: String,
    name: String,
}

impl Token {
    fn after(last: &Stored, version: u64) -> Self {
        let (namespace, name) = key(last);
        Self { version, namespace: namespace.to_owned(), name: name.to_owned() }
    }

    fn parse(text: &str) -> Result<Option<Self>, Status> {
        if text.is_empty() {
            return Ok(None);
        }
        let parse = || {
            let (version, key) = text.split_once(':')?;
            let (namespace, name) = key.split_once('/')?;
            let version = version.parse().ok()?;
            Some(Self { version, namespace: namespace.to_owned(), name: name.to_owned() })
        };
        parse()
            .map(Some)
            .ok_or_else(|| Status::bad_request(format!("continue key is not valid: {text:?}")))
    }
}

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}/{}", self.version, self.namespace, self.name)
    }
}
