//! Objects of the API server, whose annotations anyone with the rights may have written.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use local_volume_provisioner::names::LABEL_HOSTNAME;
use local_volume_provisioner::view::{Job, JobView, NodeView};
use serde_json::from_slice;

pub fn job(bytes: &[u8]) {
    let Ok(job) = from_slice::<Job>(bytes) else { return };
    let view = JobView::from_api(&job);
    assert_eq!(view.name, job.metadata.name.unwrap_or_default());
}

pub fn node(bytes: &[u8]) {
    let Ok(metadata) = from_slice::<ObjectMeta>(bytes) else { return };
    match NodeView::from_metadata(&metadata) {
        Ok(node) => {
            assert_eq!(node.labels.get(LABEL_HOSTNAME), Some(&node.hostname));
            assert!(!node.hostname.is_empty());
            let _ = node.salt();
        }
        Err(why) => assert!(why.contains(LABEL_HOSTNAME)),
    }
}
