// A task and its sessions, one for each agent, with the first prompt.
import type { NewSession } from "piton-client";
import { client } from "../../data/account.ts";
import { outbox } from "../../data/outbox.ts";
import { go, sessionPath } from "../../lib/router.ts";
import { save } from "../../lib/storage.ts";
import { firstLine } from "../../lib/text.ts";

export const LAST_AGENT_KEY = "piton.agent";
const TITLE_CHARS_MAX = 80;

export type Place = { folder: string; isWorktree: boolean; base: string };
type Wanted = { prompt: string; agents: readonly string[]; place: Place; task: string | null };

export async function createSessions({ prompt, agents, place, task }: Wanted): Promise<void> {
  const title = firstLine(prompt, TITLE_CHARS_MAX) || null;
  const needsTask = agents.length > 1 && !task;
  const task_id = needsTask ? (await client.call("post", "/api/v1/tasks", { body: { title: title ?? "Task" } })).task_id : task;
  const folder = place.folder.trim();
  const where: Partial<NewSession> = place.isWorktree ? { repo: folder, ...(place.base.trim() ? { base: place.base.trim() } : {}) } : { working_dir: folder };
  const created: string[] = [];
  for (const agent_profile_id of agents) {
    const body: NewSession = { agent_profile_id, title, ...(task_id ? { task_id } : {}), ...where };
    const { session_id } = await client.call("post", "/api/v1/sessions", { body });
    created.push(session_id);
    // A prompt that fails is shown in its session, where it can be sent again.
    if (prompt.trim()) void outbox.send(session_id, prompt.trimEnd()).catch(() => {});
  }
  const [first] = created;
  if (agents[0]) save(LAST_AGENT_KEY, agents[0]);
  if (created.length > 1 && task_id) go(`#/task/${encodeURIComponent(task_id)}`);
  else if (first) go(sessionPath(first));
}
