//! What stands between the store and the controllers that are to be deaf: it passes on what the
//! store tells, but for one type.

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::{resource::Resource, store::Written};

pub(super) struct Relay {
    heard: UnboundedReceiver<Written>,
    tell: UnboundedSender<Written>,
    pub(super) silent: Option<&'static Resource>,
    withheld: Vec<Written>,
}

impl Relay {
    pub(super) fn before(events: &mut UnboundedReceiver<Written>) -> Self {
        let (tell, receiver) = unbounded_channel();
        Self {
            heard: std::mem::replace(events, receiver),
            tell,
            silent: None,
            withheld: Vec::new(),
        }
    }

    pub(super) fn pass_on(&mut self) {
        let mut all = std::mem::take(&mut self.withheld);
        all.extend(std::iter::from_fn(|| self.heard.try_recv().ok()));
        for written in all {
            if self.silent == Some(written.resource) {
                self.withheld.push(written);
            } else {
                // After a restart the receiver is gone.
                let _ = self.tell.send(written);
            }
        }
    }
}
