// `@path` completes files of the workspace, `/name` the agent's commands.
import type { AgentView, FileEntry } from "piton-client";
import type { RefObject } from "preact";
import { useEffect, useId, useState } from "preact/hooks";
import { api } from "../../data/actions.ts";

const ITEMS_MAX = 12;

export type CompletionItem = { label: string; note: string; /** The whole text after it was chosen. */ text: string };

export type CompletionState = {
  items: readonly CompletionItem[];
  selected: number;
  listId: string;
  /** Null: not its key. Undefined: handled. A text: what the box contains now. */
  onKey: (event: KeyboardEvent) => string | undefined | null;
  onSelect: () => void;
};

type Commands = AgentView["commands"];

const folders = new Map<string, Promise<readonly FileEntry[]>>();

function listFolder(session: string, path: string): Promise<readonly FileEntry[]> {
  const key = `${session} ${path}`;
  const known = folders.get(key);
  if (known) return known;
  const listed = api(session)
    .files(path)
    .then((found) => found.files)
    .catch(() => []);
  folders.set(key, listed);
  // The agent changes files: what was listed is old soon.
  setTimeout(() => folders.delete(key), 10_000);
  return listed;
}

/** The `@word` or `/word` before the caret. */
export function mention(text: string, caret: number): { sign: "@" | "/"; word: string; from: number } | null {
  const before = text.slice(0, caret);
  const command = /^\/(\S*)$/.exec(before);
  if (command) return { sign: "/", word: command[1] ?? "", from: 0 };
  const file = /(?:^|\s)@([^\s@]*)$/.exec(before);
  return file ? { sign: "@", word: file[1] ?? "", from: caret - (file[1] ?? "").length - 1 } : null;
}

async function filesFor(session: string, text: string, caret: number, word: string, from: number): Promise<CompletionItem[]> {
  const cut = word.lastIndexOf("/");
  const folder = word.slice(0, Math.max(cut, 0));
  const start = word.slice(cut + 1).toLowerCase();
  const entries = await listFolder(session, folder);
  return entries
    .filter((entry) => entry.name.toLowerCase().includes(start) && (start.startsWith(".") || !entry.name.startsWith(".")))
    .sort((a, b) => Number(b.name.toLowerCase().startsWith(start)) - Number(a.name.toLowerCase().startsWith(start)) || a.name.localeCompare(b.name))
    .slice(0, ITEMS_MAX)
    .map((entry) => {
      const isFolder = entry.kind === "folder";
      const path = `${folder ? `${folder}/` : ""}${entry.name}`;
      const inserted = `@${path}${isFolder ? "/" : " "}`;
      return { label: path, note: isFolder ? "folder" : "", text: text.slice(0, from) + inserted + text.slice(caret) };
    });
}

function commandsFor(commands: Commands, text: string, caret: number, word: string): CompletionItem[] {
  return commands
    .filter((command) => command.name.toLowerCase().includes(word.toLowerCase()))
    .slice(0, ITEMS_MAX)
    .map((command) => ({ label: `/${command.name}`, note: [command.hint, command.description].filter(Boolean).join(" · "), text: `/${command.name} ${text.slice(caret)}` }));
}

export function useCompletions(session: string, commands: Commands, text: string, input: RefObject<HTMLTextAreaElement | null>): CompletionState {
  const [items, setItems] = useState<readonly CompletionItem[]>([]);
  const [selected, setSelected] = useState(0);
  const [caret, setCaret] = useState(0);
  const [dismissed, setDismissed] = useState<string | null>(null);
  const listId = useId();

  useEffect(() => {
    const at = input.current?.selectionStart ?? text.length;
    const found = mention(text, at);
    if (!found || dismissed === text) {
      setItems([]);
      return;
    }
    let isCurrent = true;
    const listed = found.sign === "/" ? Promise.resolve(commandsFor(commands, text, at, found.word)) : filesFor(session, text, at, found.word, found.from);
    void listed.then((list) => {
      if (!isCurrent) return;
      setItems(list);
      setSelected(0);
    });
    return () => {
      isCurrent = false;
    };
  }, [text, caret, dismissed, session]);

  const onKey = (event: KeyboardEvent): string | undefined | null => {
    if (items.length === 0) return null;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined) {
      event.preventDefault();
      setSelected((selected + step + items.length) % items.length);
      return undefined;
    }
    if (event.key === "Escape") {
      event.preventDefault();
      setDismissed(text);
      return undefined;
    }
    const chosen = items[selected];
    if ((event.key === "Enter" || event.key === "Tab") && chosen && !event.shiftKey) {
      event.preventDefault();
      return chosen.text;
    }
    return null;
  };
  return { items, selected, listId, onKey, onSelect: () => setCaret(input.current?.selectionStart ?? 0) };
}

export function Completions({ state, onPick }: { state: CompletionState; onPick: (text: string) => void }) {
  if (state.items.length === 0) return null;
  return (
    <ul class="completions" role="listbox" id={state.listId} aria-label="Completions">
      {state.items.map((item, at) => (
        <li
          key={item.label}
          id={`${state.listId}-${at}`}
          role="option"
          class="menu-item"
          aria-selected={at === state.selected}
          onPointerDown={(event) => {
            event.preventDefault();
            onPick(item.text);
          }}
        >
          <span class="label">{item.label}</span>
          {item.note && <span class="note">{item.note}</span>}
        </li>
      ))}
    </ul>
  );
}
