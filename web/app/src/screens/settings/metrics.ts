// The few numbers of the server's metrics that are worth a glance.
export type Metric = { name: string; labels: string; value: number };

/** The text format of Prometheus, as far as it is needed: names, labels, values. */
export function parseMetrics(text: string): Metric[] {
  const metrics: Metric[] = [];
  for (const line of text.split("\n")) {
    const found = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? ([^ ]+)/.exec(line);
    if (!found || line.startsWith("#")) continue;
    const value = Number(found[3]);
    if (Number.isFinite(value)) metrics.push({ name: found[1] ?? "", labels: found[2] ?? "", value });
  }
  return metrics;
}

/** Sums over all labels; null: there is no such metric. */
export function total(metrics: readonly Metric[], name: string): number | null {
  const own = metrics.filter((metric) => metric.name === name);
  return own.length === 0 ? null : own.reduce((sum, metric) => sum + metric.value, 0);
}
