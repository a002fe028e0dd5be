//! What the cache knows of one type of which there are many.

use std::{borrow::Borrow, collections::HashMap, fmt, hash::Hash, marker::PhantomData, sync::Arc};

use serde_json::Value;

use crate::{meta, store::Stored};

/// Objects by key; kept as the store keeps them, and handed out as `V`.
pub(crate) struct Known<K, V> {
    objects: HashMap<K, Entry>,
    view: PhantomData<V>,
}

struct Entry {
    version: u64,
    stored: Stored,
}

impl<K, V> Default for Known<K, V> {
    fn default() -> Self {
        Self {
            objects: HashMap::new(),
            view: PhantomData,
        }
    }
}

impl<K: fmt::Debug, V> fmt::Debug for Known<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.objects.keys()).finish()
    }
}

impl<K: Eq + Hash, V: From<Arc<Value>>> Known<K, V> {
    pub(crate) fn get<Q>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let entry = self.objects.get(key)?;
        Some(entry.stored.value().into())
    }

    pub(crate) fn contains_key<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.objects.contains_key(key)
    }

    /// The `resourceVersion` of the state that is known.
    pub(super) fn version<Q>(&self, key: &Q) -> Option<u64>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        self.objects.get(key).map(|entry| entry.version)
    }

    pub(crate) fn insert(&mut self, key: K, object: &Value) {
        let entry = Entry {
            version: meta::resource_version(object),
            stored: Stored::new(object),
        };
        self.objects.insert(key, entry);
    }

    pub(super) fn remove_entry<Q>(&mut self, key: &Q) -> Option<(K, V)>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let (key, entry) = self.objects.remove_entry(key)?;
        Some((key, entry.stored.value().into()))
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.objects.keys()
    }
}
