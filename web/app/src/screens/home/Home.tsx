import type { SessionSummary } from "piton-client";
import { agents } from "../../data/agents.ts";
import { openNewSession } from "../../data/dialogs.ts";
import { type Filter, filter, homeConnection, list, query, shown } from "../../data/home.ts";
import { type Group, TASK_STATES } from "../../data/states.ts";
import { plural } from "../../lib/format.ts";
import { now } from "../../lib/now.ts";
import { Button, LinkButton } from "../../ui/Button.tsx";
import { Badge } from "../../ui/parts.tsx";
import { ConnectionNotice } from "../session/ConnectionNotice.tsx";
import { AppNotices } from "./AppNotices.tsx";
import { SessionRow } from "./SessionRow.tsx";

const ROWS_MAX = 200;

const FILTERS: { name: Filter; label: string }[] = [
  { name: "all", label: "All" },
  { name: "needs_you", label: "Needs you" },
  { name: "working", label: "Working" },
  { name: "closed", label: "Closed" },
];

export function Home({ selected }: { selected: string | null }) {
  const groups = shown.value;
  const isEmpty = Object.values(groups).every((group) => group.length === 0);
  const { earlier, today } = byDay(groups.recent);
  return (
    <div class="home">
      <header class="home-header">
        <h1 class="brand">Piton</h1>
        <span class="grow" />
        <LinkButton href="#/settings" look="plain" dense label="Settings and health">Settings</LinkButton>
        <Button icon="plus" look="primary" dense label="New session" onClick={() => openNewSession()}>
          New
        </Button>
      </header>
      {!isSecureContext && (
        <p class="notice" data-card="insecure-context">
          <span class="grow">Not loaded over HTTPS: no notifications, no installation.</span>
          <a href="#/settings/device">Why</a>
        </p>
      )}
      <AppNotices />
      {!selected && <ConnectionNotice connection={homeConnection.value} />}
      <div class="home-filter">
        <input
          class="input"
          type="search"
          placeholder="Search sessions"
          aria-label="Search sessions"
          value={query.value}
          onInput={(event) => {
            query.value = event.currentTarget.value;
          }}
        />
        <div class="tabs" role="group" aria-label="Filter">
          {FILTERS.map(({ name, label }) => (
            <button key={name} type="button" class="chip" aria-pressed={filter.value === name} onClick={() => { filter.value = name; }}>
              {label}
            </button>
          ))}
        </div>
      </div>
      <div class="home-list">
        <Section title="Needs you" group="needs_you" rows={groups.needs_you} selected={selected} />
        <Tasks />
        <Section title="Working" group="working" rows={groups.working} selected={selected} />
        <Section title="Today" group="recent" rows={today} selected={selected} />
        <Section title="Earlier" group="recent" rows={earlier} selected={selected} />
        <Section title="Closed" group="closed" rows={groups.closed} selected={selected} />
        {list.value.truncated && <p class="muted small home-note">Only the 1,000 sessions that were active last are listed.</p>}
        {list.value.isLoaded && isEmpty && <Nothing />}
      </div>
    </div>
  );
}

/** Open tasks with several sessions, or none yet: each is compared and finished on its own screen. */
function Tasks() {
  if (filter.value !== "all") return null;
  const counts = new Map<string, number>();
  for (const session of list.value.sessions) if (session.task_id) counts.set(session.task_id, (counts.get(session.task_id) ?? 0) + 1);
  const words = query.value.toLowerCase().split(/\s+/).filter(Boolean);
  const tasks = list.value.tasks.filter((task) => !task.is_closed && counts.get(task.task_id) !== 1 && words.every((word) => task.title.toLowerCase().includes(word)));
  if (tasks.length === 0) return null;
  return (
    <section class="home-section" data-group="tasks" aria-label="Tasks">
      <h2>Tasks <span class="muted numeric">{tasks.length}</span></h2>
      <ul>
        {tasks.slice(0, ROWS_MAX).map((task) => (
          <li key={task.task_id} class="home-task">
            <a href={`#/task/${encodeURIComponent(task.task_id)}`} class="home-link">
              <span class="grow">
                <span class="truncate home-title">{task.title}</span>
                <span class="home-facts">{plural(counts.get(task.task_id) ?? 0, "session")}</span>
              </span>
              <Badge tone={TASK_STATES[task.state].tone}>{TASK_STATES[task.state].label}</Badge>
            </a>
          </li>
        ))}
      </ul>
    </section>
  );
}

function byDay(rows: readonly SessionSummary[]): { today: SessionSummary[]; earlier: SessionSummary[] } {
  const midnight = new Date(now.value).setHours(0, 0, 0, 0);
  const isToday = (row: SessionSummary) => new Date(row.active_at).getTime() >= midnight;
  return { today: rows.filter(isToday), earlier: rows.filter((row) => !isToday(row)) };
}

function Section({ title, group, rows, selected }: { title: string; group: Group; rows: readonly SessionSummary[]; selected: string | null }) {
  if (rows.length === 0) return null;
  return (
    <section class="home-section" data-group={group} aria-label={title}>
      <h2>
        {title} <span class="muted numeric">{rows.length}</span>
      </h2>
      <ul>
        {rows.slice(0, ROWS_MAX).map((row) => (
          <SessionRow key={row.session_id} session={row} isSelected={row.session_id === selected} />
        ))}
      </ul>
      {rows.length > ROWS_MAX && <p class="muted small home-note">{rows.length - ROWS_MAX} more: search to find them.</p>}
    </section>
  );
}

function Nothing() {
  if (query.value !== "" || filter.value !== "all") {
    return (
      <div class="empty">
        <p>No session matches.</p>
        <Button onClick={() => { query.value = ""; filter.value = "all"; }}>Show all</Button>
      </div>
    );
  }
  const installed = agents.value.filter((agent) => agent.is_installed).length;
  return (
    <div class="empty">
      <h2>No sessions yet</h2>
      <p>Give an agent something to do. Close the laptop, lock the phone, restart the server: the session stays.</p>
      <Button look="primary" icon="plus" onClick={() => openNewSession()}>New session</Button>
      <p class="small">{installed} of {agents.value.length} known agents are installed.</p>
    </div>
  );
}
