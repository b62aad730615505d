// The page of all HTTP operations and WebSocket methods, from what the server is built of: its OpenAPI
// description, the handlers (which scope each takes), and the table of WebSocket methods.

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

const SERVER = 'crates/piton-server/src';
const METHODS = `${SERVER}/sockets/methods.rs`;
const PREFIX = '/api/v1';

/** What a handler takes, and so which scope a caller needs. */
const SCOPES = { Reader: 'read', Controller: 'control', Administrator: 'admin', WithoutToken: '' };
/** Handlers that take no caller: what they do instead. */
const OTHERS = {
  'GET /health': '',
  'GET /ready': '',
  'GET /ws': 'of each method',
  'GET /sessions/{session_id}/shells/{shell_id}/socket': 'control',
};

/** The headings of the page, in its order; the tags are the description's. */
const GROUPS = {
  sessions: 'Sessions', queue: 'Queued prompts', waits: 'Waits and resume tokens', tasks: 'Tasks', agents: 'Agents',
  workspace: 'The workspace', worktrees: 'Worktrees', rewind: 'Rewind', graphs: 'Graphs', sockets: 'WebSockets',
  store: 'The store', access: 'Access', server: 'The server',
};

/** @returns {{verb: string, path: string, tag: string, says: string}[]} */
export function operations(description) {
  return Object.entries(description.paths).flatMap(([path, verbs]) =>
    Object.entries(verbs).map(([verb, operation]) => ({
      verb: verb.toUpperCase(),
      path: path.startsWith(PREFIX) ? path.slice(PREFIX.length) : path,
      tag: operation.tags[0],
      says: operation.summary.replace(/\s+/g, ' ').trim(),
    })));
}

/** The scope of each operation, by `VERB /path`, from the signatures of the handlers in `sources`. */
export function scopes(sources) {
  const found = new Map();
  for (const source of sources) {
    const handlers = source.matchAll(/#\[utoipa::path\(\s*(\w+),\s*path = "([^"]+)"[\s\S]*?\)\]\n(?:\s*#\[.*\n)*[^\n]*\bfn \w+\(([\s\S]*?)\) ->/g);
    for (const [, verb, path, parameters] of handlers) {
      const key = `${verb.toUpperCase()} ${path}`;
      const taken = Object.keys(SCOPES).find((name) => new RegExp(`\\b${name}\\b`).test(parameters));
      const scope = taken === undefined ? OTHERS[key] : SCOPES[taken];
      if (scope !== undefined) found.set(key, scope);
    }
  }
  return found;
}

/** @returns {{name: string, scope: string, http: string|null}[]} the methods that `source` declares */
export function methods(source) {
  const table = source.slice(source.indexOf('\noperations! {'));
  const rows = table.slice(0, table.indexOf('\n}\n')).matchAll(/^ {4}"([a-z._]+)" (\w+)(?: "([A-Z]+)" "([^"]+)")?;$/gm);
  return [...rows].map(([, name, scope, verb, path]) => ({ name, scope: scope.toLowerCase(), http: verb ? `${verb} ${path}` : null }));
}

function sources(folder) {
  return readdirSync(folder, { recursive: true }).filter((name) => name.endsWith('.rs')).map((name) => readFileSync(join(folder, name), 'utf8'));
}

/** What the server has, read from the checkout. */
export function server() {
  return {
    operations: operations(JSON.parse(readFileSync('docs/api/openapi.json', 'utf8'))),
    scopes: scopes(sources(SERVER)),
    methods: methods(readFileSync(METHODS, 'utf8')),
  };
}

const cell = (text) => text.replace(/\|/g, '\\|');
const code = (text) => (text === '' ? 'none' : text);

/** The text of docs/reference/operations.md, without its first line. */
export function operationsPage({ operations: all, scopes: scope, methods: callable }) {
  const groups = new Map(Object.keys(GROUPS).map((tag) => [tag, []]));
  for (const { verb, path, tag, says } of all) {
    const key = `${verb} ${path}`;
    if (!scope.has(key)) throw new Error(`no handler says which scope ${key} needs`);
    if (!groups.has(tag)) throw new Error(`${key} has the tag ${tag}, which has no heading in scripts/docs/operations.mjs`);
    groups.get(tag).push(`| \`${key}\` | ${code(scope.get(key))} | ${cell(says)} |`);
  }
  const tables = [...groups].map(([tag, rows]) => {
    if (rows.length === 0) throw new Error(`no operation has the tag ${tag}`);
    return `## ${GROUPS[tag]}\n\n| operation | scope | what it does |\n|---|---|---|\n${rows.join('\n')}\n`;
  });
  if (callable.length < 20) throw new Error(`only ${callable.length} WebSocket methods found`);
  const rows = callable.map(({ name, scope: needed, http }) => `| \`${name}\` | ${needed} | ${http === null ? '' : `\`${http}\``} |`);
  return `# Operations

Every HTTP operation and every WebSocket method of the server. Paths are under \`/api/v1\`, except for \`/health\`, \`/ready\` and
\`/metrics\`. [HTTP and WebSocket](http.md) explains them; the [OpenAPI description](../api/openapi.json) has the types of
parameters, bodies and answers. *Scope* is the scope that the access token needs; \`none\` needs no token.

${tables.join('\n')}
## WebSocket methods

\`GET /ws\` accepts these. A method with an operation takes the same parameters, needs the same scope and writes the same records.

| method | scope | operation |
|---|---|---|
${rows.join('\n')}
`;
}

/** Operations and methods that a page names and the server does not have; methods that the page leaves out. */
export function operationFaults(page, text, { operations: all, methods: callable }) {
  const faults = [];
  // A placeholder matches any parameter.
  const shape = (path) => path.replace(/\{[^}]*\}/g, '*').replace(/\b[A-Z][A-Z_]+\b/g, '*');
  const known = new Map();
  for (const { verb, path } of all) known.set(shape(path), [...(known.get(shape(path)) ?? []), verb]);
  for (const [whole, verb, path] of text.matchAll(/`(GET|POST|PUT|PATCH|DELETE) ([/…][^\s`?]*)[^`]*`/g)) {
    const wanted = shape(path.replace(/^\/api\/v1/, '')).replace(/\/$/, '');
    // `…/sessions/ID` and, in tables about one session, `/files` leave out how the path begins.
    const begins = wanted.startsWith('…') ? [...known.keys()].filter((one) => one.endsWith(wanted.slice(1))) : [wanted, `/sessions/*${wanted}`];
    if (!begins.some((one) => known.get(one)?.includes(verb))) faults.push(`${page}: ${whole}: the server has no such operation`);
  }
  const named = new Set([...text.matchAll(/`((?:tasks?|session)\.[a-z._]+|ping)`/g)].map((match) => match[1]));
  for (const { name } of callable) if (!named.has(name)) faults.push(`${page}: the WebSocket method \`${name}\` is missing`);
  for (const name of named) {
    const isMethod = /^(task\.session\.|tasks\.|session\.(un)?subscribe$|ping$)/.test(name);
    if (isMethod && !callable.some((one) => one.name === name)) faults.push(`${page}: \`${name}\`: the server has no such method`);
  }
  return faults;
}
