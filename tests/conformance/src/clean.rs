//! Making and removing, whatever scenarios say.

use anyhow::bail;
use serde_json::{Value, json};

use crate::{
    names::Names,
    run::{Runner, name},
    scenario::Scenario,
};

impl Runner {
    /// Makes an object that the scenarios do not know of.
    pub(crate) async fn make(&self, collection: &str, object: &Value) -> anyhow::Result<()> {
        let made = self.api.json("POST", collection, object).await?;
        if !made.is_ok() {
            bail!("cannot make {} in {collection}: {}", name(object), made.message());
        }
        Ok(())
    }

    /// Removes an object, whatever holds it.
    pub(crate) async fn remove(&self, path: &str) -> anyhow::Result<()> {
        let at_once = json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"});
        let answer = self.api.json("DELETE", path, &at_once).await?;
        if answer.body["metadata"]["finalizers"].is_array() {
            let free = json!({"metadata": {"finalizers": null}});
            self.api.json("PATCH", path, &free).await?;
        }
        Ok(())
    }

    /// Removes everything of a scope.
    pub(crate) async fn clean(
        &self,
        scope: &str,
        scenario: Option<&Scenario>,
    ) -> anyhow::Result<()> {
        let own = format!("/api/v1/namespaces/{scope}");
        let mut doomed = Vec::new();
        for kind in ["pods", "persistentvolumeclaims"] {
            let collection = format!("{own}/{kind}");
            for object in self.api.list(&collection).await? {
                doomed.push(format!("{collection}/{}", name(&object)));
            }
        }
        // Objects that the whole cluster has and that a step makes, of any other kind.
        let names = Names::new(scope.to_owned());
        let made = scenario.into_iter().flat_map(Scenario::makes);
        let made = made.filter(|target| !target.resource.namespaced);
        doomed.extend(made.map(|target| names.fill(&target.path())));
        let prefixes = [format!("{scope}-"), format!("recycler-for-{scope}-")];
        for collection in [
            "/api/v1/namespaces/default/pods",
            "/api/v1/persistentvolumes",
            "/api/v1/nodes",
            "/apis/storage.k8s.io/v1/storageclasses",
            "/api/v1/namespaces",
        ] {
            for object in self.api.list(collection).await? {
                let path = format!("{collection}/{}", name(&object));
                let is_of = |prefix: &String| name(&object).starts_with(prefix);
                if (name(&object) == scope || prefixes.iter().any(is_of)) && !doomed.contains(&path)
                {
                    doomed.push(path);
                }
            }
        }
        for path in doomed {
            self.remove(&path).await?;
        }
        Ok(())
    }
}
