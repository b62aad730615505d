import { client } from "../../data/account.ts";
import { bytes } from "../../lib/format.ts";
import { sessionPath } from "../../lib/router.ts";
import { readable } from "../../lib/text.ts";
import { Button } from "../../ui/Button.tsx";
import { Ago, Badge, Loading, type Tone } from "../../ui/parts.tsx";
import { Problem } from "../workspace/Problem.tsx";
import { useLoaded } from "../workspace/load.ts";

const TONES: Record<string, Tone> = { ready: "ok", starting: "accent", error: "error", stopped: "normal" };

export function ExecutorSettings() {
  const loaded = useLoaded("executors", () => client.call("get", "/api/v1/executors"));
  if (loaded.error) return <Problem text={loaded.error} onRetry={loaded.reload} />;
  if (!loaded.value) return <Loading what="Asking for executors" since={loaded.since} />;
  return (
    <section class="stack">
      <h2 class="row">
        <span class="grow">Executors</span>
        <Button dense look="plain" onClick={loaded.reload}>Refresh</Button>
      </h2>
      {loaded.value.executions.length === 0 && <p class="muted">No executor runs.</p>}
      <ul class="stack">
        {loaded.value.executions.map((execution) => (
          <li key={execution.agent_execution_id} class="card">
            <div class="row-wrap">
              <Badge tone={TONES[execution.status] ?? "normal"}>{execution.status}</Badge>
              <strong>{execution.runtime}</strong>
              <a class="mono small truncate" href={sessionPath(execution.session_id)}>{execution.session_id}</a>
            </div>
            <p class="muted small wrap">
              {[execution.agent_status ? `agent ${execution.agent_status}` : null, execution.pid ? `process ${execution.pid}` : null, execution.memory_bytes ? bytes(execution.memory_bytes) : null].filter(Boolean).join(" · ")}
              {execution.last_seen_at && <> · heard of <Ago at={execution.last_seen_at} /> ago</>}
            </p>
            {execution.error_message && <p class="removed small wrap">{readable(execution.error_message)}</p>}
          </li>
        ))}
      </ul>
    </section>
  );
}
