import type { Agent } from "piton-client";
import { agents } from "../../data/agents.ts";
import { Disclosure } from "../../ui/parts.tsx";

/** One agent, or several that work on the same task side by side. */
export function AgentPicker({ chosen, onChange }: { chosen: readonly string[]; onChange: (chosen: readonly string[]) => void }) {
  const installed = agents.value.filter((agent) => agent.is_installed);
  const missing = agents.value.filter((agent) => !agent.is_installed);
  const toggle = (id: string) => onChange(chosen.includes(id) ? chosen.filter((other) => other !== id) : [...chosen, id]);
  return (
    <fieldset class="field">
      <legend>Agent</legend>
      <p class="hint">Choose several to let them work on the same task, each in a branch of its own.</p>
      <div class="agent-grid">
        {installed.map((agent) => (
          <label key={agent.agent_profile_id} class="agent-choice">
            <input type="checkbox" checked={chosen.includes(agent.agent_profile_id)} onChange={() => toggle(agent.agent_profile_id)} />
            <span class="truncate">{agent.name}</span>
          </label>
        ))}
      </div>
      {missing.length > 0 && (
        <Disclosure summary={<span class="muted">{missing.length} more agents are not installed</span>}>
          <ul class="missing-agents">{missing.map((agent) => <MissingAgent key={agent.agent_profile_id} agent={agent} />)}</ul>
        </Disclosure>
      )}
    </fieldset>
  );
}

export function MissingAgent({ agent }: { agent: Agent }) {
  return (
    <li>
      <span>{agent.name}</span>
      {agent.install && <code class="wrap">{agent.install}</code>}
    </li>
  );
}
