//! The permissions that the API server denied in its latest response.
//!
//! They are only reported: requests are still sent and retried.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::core::Status;
use parking_lot::Mutex;
use tokio::time::Instant;

/// The remedy for a missing permission, as the end of a message.
pub const REMEDY: &str = "grant the permissions in deploy/rbac.yaml (deploy/convert/rbac.yaml after a conversion) to the ServiceAccount of this Pod (docs/install.md)";

/// How long a denied watch is reported. It is retried at least every 25 s, and its success is not recorded.
const WATCH_DENIED_FOR: Duration = Duration::from_secs(45);

/// The resource's plural name, and the verb.
pub type Permission = (&'static str, &'static str);

/// Whether a request was refused for lack of a permission. Policies and quotas refuse with the same code, but all
/// authorizers use the same message: `User "..." cannot patch resource "..."`.
pub fn lacks_permission(status: &Status) -> bool {
    let message = &status.message;
    status.code == 403
        && message.contains("is forbidden: User \"")
        && message.contains("\" cannot ")
}

/// The latest response about each permission that was ever denied: if it was denied, the message and the time. The
/// message is the first one, since later ones name other objects.
#[derive(Debug, Default)]
pub struct Permissions(Mutex<BTreeMap<Permission, Option<(String, Instant)>>>);

impl Permissions {
    /// A text for each denied permission, with the API server's message.
    pub fn missing(&self) -> Vec<String> {
        let missing = self.seen().into_iter().filter_map(|((resource, verb), why)| {
            let why = why?;
            Some(format!("permission to {verb} {resource} is missing: {why}"))
        });
        missing.collect()
    }

    /// Each permission that was ever denied, with the API server's message if it is denied now.
    pub fn seen(&self) -> Vec<(Permission, Option<String>)> {
        let seen = self.0.lock();
        let seen = seen.iter().map(|(permission, denial)| {
            let is_watch = permission.1 == "watch";
            let denial =
                denial.as_ref().filter(|(_, at)| !is_watch || at.elapsed() < WATCH_DENIED_FOR);
            (*permission, denial.map(|(message, _)| message.clone()))
        });
        seen.collect()
    }

    /// Records a denied request.
    pub fn denied(&self, resource: &'static str, verb: &'static str, message: String) {
        let now = Instant::now();
        let mut seen = self.0.lock();
        let denial = seen.entry((resource, verb)).or_default();
        denial.get_or_insert((message, now)).1 = now;
    }

    /// Records that the API server accepted such a request.
    pub fn granted(&self, resource: &'static str, verb: &'static str) {
        if let Some(denial) = self.0.lock().get_mut(&(resource, verb)) {
            *denial = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_message_of_an_authorizer_denies_a_permission() {
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
            (403, r#"admission webhook "pv.example.com" denied the request: no"#, false),
            (
                403,
                r#"events "e" is forbidden: unable to create new content in namespace a because it is being terminated"#,
                false,
            ),
            (500, r#"x is forbidden: User "lvp" cannot get it"#, false),
        ] {
            let status = Status::failure(words, "Forbidden").with_code(code);
            assert_eq!(lacks_permission(&status), lacks, "{code} {words}");
        }
    }

    #[test]
    fn permission_is_missing_until_such_a_request_succeeds() {
        let permissions = Permissions::default();
        permissions.denied("nodes", "list", "no".into());
        permissions.denied("nodes", "list", "no, again".into());
        permissions.granted("nodes", "get");
        let missing = "permission to list nodes is missing: no";
        assert_eq!(permissions.missing(), [missing]);
        permissions.granted("nodes", "list");
        assert_eq!(permissions.missing(), [""; 0]);
        assert_eq!(permissions.seen(), [(("nodes", "list"), None)]);
    }
}
