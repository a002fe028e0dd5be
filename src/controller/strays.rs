//! PVs in our directories that have no hostname label, so that no watch tells of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cache::Learnt;
use crate::config::Class;
use crate::types::HostPath;
use crate::view::{NodeView, PvView};

use super::{Controller, Memory};

/// How often they are looked at, if there are any. They cannot be watched for without watching
/// everybody's.
const STRAY_PERIOD: Duration = Duration::from_mins(1);

impl Memory {
    /// Whether those in all of these classes' directories are known.
    pub(super) fn knows_strays(&self, classes: &BTreeMap<String, Arc<Class>>) -> bool {
        let mut dirs = classes.values().map(|class| &class.host_dir);
        dirs.all(|dir| self.strays_in.contains(dir))
    }
}

impl Controller {
    /// Finds them: once for each directory, by the one list of all such PVs; afterwards those that
    /// were found are looked at now and then.
    pub(super) async fn find_strays(&self, memory: &mut Memory, node: Option<&NodeView>) {
        let (Some(pvs), Some(node)) = (&memory.pvs, node) else {
            return;
        };
        let learnt = pvs.learnt();
        if !memory.knows_strays(&self.settings.config.classes) {
            self.list_strays(memory, &learnt, node).await;
        } else if memory.strays_at.elapsed() >= STRAY_PERIOD {
            memory.strays_at = Instant::now();
            let cluster = self.cluster.clone();
            // Beside the loop, which must not wait for a slow API server.
            tokio::spawn(async move {
                for (uid, name) in learnt.stray_names() {
                    learnt.look_again(&cluster, &uid, &name).await;
                }
            });
        }
    }

    async fn list_strays(&self, memory: &mut Memory, learnt: &Learnt, node: &NodeView) {
        let classes = self.settings.config.classes.values();
        let dirs: Vec<_> = classes.map(|class| &class.host_dir).collect();
        let inside = |path: &HostPath| dirs.iter().any(|dir| path.is_within(dir));
        let ours = |pv: &PvView| pv.stands_on(node) && pv.path().is_some_and(inside);
        match self.cluster.unlabelled_pvs(ours).await {
            Ok(strays) => {
                if !strays.is_empty() {
                    let names: Vec<_> = strays.iter().map(|pv| pv.name.as_str()).collect();
                    tracing::info!(
                        pvs = names.join(", "),
                        "found PVs without a hostname label in our directories"
                    );
                }
                learnt.strays(strays);
                memory.strays_in = dirs.into_iter().cloned().collect();
                memory.strays_at = Instant::now();
            }
            Err(error) => {
                if memory.said.insert(format!("strays {error}")) {
                    tracing::warn!(%error, "the PVs without a hostname label could not be listed; nothing is made or cleaned until they are");
                }
            }
        }
    }
}
