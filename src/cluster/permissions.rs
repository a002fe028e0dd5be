//! The rights that the API server denied.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use kube::core::Status;
use tokio::sync::Notify;

/// What an administrator does about a missing right, for the end of a sentence.
pub const REMEDY: &str =
    "grant the rights in deploy/rbac.yaml to the ServiceAccount of this Pod (docs/install.md)";

/// A right: the resource's plural name, and the verb.
pub type Right = (&'static str, &'static str);

/// Whether a refusal is for lack of a right. A policy's and a quota's have the same code and concern one
/// object only; but all authorizers' are worded alike: `User "..." cannot patch resource "..."`.
#[must_use]
pub fn lacks_right(status: &Status) -> bool {
    let words = &status.message;
    status.code == 403 && words.contains("is forbidden: User \"") && words.contains("\" cannot ")
}

/// The rights that were denied.
#[derive(Debug, Default)]
pub struct Permissions {
    /// Each that was ever denied, with the API server's words; `None` where it was granted since.
    seen: Mutex<BTreeMap<Right, Option<String>>>,
    /// Told when one more is missing.
    denied: Notify,
}

impl Permissions {
    /// What is missing: resource, verb, and the API server's words.
    #[must_use]
    pub fn missing(&self) -> Vec<(&'static str, &'static str, String)> {
        self.lock()
            .iter()
            .filter_map(|((resource, verb), why)| Some((*resource, *verb, why.clone()?)))
            .collect()
    }

    /// Each right that was ever denied, and whether it still is.
    #[must_use]
    pub fn seen(&self) -> Vec<(Right, bool)> {
        let seen = self.lock();
        seen.iter()
            .map(|(right, why)| (*right, why.is_some()))
            .collect()
    }

    /// Whether a right is known to be missing.
    #[must_use]
    pub fn is_missing(&self, resource: &'static str, verb: &'static str) -> bool {
        self.lock()
            .get(&(resource, verb))
            .is_some_and(Option::is_some)
    }

    /// Waits until one of these rights is missing.
    pub async fn until_missing(&self, rights: &[Right]) {
        let mut denied = std::pin::pin!(self.denied.notified());
        loop {
            // Before looking, so that no denial falls in between.
            denied.as_mut().enable();
            if rights
                .iter()
                .any(|(resource, verb)| self.is_missing(resource, verb))
            {
                return;
            }
            denied.as_mut().await;
            denied.set(self.denied.notified());
        }
    }

    /// Remembers a refusal.
    pub fn denied(&self, resource: &'static str, verb: &'static str, why: String) {
        // The first refusal's words stay: the API server names another object in each.
        self.lock()
            .entry((resource, verb))
            .or_default()
            .get_or_insert(why);
        self.denied.notify_waiters();
    }

    /// Remembers that a right is there.
    pub fn granted(&self, resource: &'static str, verb: &'static str) {
        if let Some(why) = self.lock().get_mut(&(resource, verb)) {
            *why = None;
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Right, Option<String>>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_an_authorizers_words_are_about_a_right() {
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

    #[tokio::test]
    async fn who_waits_for_a_denial_hears_of_that_one_only() {
        let permissions = Arc::new(Permissions::default());
        let waiting = tokio::spawn({
            let permissions = Arc::clone(&permissions);
            async move { permissions.until_missing(&[("nodes", "list")]).await }
        });
        permissions.denied("nodes", "watch", "no".into());
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(!waiting.is_finished());
        permissions.denied("nodes", "list", "no".into());
        waiting.await.unwrap();
        // It is missing already.
        permissions.until_missing(&[("nodes", "list")]).await;
        permissions.granted("nodes", "list");
        assert_eq!(permissions.missing(), [("nodes", "watch", "no".to_owned())]);
        assert_eq!(
            permissions.seen(),
            [(("nodes", "list"), false), (("nodes", "watch"), true)]
        );
    }
}
