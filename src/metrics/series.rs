//! Gauges of current state.

use std::collections::{BTreeMap, HashMap};
use std::ops::AddAssign;

use prometheus::core::{Atomic, Collector, GenericGaugeVec};

/// The complete series of one family: label values in the order of the family's labels, and the value of each.
#[derive(Debug)]
pub struct Series<T>(BTreeMap<Vec<String>, T>);

impl<T> Default for Series<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Default + AddAssign> Series<T> {
    /// Sets the value of a series.
    pub fn set<const N: usize>(&mut self, labels: [&str; N], value: T) {
        self.0.insert(labels.map(str::to_owned).into(), value);
    }

    /// Adds to the value of a series, which starts at zero.
    pub fn add<const N: usize>(&mut self, labels: [&str; N], value: T) {
        let labels = labels.map(str::to_owned).into();
        *self.0.entry(labels).or_default() += value;
    }

    /// Makes these the only series of a family. A concurrent scrape sees every series that stays, since the
    /// family is never emptied.
    pub fn show<P: Atomic<T = T>>(self, family: &GenericGaugeVec<P>) {
        let descriptions = family.desc();
        let names = descriptions
            .first()
            .map_or(&[][..], |it| &it.variable_labels[..]);
        for shown in family.collect() {
            for series in shown.get_metric() {
                let labels: HashMap<&str, &str> = series
                    .get_label()
                    .iter()
                    .map(|label| (label.name(), label.value()))
                    .collect();
                let value = |name: &String| labels.get(name.as_str()).copied().map(str::to_owned);
                let values: Option<Vec<_>> = names.iter().map(value).collect();
                if !values.is_some_and(|values| self.0.contains_key(&values)) {
                    // A concurrent scrape may have removed it already.
                    let _ = family.remove(&labels);
                }
            }
        }
        for (labels, value) in self.0 {
            family.with_label_values(&labels).set(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use prometheus::proto::MetricFamily;
    use prometheus::{IntGaugeVec, Opts};

    use super::*;

    fn family() -> IntGaugeVec {
        IntGaugeVec::new(Opts::new("skipped", "Skipped."), &["class", "aim"]).unwrap()
    }

    fn shown(family: &IntGaugeVec) -> Vec<(Vec<String>, f64)> {
        let all = family.collect();
        let series = all.iter().flat_map(MetricFamily::get_metric);
        let mut shown: Vec<(Vec<_>, _)> = series
            .map(|series| {
                let labels = series.get_label().iter();
                let labels = labels.map(|it| format!("{}={}", it.name(), it.value()));
                (labels.collect(), series.get_gauge().get_value())
            })
            .collect();
        shown.sort_by(|a, b| a.0.cmp(&b.0));
        shown
    }

    #[test]
    fn show_removes_old_series_and_resets_the_others() {
        let family = family();
        let show = |series: &[[&str; 2]]| {
            let mut now = Series::default();
            for labels in series {
                now.add(*labels, 1);
            }
            now.show(&family);
            shown(&family)
        };
        let labels = |class, aim| vec![format!("aim={aim}"), format!("class={class}")];
        let (a, b) = (labels("fast", "x"), labels("x", "fast"));
        assert_eq!(
            show(&[["fast", "x"], ["x", "fast"], ["fast", "x"]]),
            [(b.clone(), 1.0), (a.clone(), 2.0)]
        );
        assert_eq!(show(&[["fast", "x"]]), [(a, 1.0)]);
        assert_eq!(show(&[["x", "fast"]]), [(b, 1.0)]);
        assert_eq!(show(&[]), []);
    }

    #[test]
    fn concurrent_scrape_sees_series_that_stay() {
        let family = family();
        let over = AtomicBool::new(false);
        let show = |also: &str| {
            let mut now = Series::default();
            for labels in [["stays", "x"], ["stays", "x"], [also, "x"]] {
                now.add(labels, 1);
            }
            now.show(&family);
        };
        show("y");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    show("y");
                    show("z");
                }
            });
            let stays = vec!["aim=x".to_owned(), "class=stays".to_owned()];
            let always = (0..20_000).all(|_| shown(&family).contains(&(stays.clone(), 2.0)));
            over.store(true, Ordering::Relaxed);
            assert!(always);
        });
    }
}
