//! Why a pod could not be placed, in the words of kube-scheduler. Its plug-ins for preemption and
//! for resource claims add theirs to every refusal; here nobody has either, so theirs are always
//! the same.

use std::collections::BTreeMap;

/// The refusals of the nodes, counted.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    reasons: BTreeMap<&'static str, usize>,
    nodes: usize,
    /// Nodes that would do if another pod left.
    preemptable: usize,
}

impl Refusals {
    pub(super) fn add(&mut self, reasons: &[&'static str]) {
        self.nodes += 1;
        for reason in reasons {
            *self.reasons.entry(reason).or_default() += 1;
        }
    }

    /// The refusal of a node that would do if another pod left.
    pub(super) fn add_preemptable(&mut self, reason: &'static str) {
        self.preemptable += 1;
        self.add(&[reason]);
    }

    pub(super) fn message(self) -> String {
        let nodes = self.nodes;
        if nodes == 0 {
            return "no nodes available to schedule pods".to_owned();
        }
        let helpless = [
            (
                self.preemptable,
                "No preemption victims found for incoming pod",
            ),
            (
                nodes - self.preemptable,
                "Preemption is not helpful for scheduling",
            ),
        ];
        format!(
            "0/{nodes} nodes are available: {}. no new claims to deallocate, preemption: 0/{nodes} \
             nodes are available: {}.",
            list(self.reasons),
            list(
                helpless
                    .into_iter()
                    .filter(|(count, _)| *count > 0)
                    .map(|(count, why)| (why, count))
            ),
        )
    }
}

/// What keeps a pod from every node alike.
pub(super) fn everywhere(nodes: usize, why: &str) -> String {
    if nodes == 0 {
        return Refusals::default().message();
    }
    // The end is what the real one's preemption says when no node was looked at.
    format!("0/{nodes} nodes are available: {why}. not found")
}

/// Sorted as text, with the counts.
fn list(reasons: impl IntoIterator<Item = (&'static str, usize)>) -> String {
    let reasons = reasons.into_iter();
    let mut texts: Vec<_> = reasons
        .map(|(why, count)| format!("{count} {why}"))
        .collect();
    texts.sort_unstable();
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_counted_and_sorted() {
        assert_eq!(
            Refusals::default().message(),
            "no nodes available to schedule pods"
        );
        assert_eq!(everywhere(0, "w"), "no nodes available to schedule pods");
        assert_eq!(everywhere(2, "w"), "0/2 nodes are available: w. not found");
        let mut refusals = Refusals::default();
        refusals.add(&["b", "a"]);
        refusals.add(&["b"]);
        refusals.add_preemptable("c");
        assert_eq!(
            refusals.message(),
            "0/3 nodes are available: 1 a, 1 c, 2 b. no new claims to deallocate, preemption: 0/3 \
             nodes are available: 1 No preemption victims found for incoming pod, 2 Preemption is \
             not helpful for scheduling."
        );
    }
}
