import { useEffect } from "preact/hooks";
import { agents, loadAgents } from "../../data/agents.ts";
import { openNewSession } from "../../data/dialogs.ts";
import { Button } from "../../ui/Button.tsx";
import { Badge } from "../../ui/parts.tsx";
import { report } from "../../ui/toasts.ts";

const STRATEGIES = { native: "loads its own conversation", command_line: "continues by command line", history: "is given the history", none: "starts without context" } as const;

export function AgentSettings() {
  useEffect(() => {
    loadAgents().catch(report);
  }, []);
  return (
    <section class="stack">
      <h2>Agents</h2>
      <p class="muted">
        Check a login with <code>piton agents doctor AGENT</code>; what an agent offers with <code>piton agents probe AGENT</code>.
      </p>
      <ul class="stack">
        {agents.value.map((agent) => (
          <li key={agent.agent_profile_id} class="card">
            <div class="row-wrap">
              <strong>{agent.name}</strong>
              <Badge tone={agent.is_installed ? "ok" : "normal"}>{agent.is_installed ? "installed" : "not installed"}</Badge>
              {agent.origin === "configured" && <Badge>configured</Badge>}
              <span class="grow" />
              {agent.is_installed && <Button dense onClick={() => openNewSession({ agent: agent.agent_profile_id })}>New session</Button>}
            </div>
            <p class="muted small">After a restart it {STRATEGIES[agent.resume_strategy]}.</p>
            {!agent.is_installed && agent.install && <pre class="command" tabIndex={0} aria-label={`Install ${agent.name}`}>{agent.install}</pre>}
          </li>
        ))}
      </ul>
    </section>
  );
}
