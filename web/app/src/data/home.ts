// Everything on the home screen, live: sessions, tasks, and the open questions of those that wait.
import { computed, effect, signal } from "@preact/signals";
import { ListStore, type SessionSummary, type Wait } from "piton-client";
import { SETTLE_MS } from "../lib/settled.ts";
import { client, token } from "./account.ts";
import { toSignal } from "./observe.ts";
import { socket } from "./socket.ts";
import { type Group, groupOf, titleOf } from "./states.ts";

const WAITS_DELAY_MS = 150;

export const listStore = new ListStore(client, { socket });
export const list = toSignal(listStore.list);
export const homeConnection = toSignal(listStore.connection);
export const waits = signal<readonly Wait[]>([]);

export const tasksById = computed(() => new Map(list.value.tasks.map((task) => [task.task_id, task])));

/** The sessions that wait, by what they wait for: when this changes, the questions are read again. */
const waiting = computed(() =>
  list.value.sessions
    .filter((session) => session.status === "waiting")
    .map((session) => `${session.session_id} ${session.last_seq}`)
    .sort()
    .join("\n"),
);

let timer: ReturnType<typeof setTimeout> | undefined;

effect(() => {
  const wanted = waiting.value;
  const isSignedIn = token.value !== null;
  clearTimeout(timer);
  if (!isSignedIn || wanted === "") {
    waits.value = [];
    return;
  }
  timer = setTimeout(() => void readWaits(), WAITS_DELAY_MS);
});

async function readWaits(): Promise<void> {
  try {
    waits.value = (await client.call("get", "/api/v1/waits")).waits;
  } catch {
    // The connection's state is on the screen; the next change reads them again.
  }
}

export const query = signal("");
export type Filter = "all" | Group;
export const filter = signal<Filter>("all");

function matches(session: SessionSummary, words: readonly string[]): boolean {
  const task = session.task_id ? tasksById.value.get(session.task_id)?.title : "";
  const text = [titleOf(session), session.agent_profile_id, session.working_dir, session.worktree_branch, task, session.session_id]
    .join(" ")
    .toLowerCase();
  return words.every((word) => text.includes(word));
}

export const shown = computed(() => {
  const words = query.value.toLowerCase().split(/\s+/).filter(Boolean);
  const groups: Record<Group, SessionSummary[]> = { needs_you: [], working: [], recent: [], closed: [] };
  // Last active first, as the list is.
  for (const session of list.value.sessions) {
    const group = groupOf(session);
    if (filter.value !== "all" && filter.value !== group) continue;
    if (words.length > 0 && !matches(session, words)) continue;
    groups[group].push(session);
  }
  return groups;
});

export const needsYou = computed(() => list.value.sessions.filter((session) => groupOf(session) === "needs_you").length);

/** What moves the rows that can be answered: their order, what they show, and notices above them. */
const rowsKey = computed(() => {
  const rows = shown.value.needs_you.map((session) => `${session.session_id} ${session.status} ${session.queue?.length ?? 0}`);
  return [...rows, ...waits.value.map((wait) => wait.wait_id), homeConnection.value.phase, list.value.tasks.length].join("\n");
});

/** False until the rows have stood still for 300 ms: a click that was meant for another row must not answer. */
export const rowsSettled = signal(false);
let settling: ReturnType<typeof setTimeout> | undefined;

effect(() => {
  void rowsKey.value;
  rowsSettled.value = false;
  clearTimeout(settling);
  settling = setTimeout(() => {
    rowsSettled.value = true;
  }, SETTLE_MS);
});
