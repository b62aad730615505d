// The agents that the server knows, and how they are called on the screen.
import { signal } from "@preact/signals";
import type { Agent } from "piton-client";
import { client } from "./account.ts";

export const agents = signal<readonly Agent[]>([]);

export async function loadAgents(): Promise<void> {
  const list = await client.call("get", "/api/v1/agents");
  // What can be used at once comes first.
  agents.value = [...list.agents].sort((a, b) => Number(b.is_installed) - Number(a.is_installed) || a.name.localeCompare(b.name));
}

export function agentName(id: string | null | undefined): string {
  if (!id) return "Agent";
  const name = agents.value.find((agent) => agent.agent_profile_id === id)?.name ?? id;
  // "Echo (built in, without a model)": what is in parentheses is for lists of agents.
  return name.replace(/\s*\(.*\)$/, "");
}
