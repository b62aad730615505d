//! What an operator may want to know, in the format that Prometheus reads.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use piton_store::Store;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    registry: Arc<Registry>,
    pub(crate) subscribers: Gauge<i64, AtomicI64>,
    /// Records that readers were given.
    pub(crate) delivered: Counter,
    pub(crate) requests: Counter,
    pub(crate) problems: Counter,
}

/// What the store counts by itself.
#[derive(Debug)]
struct OfStore(Arc<dyn Store>);

impl Collector for OfStore {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let stats = self.0.stats();
        for (name, help, value) in [
            ("piton_append_batches", "Batches that were appended", stats.batches),
            ("piton_append_records", "Records that were appended", stats.records),
            ("piton_flushes", "Flushes of the log", stats.flushes),
        ] {
            let counter = ConstCounter::new(value);
            let metric = encoder.encode_descriptor(name, help, None, counter.metric_type())?;
            counter.encode(metric)?;
        }
        Ok(())
    }
}

impl Metrics {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        let mut registry = Registry::default();
        let (subscribers, delivered) = (Gauge::default(), Counter::default());
        let (requests, problems) = (Counter::default(), Counter::default());
        registry.register("piton_subscribers", "Readers of sessions' logs", subscribers.clone());
        let help = "Records that readers were given";
        registry.register("piton_records_delivered", help, delivered.clone());
        registry.register("piton_requests", "Requests that were answered", requests.clone());
        registry.register("piton_problems", "Requests that ended in a problem", problems.clone());
        registry.register_collector(Box::new(OfStore(store)));
        Self { registry: Arc::new(registry), subscribers, delivered, requests, problems }
    }

    pub(crate) fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}
