//! Objects of the API of which only some fields are read. The others are not decoded: a Pod has hundreds.

use std::marker::PhantomData;

use k8s_openapi::{Metadata, Resource};
use kube::api::ObjectMeta;
use serde::Deserialize;
use serde::de::value::{Error, StrDeserializer};
use serde::de::{DeserializeOwned, IntoDeserializer};

/// An object of kind `K`, with these parts of its spec and its status.
#[derive(Clone, Debug, Deserialize)]
#[serde(bound = "Spec: Default + Deserialize<'de>, Status: Default + Deserialize<'de>")]
pub struct Partial<K, Spec, Status> {
    #[serde(skip)]
    kind: PhantomData<K>,
    /// The metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The spec.
    #[serde(default)]
    pub spec: Spec,
    /// The status.
    #[serde(default)]
    pub status: Status,
}

impl<K: Resource, Spec, Status> Resource for Partial<K, Spec, Status> {
    const API_VERSION: &'static str = K::API_VERSION;
    const GROUP: &'static str = K::GROUP;
    const KIND: &'static str = K::KIND;
    const VERSION: &'static str = K::VERSION;
    const URL_PATH_SEGMENT: &'static str = K::URL_PATH_SEGMENT;
    type Scope = K::Scope;
}

impl<K: Resource, Spec, Status> Metadata for Partial<K, Spec, Status> {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// A word of the API; `None` if it is absent or unknown.
pub(super) fn parse<T: DeserializeOwned>(word: Option<&String>) -> Option<T> {
    let word: StrDeserializer<'_, Error> = word?.as_str().into_deserializer();
    T::deserialize(word).ok()
}

pub(super) fn annotation_is_true(metadata: &ObjectMeta, key: &str) -> bool {
    let value = metadata.annotations.as_ref().and_then(|map| map.get(key));
    value.is_some_and(|value| value.eq_ignore_ascii_case("true"))
}
