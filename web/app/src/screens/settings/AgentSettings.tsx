import { useEffect } from "preact/hooks";
import { agents, loadAgents } from "../../data/agents.ts";
import { openNewSession } from "../../data/dialogs.ts";
import { Button } from "../../ui/Button.tsx";
import { Command } from "../../ui/Command.tsx";
import { Badge, Disclosure } from "../../ui/parts.tsx";
import { report } from "../../ui/toasts.ts";

const STRATEGIES = { native: "loads its own conversation", command_line: "continues by command line", history: "is given the history", none: "starts without context" } as const;

export function AgentSettings() {
  useEffect(() => {
    loadAgents().catch(report);
  }, []);
  return (
    <section class="stack">
      <h2>Agents</h2>
      <p class="muted">Agents are installed, checked and logged in on the machine that Piton runs on, in a terminal. A session whose agent asks for a login offers it in its chat.</p>
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
            {agent.is_installed ? <Commands id={agent.agent_profile_id} name={agent.name} /> : <Missing install={agent.install ?? null} name={agent.name} />}
          </li>
        ))}
      </ul>
    </section>
  );
}

function Missing({ install, name }: { install: string | null; name: string }) {
  if (!install) return <p class="small">Its program was not found. Check its command in the configuration.</p>;
  return (
    <>
      <p class="small">Install it, then it appears here:</p>
      <Command text={install} label={`Install ${name}`} />
    </>
  );
}

function Commands({ id, name }: { id: string; name: string }) {
  return (
    <Disclosure summary={<span class="muted">Check it, log in</span>}>
      <div class="stack-tight">
        <Command text={`piton agents doctor ${id}`} label={`Check ${name}`} />
        <Command text={`piton agents login ${id}`} label={`Log in to ${name}`} />
        <Command text={`piton agents probe ${id}`} label={`Show what ${name} offers`} />
      </div>
    </Disclosure>
  );
}
