use proptest::prelude::*;
use serde_json::json;

use super::*;

fn names() -> Pseudonyms {
    let mut names = Pseudonyms::new(["storage", "provisioner-x7k2p"].into_iter());
    for (kind, name) in [
        ("namespace", "shop"),
        ("namespace", "storage"),
        ("namespace", "kube-system"),
        ("claim", "data-web-0"),
        ("claim", "data.v2"),
        ("claim", "data"),
        ("pod", "web-0"),
        ("pod", "provisioner-x7k2p"),
        ("pod", "web-0"),
    ] {
        names.add(kind, name);
    }
    names
}

#[test]
fn whole_words_are_replaced() {
    for (text, expected) in [
        ("claim shop/data-web-0: bound", "claim namespace-1/claim-1: bound"),
        (
            "used by pods: shop/web-0, shop/web-0.",
            "used by pods: namespace-1/pod-1, namespace-1/pod-1.",
        ),
        // The longest name, and not a part of another word.
        ("data.v2 data.v3 data-web-0-old mydata", "claim-2 claim-3.v3 data-web-0-old mydata"),
        ("web-0.17a3 .data. data", "pod-1.17a3 .claim-3. claim-3"),
        ("/pods/shop_web-0_uid/data", "/pods/namespace-1_pod-1_uid/claim-3"),
        (r"a\nshop\\shop\tdata", r"a\nnamespace-1\\namespace-1\tclaim-3"),
        (r#"{"claim":"shop/data"}"#, r#"{"claim":"namespace-1/claim-3"}"#),
        // Names that stay, and letters of other alphabets.
        ("storage/provisioner-x7k2p kube-system", "storage/provisioner-x7k2p kube-system"),
        ("größe shop…", "größe namespace-1…"),
        ("", ""),
    ] {
        assert_eq!(names().replace(text), expected, "{text}");
    }
}

#[test]
fn strings_of_a_document_are_replaced_and_its_keys_are_not() {
    let mut value = json!({ "data": { "shop": ["web-0", 1, null, { "claim": "shop/data" }] } });
    names().replace_in(&mut value);
    let claim = json!({ "claim": "namespace-1/claim-3" });
    let expected = json!({ "data": { "shop": ["pod-1", 1, null, claim] } });
    assert_eq!(value, expected);
}

#[test]
fn names_of_deleted_objects_are_learnt_from_texts() {
    for (text, expected) in [
        ("its claim shop-b/cache still exists", &["shop-b", "cache"][..]),
        ("Volume is used by pods: shop-b/db-0, shop-c/db-1", &["shop-b", "db-0", "shop-c", "db-1"]),
        ("PV a (data of claim shop-b/cache)", &["shop-b", "cache"]),
        ("step completed claim=\"shop-b/cache\" node=n", &["shop-b", "cache"]),
        (r#"{"claim":"shop-b/cache","pod":"db-0"}"#, &["shop-b", "cache", "db-0"]),
        (r#"{"message":"Pod \"db-0\" of Claim shop-b/cache."}"#, &["db-0", "shop-b", "cache"]),
        (
            r#"persistentvolumeclaims "cache" is forbidden in the namespace "shop-b""#,
            &["cache", "shop-b"],
        ),
        // No name is learnt from these.
        ("claims=2 pods=0 claim=None claim: null", &[]),
        ("the pod waits for its claim; a namespace of Jobs", &[]),
        ("/var/lib/kubelet/pods/1234/volumes and pods/proxy", &[]),
        ("pod storage/provisioner-x7k2p: no answer, claim, pods, ", &[]),
    ] {
        let mut names = names();
        let before: HashSet<_> = names.of.keys().cloned().collect();
        names.learn(text);
        let learnt = names.of.keys().filter(|it| !before.contains(*it));
        let learnt: HashSet<_> = learnt.map(String::as_str).collect();
        assert_eq!(learnt, expected.iter().copied().collect(), "{text}");
    }
}

proptest! {
    #[test]
    fn every_name_is_replaced_and_the_rest_is_unchanged(
        words in prop::collection::btree_set("[a-z][a-z0-9]{0,3}([-.][a-z0-9]{1,3}){0,2}", 1..8),
        separators in prop::collection::vec("[ /:=\",_(]|ß|: ", 8),
    ) {
        let mut names = Pseudonyms::new(std::iter::empty());
        for name in words.iter().step_by(2) {
            names.add("claim", name);
        }
        let text = words.iter().zip(&separators);
        let text: String = text.map(|(word, end)| word.clone() + end).collect();
        let replaced = names.replace(&text);
        let parts = replaced.split(|it| !is_part(it)).filter(|it| !it.is_empty());
        let parts: Vec<_> = parts.collect();
        prop_assert_eq!(parts.len(), words.len(), "{}", replaced);
        let mut pseudonyms = HashSet::new();
        for (word, part) in words.iter().zip(parts) {
            if let Some(pseudonym) = names.of.get(word) {
                prop_assert_eq!(part, pseudonym);
                prop_assert!(pseudonyms.insert(part));
            } else if !word.contains('.') {
                // At a dot, a name may be a part of the word.
                prop_assert_eq!(part, word);
            }
        }
        let between = |text: &str| -> Vec<String> {
            let between = text.split(is_part).filter(|it| !it.is_empty());
            between.map(String::from).collect()
        };
        prop_assert_eq!(between(&text), between(&replaced));
    }
}
