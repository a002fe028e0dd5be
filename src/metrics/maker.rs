//! Makes handles of families, registers them, and remembers what was registered.
#![allow(
    clippy::missing_errors_doc,
    reason = "all fail as the first one, which says how"
)]

use prometheus::core::Collector;
use prometheus::{
    CounterVec, Gauge, GaugeVec, HistogramOpts, HistogramVec, IntCounter, IntGauge, IntGaugeVec,
    Opts, Registry, Result,
};

use super::family::{Family, Kind};

/// A registry in the making.
///
/// Registration fails only for a name that is taken or malformed, or for a handle of another type
/// than its family's, which a test would show: so every metric is unconditional.
#[derive(Debug, Default)]
pub struct Maker {
    registry: Registry,
    families: Vec<&'static Family>,
}

impl Maker {
    /// What was registered: for scrapes, and for people.
    #[must_use]
    pub fn finish(self) -> (Registry, Vec<&'static Family>) {
        (self.registry, self.families)
    }

    /// Registers a collector of one family or of several.
    ///
    /// # Errors
    /// When a name is taken.
    pub fn register(
        &mut self,
        families: &[&'static Family],
        collector: impl Collector + 'static,
    ) -> Result<()> {
        self.registry.register(Box::new(collector))?;
        self.families.extend(families);
        Ok(())
    }

    fn add<C: Collector + Clone + 'static>(
        &mut self,
        family: &'static Family,
        kind: Kind,
        collector: Result<C>,
    ) -> Result<C> {
        if family.kind != kind {
            let message = format!("{} is a {}", family.name, family.kind.as_str());
            return Err(prometheus::Error::Msg(message));
        }
        let collector = collector?;
        self.register(&[family], collector.clone())?;
        Ok(collector)
    }

    /// A counter with labels.
    pub fn counters(&mut self, family: &'static Family) -> Result<CounterVec> {
        let made = CounterVec::new(opts(family), &family.label_names());
        self.add(family, Kind::Counter, made)
    }

    /// A counter of fractions, or of more than fits into an integer.
    pub fn counter(&mut self, family: &'static Family) -> Result<prometheus::Counter> {
        let made = prometheus::Counter::with_opts(opts(family));
        self.add(family, Kind::Counter, made)
    }

    /// A counter.
    pub fn int_counter(&mut self, family: &'static Family) -> Result<IntCounter> {
        self.add(family, Kind::Counter, IntCounter::with_opts(opts(family)))
    }

    /// A gauge with labels.
    pub fn gauges(&mut self, family: &'static Family) -> Result<GaugeVec> {
        let made = GaugeVec::new(opts(family), &family.label_names());
        self.add(family, Kind::Gauge, made)
    }

    /// A gauge of whole numbers with labels.
    pub fn int_gauges(&mut self, family: &'static Family) -> Result<IntGaugeVec> {
        let made = IntGaugeVec::new(opts(family), &family.label_names());
        self.add(family, Kind::Gauge, made)
    }

    /// A gauge.
    pub fn gauge(&mut self, family: &'static Family) -> Result<Gauge> {
        self.add(family, Kind::Gauge, Gauge::with_opts(opts(family)))
    }

    /// A gauge of whole numbers.
    pub fn int_gauge(&mut self, family: &'static Family) -> Result<IntGauge> {
        self.add(family, Kind::Gauge, IntGauge::with_opts(opts(family)))
    }

    /// A histogram with labels.
    pub fn histograms(
        &mut self,
        family: &'static Family,
        buckets: Vec<f64>,
    ) -> Result<HistogramVec> {
        let opts = HistogramOpts::new(family.name, family.help).buckets(buckets);
        let made = HistogramVec::new(opts, &family.label_names());
        self.add(family, Kind::Histogram, made)
    }
}

fn opts(family: &Family) -> Opts {
    Opts::new(family.name, family.help)
}
