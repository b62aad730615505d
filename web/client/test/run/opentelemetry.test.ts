import { metrics } from "@opentelemetry/api";
import { AggregationTemporality, InMemoryMetricExporter, MeterProvider, PeriodicExportingMetricReader } from "@opentelemetry/sdk-metrics";
import { expect, test } from "vitest";

import { openTelemetry } from "../../examples/opentelemetry.js";
import { Browser, checkpoint, say, testRun } from "./helpers.js";

test("the sample counts interruptions and resumes by phase", async () => {
  const exporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE);
  const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 3_600_000 });
  const provider = new MeterProvider({ readers: [reader] });
  metrics.setGlobalMeterProvider(provider);
  const browser = new Browser();
  const storage = browser.storage();
  await storage.saveConversation("chat", [{ role: "user", content: "go" }]);
  await storage.save(checkpoint({ phase: "streaming_llm" }));
  const { run } = testRun(browser, () => [say("done")], { telemetry: openTelemetry() });
  await run.open();
  await run.recovery.resume();
  await reader.forceFlush();
  const found = exporter.getMetrics().flatMap((all) => all.scopeMetrics).flatMap((scope) => scope.metrics);
  const points = Object.fromEntries(found.map((metric) => [metric.descriptor.name, metric.dataPoints.map((point) => point.attributes)]));
  expect(points).toEqual({
    "run.interruptions": [{ phase: "streaming_llm" }],
    "run.resumes": [{ phase: "streaming_llm", success: true, outcome: "completed" }],
    "run.time_to_resume": [{ phase: "streaming_llm" }],
  });
  await provider.shutdown();
});
