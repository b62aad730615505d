import { ProblemError } from "piton-client";
import { client } from "../../data/account.ts";
import { readable } from "../../lib/text.ts";
import { Button } from "../../ui/Button.tsx";
import { Badge, Card, Loading, type Tone } from "../../ui/parts.tsx";
import { useLoaded } from "../workspace/load.ts";

type Finding = { check: string; level: string; says: string; hint?: string | null };
type Examination = { good: boolean; findings: Finding[] };

const TONES: Record<string, Tone> = { ok: "ok", warning: "waiting", problem: "error" };

/** Null: an older server, which is asked on the command line. */
async function examine(): Promise<Examination | null> {
  try {
    return (await client.call("get", "/api/v1/doctor" as never)) as Examination;
  } catch (error) {
    if (error instanceof ProblemError && error.status === 404) return null;
    throw error;
  }
}

export function Doctor() {
  const loaded = useLoaded("doctor", examine);
  const found = loaded.value;
  // What needs nothing comes last.
  const findings = [...(found?.findings ?? [])].sort((a, b) => Number(a.level === "ok") - Number(b.level === "ok"));
  return (
    <Card
      name="doctor"
      title="Check the installation"
      tone={found ? (found.good ? "ok" : "error") : "normal"}
      actions={found || loaded.error ? <Button onClick={loaded.reload}>Check again</Button> : null}
    >
      {loaded.isLoading && !found && <Loading what="Checking" since={loaded.since} />}
      {loaded.error && <p class="removed wrap">{loaded.error}</p>}
      {!found && !loaded.isLoading && !loaded.error && (
        <>
          <p>What could end agents with the server, fill the disk or lose a key is checked on the machine itself:</p>
          <pre class="command" tabIndex={0} aria-label="Command">piton doctor</pre>
        </>
      )}
      <ul class="stack-tight">
        {findings.map((finding) => (
          <li key={`${finding.check} ${finding.says}`}>
            <p class="wrap"><Badge tone={TONES[finding.level] ?? "normal"}>{finding.level}</Badge> {readable(finding.check)}: {readable(finding.says)}</p>
            {finding.hint && <p class="muted small wrap">{readable(finding.hint)}</p>}
          </li>
        ))}
      </ul>
    </Card>
  );
}
