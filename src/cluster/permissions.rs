//! The permissions that the API server denied in its latest answer about them.
//!
//! Nothing is inferred from them: each request is made and retried all the same.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kube::core::Status;

/// What an administrator does about a missing permission, for the end of a sentence.
pub const REMEDY: &str =
    "grant the rights in deploy/rbac.yaml to the ServiceAccount of this Pod (docs/install.md)";

/// How long a denied watch is reported. It is retried at least every 25 s, and one that succeeds is
/// silent.
const WATCH_DENIED_FOR: Duration = Duration::from_secs(45);

/// The resource's plural name, and the verb.
pub type Right = (&'static str, &'static str);

/// Whether a refusal is for lack of a permission. A policy's and a quota's have the same code and concern
/// one object only; but all authorizers' are worded alike: `User "..." cannot patch resource "..."`.
#[must_use]
pub fn lacks_right(status: &Status) -> bool {
    let words = &status.message;
    status.code == 403 && words.contains("is forbidden: User \"") && words.contains("\" cannot ")
}

/// The latest answers about permissions that were ever denied.
#[derive(Debug, Default)]
pub struct Permissions(Mutex<BTreeMap<Right, Option<Denial>>>);

#[derive(Debug)]
struct Denial {
    /// The first answer: the API server names another object in each.
    message: String,
    at: Instant,
}

impl Denial {
    fn is_current(&self, verb: &str) -> bool {
        verb != "watch" || self.at.elapsed() < WATCH_DENIED_FOR
    }
}

impl Permissions {
    /// What is denied now: resource, verb, and the API server's words.
    #[must_use]
    pub fn missing(&self) -> Vec<(&'static str, &'static str, String)> {
        let seen = self.lock();
        let current = seen.iter().filter_map(|((resource, verb), denial)| {
            let denial = denial.as_ref().filter(|it| it.is_current(verb))?;
            Some((*resource, *verb, denial.message.clone()))
        });
        current.collect()
    }

    /// Each permission that was ever denied, and whether it still is.
    #[must_use]
    pub fn seen(&self) -> Vec<(Right, bool)> {
        let seen = self.lock();
        let is_denied = |(right, denial): (&Right, &Option<Denial>)| {
            let is_denied = denial.as_ref().is_some_and(|it| it.is_current(right.1));
            (*right, is_denied)
        };
        seen.iter().map(is_denied).collect()
    }

    /// The API server denied it.
    pub fn denied(&self, resource: &'static str, verb: &'static str, message: String) {
        let at = Instant::now();
        let mut seen = self.lock();
        let denial = seen.entry((resource, verb)).or_default();
        denial.get_or_insert(Denial { message, at }).at = at;
    }

    /// The API server accepted such a request.
    pub fn granted(&self, resource: &'static str, verb: &'static str) {
        if let Some(denial) = self.lock().get_mut(&(resource, verb)) {
            *denial = None;
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Right, Option<Denial>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_authorizers_words_are_about_a_permission() {
        for (code, words, lacks) in [
            (
                403,
                r#"persistentvolumes "pv-1" is forbidden: User "system:serviceaccount:kube-system:lvp" cannot patch resource "persistentvolumes" in API group "" at the cluster scope"#,
                true,
            ),
            (
                403,
                r#"persistentvolumes "pv-1" is forbidden: ValidatingAdmissionPolicy 'pvs' with binding 'pvs' denied request: User "lvp" may not"#,
                false,
            ),
            (
                403,
                r#"admission webhook "pv.example.com" denied the request: no"#,
                false,
            ),
            (
                403,
                r#"events "e" is forbidden: unable to create new content in namespace a because it is being terminated"#,
                false,
            ),
            (500, r#"x is forbidden: User "lvp" cannot get it"#, false),
        ] {
            let status = Status::failure(words, "Forbidden").with_code(code);
            assert_eq!(lacks_right(&status), lacks, "{code} {words}");
        }
    }

    #[test]
    fn permission_is_missing_until_such_a_request_succeeds() {
        let permissions = Permissions::default();
        permissions.denied("nodes", "list", "no".into());
        permissions.denied("nodes", "list", "no, again".into());
        permissions.granted("nodes", "get");
        let missing = ("nodes", "list", "no".to_owned());
        assert_eq!(permissions.missing(), [missing]);
        permissions.granted("nodes", "list");
        assert_eq!(permissions.missing(), []);
        assert_eq!(permissions.seen(), [(("nodes", "list"), false)]);
    }
}
