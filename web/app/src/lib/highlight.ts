// Colours for code, loaded when the first code is shown. Prism's tokens become spans; no HTML is made of them.
import "./prism-setup.ts";
import Prism from "prismjs/components/prism-core.js";
import "prismjs/components/prism-clike.js";
import "prismjs/components/prism-markup.js";
import "prismjs/components/prism-css.js";
import "prismjs/components/prism-javascript.js";
import "prismjs/components/prism-typescript.js";
import "prismjs/components/prism-jsx.js";
import "prismjs/components/prism-tsx.js";
import "prismjs/components/prism-json.js";
import "prismjs/components/prism-bash.js";
import "prismjs/components/prism-rust.js";
import "prismjs/components/prism-python.js";
import "prismjs/components/prism-go.js";
import "prismjs/components/prism-java.js";
import "prismjs/components/prism-kotlin.js";
import "prismjs/components/prism-c.js";
import "prismjs/components/prism-cpp.js";
import "prismjs/components/prism-csharp.js";
import "prismjs/components/prism-ruby.js";
import "prismjs/components/prism-swift.js";
import "prismjs/components/prism-sql.js";
import "prismjs/components/prism-yaml.js";
import "prismjs/components/prism-toml.js";
import "prismjs/components/prism-diff.js";
import "prismjs/components/prism-docker.js";
import "prismjs/components/prism-markdown.js";

export type Highlighted = { text: string; kind: Kind | null };
type Kind = "keyword" | "string" | "number" | "title" | "comment" | "add" | "del";

const ALIASES: Record<string, string> = {
  rs: "rust", ts: "typescript", js: "javascript", mjs: "javascript", cjs: "javascript", py: "python", sh: "bash",
  shell: "bash", zsh: "bash", console: "bash", yml: "yaml", html: "markup", xml: "markup", svg: "markup", md: "markdown",
  "c++": "cpp", cc: "cpp", h: "c", hpp: "cpp", cs: "csharp", rb: "ruby", kt: "kotlin", dockerfile: "docker", patch: "diff",
};

const KINDS: Record<string, Kind> = {
  keyword: "keyword", boolean: "number", number: "number", constant: "number", symbol: "number", string: "string", char: "string",
  regex: "string", "attr-value": "string", "template-string": "string", comment: "comment", prolog: "comment", function: "title",
  "function-definition": "title", "class-name": "title", tag: "title", "attr-name": "keyword", property: "title", selector: "title",
  builtin: "title", macro: "title", attribute: "title", key: "title", atrule: "keyword", title: "keyword", inserted: "add",
  "inserted-sign": "add", deleted: "del", "deleted-sign": "del",
};

export function languageOf(path: string): string {
  const name = path.split("/").pop() ?? "";
  if (/^dockerfile/i.test(name)) return "docker";
  return name.includes(".") ? (name.split(".").pop() ?? "").toLowerCase() : "";
}

type Tree = string | { type: string; content: Tree | Tree[] };

function walk(tree: Tree | Tree[], kind: Kind | null, into: Highlighted[]): void {
  if (typeof tree === "string") {
    const last = into[into.length - 1];
    if (last && last.kind === kind) last.text += tree;
    else into.push({ text: tree, kind });
  } else if (Array.isArray(tree)) {
    for (const inner of tree) walk(inner, kind, into);
  } else {
    walk(tree.content, KINDS[tree.type] ?? kind, into);
  }
}

/** Null: a language that is not known. */
export function highlight(code: string, language: string): Highlighted[] | null {
  const name = language.toLowerCase();
  const grammar = Prism.languages[ALIASES[name] ?? name];
  if (!grammar || typeof grammar === "function") return null;
  const parts: Highlighted[] = [];
  walk(Prism.tokenize(code, grammar) as Tree[], null, parts);
  return parts;
}
