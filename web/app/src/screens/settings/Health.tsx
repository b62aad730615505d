import { ProblemError } from "piton-client";
import { useState } from "preact/hooks";
import { client } from "../../data/account.ts";
import { homeConnection, list } from "../../data/home.ts";
import { groupOf } from "../../data/states.ts";
import { count } from "../../lib/format.ts";
import { Button } from "../../ui/Button.tsx";
import { Badge, Card, Loading } from "../../ui/parts.tsx";
import { Problem } from "../workspace/Problem.tsx";
import { useLoaded } from "../workspace/load.ts";
import { Doctor } from "./Doctor.tsx";
import { type Metric, parseMetrics } from "./metrics.ts";

const GLANCE_MAX = 12;

export function Health() {
  const phase = homeConnection.value.phase;
  const sessions = list.value.sessions;
  const inGroup = (name: string) => sessions.filter((session) => groupOf(session) === name).length;
  return (
    <>
      <section class="stack">
        <h2>Server</h2>
        <dl class="stat-grid">
          <Stat label="Connection" value={phase === "live" ? "live" : phase.replace("_", " ")} />
          <Stat label="Sessions" value={count(sessions.length)} />
          <Stat label="Working" value={count(inGroup("working"))} />
          <Stat label="Need you" value={count(inGroup("needs_you"))} />
        </dl>
      </section>
      <Verify />
      <Doctor />
      <Metrics />
    </>
  );
}

function Stat({ label, value }: { label: string; value: string }) {
  return (
    <div class="stat">
      <dt>{label}</dt>
      <dd>{value}</dd>
    </div>
  );
}

type Result = { logs: number; bad: { session: string; problem: string }[]; findings: string[] };

async function verifyAll(onProgress: (logs: number) => void): Promise<Result> {
  const result: Result = { logs: 0, bad: [], findings: [] };
  let after: string | undefined;
  for (;;) {
    const page = await client.call("get", "/api/v1/verify", { query: { limit: 50, ...(after ? { after } : {}) } });
    result.logs += page.logs.length;
    for (const log of page.logs) if (!log.good) result.bad.push({ session: log.session_id, problem: log.problem ?? "damaged" });
    result.findings.push(...page.findings.map((finding) => finding.problem));
    onProgress(result.logs);
    if (page.next == null) return result;
    after = page.next;
  }
}

function Verify() {
  const [progress, setProgress] = useState<number | null>(null);
  const [result, setResult] = useState<Result | null>(null);
  const [isDenied, setDenied] = useState(false);
  const run = async () => {
    setResult(null);
    setProgress(0);
    try {
      setResult(await verifyAll(setProgress));
      setDenied(false);
    } catch (error) {
      if (!(error instanceof ProblemError && error.code === "insufficient_scope")) throw error;
      setDenied(true);
    } finally {
      setProgress(null);
    }
  };
  const isGood = result !== null && result.bad.length === 0 && result.findings.length === 0;
  return (
    <Card
      name="verify"
      tone={result === null ? "normal" : isGood ? "ok" : "error"}
      title="Check every log"
      actions={<Button onClick={run}>Verify now</Button>}
    >
      <p>Reads every record and checks the chain that ties it to the one before.</p>
      <div role="status">
        {progress !== null && <p>{count(progress)} logs checked…</p>}
        {isDenied && <p>This sign-in has no scope <code>admin</code>. Sign in with <code>piton open --scope read --scope control --scope admin</code>, or run <code>piton verify</code> on the machine.</p>}
        {isGood && <p class="added">{count(result.logs)} logs are whole.</p>}
        {result && !isGood && (
          <ul>
            {result.bad.map((bad) => <li key={bad.session} class="removed wrap">{bad.session}: {bad.problem}</li>)}
            {result.findings.map((finding) => <li key={finding} class="removed wrap">{finding}</li>)}
          </ul>
        )}
      </div>
    </Card>
  );
}

function Metrics() {
  const loaded = useLoaded("metrics", async () => {
    const response = await client.callRaw("get", "/metrics");
    return parseMetrics(await response.text());
  });
  if (loaded.error) return <Problem text={loaded.error} onRetry={loaded.reload} />;
  if (!loaded.value) return <Loading what="Reading metrics" since={loaded.since} />;
  const shown = loaded.value.filter(isGlance).slice(0, GLANCE_MAX);
  return (
    <section class="stack">
      <h2 class="row">
        <span class="grow">Metrics</span>
        <Button dense look="plain" onClick={loaded.reload}>Refresh</Button>
      </h2>
      <dl class="stat-grid">
        {shown.map((metric) => <Stat key={metric.name + metric.labels} label={words(metric)} value={count(Math.round(metric.value * 100) / 100)} />)}
      </dl>
      <p class="muted small">All of them: <code>GET /metrics</code>, in the format of Prometheus. <Badge>{count(loaded.value.length)} series</Badge></p>
    </section>
  );
}

/** Histograms and per-label series are for Prometheus. */
function isGlance(metric: Metric): boolean {
  return metric.labels === "" && !/_(bucket|sum|created)$/.test(metric.name);
}

function words(metric: Metric): string {
  return metric.name.replace(/^piton_/, "").replace(/_total$/, "").replaceAll("_", " ");
}
