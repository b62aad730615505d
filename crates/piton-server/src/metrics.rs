//! What an operator may want to know, in the format that Prometheus reads.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex, PoisonError};

use piton_core::Reason;
use piton_core::id::ExecutionId;
use piton_runtime::{Counts, Handle, RunActivity};
use piton_store::Latency;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::{Registry, Unit};

#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    registry: Arc<Registry>,
    subscribers: Gauge<i64, AtomicI64>,
    /// Records that readers were given.
    delivered: Counter,
    pub(crate) requests: Counter,
    pub(crate) problems: Counter,
    open: Arc<Mutex<Open>>,
}

/// A reader, counted while it reads.
#[derive(Debug)]
pub(crate) struct Subscriber(Metrics);

impl Subscriber {
    pub(crate) fn delivered(&self, records: u64) {
        self.0.delivered.inc_by(records);
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.0.subscribers.dec();
    }
}

/// What is open, when it was last looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Open {
    pub(crate) runs: u64,
    pub(crate) waits: u64,
    /// By the executor's status.
    pub(crate) executions: BTreeMap<&'static str, u64>,
    /// Agents that run.
    pub(crate) agents: u64,
    /// Of executions' processes.
    pub(crate) memory_bytes: BTreeMap<ExecutionId, u64>,
}

/// What the store and the service count by themselves.
#[derive(Debug)]
struct Counted {
    handle: Handle,
    open: Arc<Mutex<Open>>,
}

impl Collector for Counted {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let stats = self.handle.view().store().stats();
        counter(&mut encoder, "piton_append_batches", "Batches that were appended", stats.batches)?;
        counter(&mut encoder, "piton_append_records", "Records that were appended", stats.records)?;
        counter(&mut encoder, "piton_flushes", "Flushes of the log", stats.flushes)?;
        let help = "The time that a flush of the log took";
        histogram(&mut encoder, "piton_flush_duration", help, &stats.latency)?;
        let Counts { interruptions, resumes, reattached, time_to_resume, resumed_ended } =
            self.handle.counts();
        let help = "Runs that were interrupted, by phase and reason";
        by_phase(&mut encoder, "piton_interruptions", help, &interruptions)?;
        let help = "Interrupted runs that were continued, by phase and reason";
        by_phase(&mut encoder, "piton_resumes", help, &resumes)?;
        let help = "Runs whose agent was found alive after a restart of the server";
        counter(&mut encoder, "piton_reattached", help, reattached)?;
        let help =
            "From an interruption until the run was continued, by phase, if this server saw both";
        histograms_by_phase(&mut encoder, "piton_time_to_resume", help, &time_to_resume)?;
        resumed(&mut encoder, &resumed_ended)?;
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner).clone();
        gauge(&mut encoder, "piton_open_runs", "Open runs", ratio(open.runs, 1))?;
        gauge(&mut encoder, "piton_open_waits", "Open waits", ratio(open.waits, 1))?;
        gauge(&mut encoder, "piton_live_agents", "Running agents", ratio(open.agents, 1))?;
        let help = "Memory of agents and their agentctl processes";
        let bytes = open.memory_bytes.values().sum();
        gauge(&mut encoder, "piton_agents_memory_bytes", help, ratio(bytes, 1))?;
        let help = "Executions that may be alive, by the executor's status";
        by_status(&mut encoder, "piton_executions", help, &open.executions)
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

fn counter(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> fmt::Result {
    let counter = ConstCounter::new(value);
    counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: f64) -> fmt::Result {
    let gauge = ConstGauge::new(value);
    gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
}

/// In seconds, as Prometheus wants times.
fn histogram(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    latency: &Latency,
) -> fmt::Result {
    let unit = Unit::Seconds;
    let mut metric = encoder.encode_descriptor(name, help, Some(&unit), MetricType::Histogram)?;
    let (sum, buckets) = in_buckets(latency);
    metric.encode_histogram::<NoLabelSet>(sum, latency.count, &buckets, None)
}

fn histograms_by_phase(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    latencies: &BTreeMap<RunActivity, Latency>,
) -> fmt::Result {
    let unit = Unit::Seconds;
    let mut metric = encoder.encode_descriptor(name, help, Some(&unit), MetricType::Histogram)?;
    for (doing, latency) in latencies {
        let labels = [("phase", doing.as_str())];
        let (sum, buckets) = in_buckets(latency);
        let mut metric = metric.encode_family(&labels)?;
        metric.encode_histogram::<NoLabelSet>(sum, latency.count, &buckets, None)?;
    }
    Ok(())
}

/// The sum in seconds, and how many are within each limit.
fn in_buckets(latency: &Latency) -> (f64, Vec<(f64, u64)>) {
    let limits = Latency::LIMITS_US.iter().map(|limit| ratio(*limit, 1_000_000));
    let mut buckets: Vec<(f64, u64)> = limits.zip(latency.within).collect();
    let counted: u64 = latency.within.iter().sum();
    buckets.push((f64::INFINITY, latency.count - counted));
    (ratio(latency.sum_us, 1_000_000), buckets)
}

/// How runs ended that had been interrupted and continued.
fn resumed(
    encoder: &mut DescriptorEncoder<'_>,
    ended: &BTreeMap<(&'static str, RunActivity), u64>,
) -> fmt::Result {
    let help =
        "How continued runs ended, by outcome and by the phase in which they were interrupted";
    let kind = MetricType::Counter;
    let mut metric = encoder.encode_descriptor("piton_resumed_ended", help, None, kind)?;
    let mut by_phase = BTreeMap::<RunActivity, (u64, u64)>::new();
    for ((outcome, doing), count) in ended {
        let labels = [("outcome", *outcome), ("phase", doing.as_str())];
        ConstCounter::new(*count).encode(metric.encode_family(&labels)?)?;
        let (completed, all) = by_phase.entry(*doing).or_default();
        *all += count;
        *completed += if *outcome == "completed" { *count } else { 0 };
    }
    let help = "The part of continued runs that was completed, by phase";
    let kind = MetricType::Gauge;
    let mut metric = encoder.encode_descriptor("piton_resume_success_ratio", help, None, kind)?;
    for (doing, (completed, all)) in by_phase {
        let labels = [("phase", doing.as_str())];
        ConstGauge::new(ratio(completed, all)).encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}

fn by_phase(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    counts: &BTreeMap<(RunActivity, Reason), u64>,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for ((doing, reason), count) in counts {
        let labels = [("phase", doing.as_str()), ("reason", reason.as_str())];
        ConstCounter::new(*count).encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}

fn by_status(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    counts: &BTreeMap<&'static str, u64>,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (status, count) in counts {
        let labels = [("status", *status)];
        ConstGauge::new(ratio(*count, 1)).encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}

impl Metrics {
    pub(crate) fn subscribe(&self) -> Subscriber {
        self.subscribers.inc();
        Subscriber(self.clone())
    }

    pub(crate) fn new(handle: Handle) -> Self {
        let mut registry = Registry::default();
        let (subscribers, delivered) = (Gauge::default(), Counter::default());
        let (requests, problems) = (Counter::default(), Counter::default());
        registry.register("piton_subscribers", "Readers of sessions' logs", subscribers.clone());
        let help = "Records that were delivered to readers";
        registry.register("piton_records_delivered", help, delivered.clone());
        registry.register("piton_requests", "Requests that were answered", requests.clone());
        registry.register(
            "piton_problems",
            "Requests that were answered with an error",
            problems.clone(),
        );
        let open = Arc::default();
        registry.register_collector(Box::new(Counted { handle, open: Arc::clone(&open) }));
        Self { registry: Arc::new(registry), subscribers, delivered, requests, problems, open }
    }

    pub(crate) fn text(&self, open: Open) -> Result<String, fmt::Error> {
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = open;
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}
