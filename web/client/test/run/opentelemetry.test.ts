import { metrics } from "@opentelemetry/api";
import { AggregationTemporality, InMemoryMetricExporter, MeterProvider, PeriodicExportingMetricReader } from "@opentelemetry/sdk-metrics";
import { afterEach, expect, test, vi } from "vitest";

import { openTelemetry } from "../../examples/opentelemetry.js";
import { RunError } from "../../src/run/index.js";
import { Browser, checkpoint, say, testRun } from "./helpers.js";

afterEach(() => {
  vi.unstubAllGlobals();
});

test("the sample counts interruptions and resumes by phase, each once, also when a resume fails and the page is loaded again", async () => {
  const exporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE);
  const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 3_600_000 });
  const provider = new MeterProvider({ readers: [reader] });
  metrics.setGlobalMeterProvider(provider);
  const browser = new Browser();
  vi.stubGlobal("localStorage", browser.local);
  const storage = browser.storage();
  await storage.saveConversation("chat", [{ role: "user", content: "go" }]);
  await storage.save(checkpoint({ phase: "streaming_llm" }));
  const telemetry = openTelemetry();
  const down = testRun(browser, () => { throw new RunError("provider_error", "down"); }, { telemetry });
  await down.run.open();
  await down.run.recovery.resume();
  down.run.close();
  const { run } = testRun(browser, () => [say("done")], { telemetry });
  await run.open();
  await run.recovery.resume();
  await reader.forceFlush();
  const found = exporter.getMetrics().flatMap((all) => all.scopeMetrics).flatMap((scope) => scope.metrics);
  const points = Object.fromEntries(found.map((metric) => [metric.descriptor.name, metric.dataPoints.map((point) => [point.attributes, typeof point.value === "number" ? point.value : null])]));
  expect(points).toEqual({
    "run.interruptions": [[{ phase: "streaming_llm" }, 1]],
    "run.resumes": [
      [{ phase: "streaming_llm", success: false, outcome: "provider_error" }, 1],
      [{ phase: "streaming_llm", success: true, outcome: "completed" }, 1],
    ],
    "run.time_to_resume": [[{ phase: "streaming_llm" }, null]],
  });
  await provider.shutdown();
});
