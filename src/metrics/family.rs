//! What a family of series is: enough for the registry, and for the page that people read.

/// A family of series.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// The whole name, so that who searches for it finds it.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// Its labels.
    pub labels: &'static [Label],
    /// Whose it is.
    pub origin: Origin,
    /// What it counts or says: one sentence, which the scrape has too.
    pub help: &'static str,
    /// What to do when it moves.
    pub advice: &'static str,
}

/// A label, and the values that it takes.
#[derive(Clone, Copy, Debug)]
pub struct Label {
    /// Its name.
    pub name: &'static str,
    /// Which values occur, for people: in Markdown.
    pub values: &'static str,
}

/// The types of the exposition that we use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "they are Prometheus' own words")]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// Where a family comes from, and so whether it may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The Go provisioner has it: name, type and labels stay for ever.
    Compat,
    /// Ours.
    Ours,
}

impl Kind {
    /// The word in the exposition.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

impl Family {
    /// The names of the labels.
    #[must_use]
    pub fn label_names(&self) -> Vec<&'static str> {
        self.labels.iter().map(|label| label.name).collect()
    }

    /// The unit, which is the last word of the name by convention; none for what is only counted.
    #[must_use]
    pub fn unit(&self) -> Option<&'static str> {
        let stem = self.name.strip_suffix("_total").unwrap_or(self.name);
        if stem.ends_with("_timestamp_seconds") || stem == "process_start_time_seconds" {
            return Some("seconds since 1970");
        }
        if stem.ends_with("_ratio") {
            return Some("from 0 to 1");
        }
        ["bytes", "seconds"]
            .into_iter()
            .find(|unit| stem.ends_with(&format!("_{unit}")))
    }
}
