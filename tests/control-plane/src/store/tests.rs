use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const R: &Resource = &resource::CONFIG_MAPS;
const NAMES: [&str; 3] = ["a", "b", "c"];
const NAMESPACES: [&str; 2] = ["default", "kube-system"];

/// One write of one of six objects; not every one succeeds.
fn write(store: &Store, (action, ns, name): (u8, usize, usize)) {
    let (ns, name) = (NAMESPACES[ns], NAMES[name]);
    let _ = match action {
        0 => store.create(R, ns, json!({"metadata": {"name": name}})),
        1 => store.delete(R, ns, name, &DeleteOptions::default()),
        2 => store.modify(R, ns, name, Part::Main, |old| {
            let mut new = old.clone();
            new["data"] = json!({"was": old["metadata"]["resourceVersion"]});
            Ok(new)
        }),
        // With a finalizer, and without.
        _ => store.modify(R, ns, name, Part::Main, |old| {
            let mut new = old.clone();
            let held = meta::finalizers(old).next().is_some();
            new["metadata"]["finalizers"] = if held { json!([]) } else { json!(["example.com/f"]) };
            Ok(new)
        }),
    };
}

type Objects = BTreeMap<(String, String), Arc<Value>>;

fn objects(shelf: &Shelf) -> Objects {
    let key = |o: &Stored| (o.namespace.to_string(), o.name.to_string());
    let items = shelf.items.iter();
    items.map(|o| (key(o), o.value())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// The past can be listed as it was, and a watch from any moment leads to the present.
    #[test]
    fn history_is_true(writes in prop::collection::vec((0_u8..4, 0_usize..2, 0_usize..3), 1..60)) {
        let store = Store::new(1000);
        let mut past = Vec::new();
        for step in writes {
            write(&store, step);
            past.push(store.shelf(R, None));
        }
        let now = objects(&store.shelf(R, None));
        for seen in past {
            let version = seen.resource_version;
            let mut then = objects(&store.shelf_at(R, None, version).unwrap());
            prop_assert_eq!(&then, &objects(&seen));
            let mut last = version;
            for event in store.watch(R, version).unwrap().backlog {
                prop_assert!(event.resource_version > last);
                last = event.resource_version;
                let object = event.object.value();
                let key = (meta::namespace(&object).to_owned(), meta::name(&object).to_owned());
                let before = match event.kind {
                    EventKind::Deleted => then.remove(&key),
                    _ => then.insert(key, object),
                };
                prop_assert_eq!(before, event.previous.map(|previous| previous.value()));
            }
            prop_assert_eq!(&then, &now);
        }
    }
}
