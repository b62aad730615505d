// Markdown of agents as vnodes: no HTML is ever parsed, links lead only to http, https and mailto.
import { lexer, type MarkedToken, type Token, type Tokens } from "marked";
import type { ComponentChildren, VNode } from "preact";
import { memo } from "preact/compat";
import { useMemo } from "preact/hooks";
import { CodeBlock } from "../ui/CodeBlock.tsx";
import { PlainText } from "../ui/PlainText.tsx";
import { readable, safeHref } from "./text.ts";

/** Longer texts are shown as they are: formatting them would hold the page up. */
const FORMATTED_CHARS_MAX = 64 * 1024;
const LINE_CHARS_MAX = 10_000;
const DEPTH_MAX = 12;
const INLINE_IMAGE = /^data:image\/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+$/;
/** Runs that only an attack on the parser contains. */
const BOMB = /([[\](){}!*_~`<>#|\\&-])\1{300}|(?:[[\](){}!*_~`<>|\\&] ?){400}|^(?:[ \t]*[>*+-]){40}|^[ \t]{120,}\S/m;

/** Null: shown as plain text. */
export function parse(text: string): Token[] | null {
  if (text.length > FORMATTED_CHARS_MAX || BOMB.test(text)) return null;
  if (text.split("\n").some((line) => line.length > LINE_CHARS_MAX)) return null;
  try {
    return lexer(text, { gfm: true, breaks: false });
  } catch {
    return null;
  }
}

function inline(tokens: Token[] | undefined, fallback: string, depth: number): ComponentChildren {
  if (!tokens || depth > DEPTH_MAX) return unescape(fallback);
  return tokens.map((token) => inlineToken(token as MarkedToken, depth + 1));
}

/** The lexer leaves entities as they are written. */
function unescape(text: string): string {
  const named: Record<string, string> = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: " " };
  return text.replace(/&(amp|lt|gt|quot|apos|nbsp|#39);/g, (all, name: string) => named[name] ?? (name === "#39" ? "'" : all));
}

function inlineToken(token: MarkedToken, depth: number): ComponentChildren {
  switch (token.type) {
    case "strong":
      return <strong>{inline(token.tokens, token.text, depth)}</strong>;
    case "em":
      return <em>{inline(token.tokens, token.text, depth)}</em>;
    case "del":
      return <del>{inline(token.tokens, token.text, depth)}</del>;
    case "codespan":
      return <code>{token.text}</code>;
    case "br":
      return <br />;
    case "link": {
      const href = safeHref(token.href);
      const label = inline(token.tokens, token.text, depth);
      // What cannot be followed is shown as written.
      if (!href) return <span title={token.href}>{token.raw}</span>;
      return (
        <a href={href} target="_blank" rel="noopener noreferrer" title={href}>
          {label}
        </a>
      );
    }
    case "image":
      return INLINE_IMAGE.test(token.href) ? <img src={token.href} alt={token.text} loading="lazy" /> : <span class="muted">{token.raw}</span>;
    case "text":
      return "tokens" in token && token.tokens ? inline(token.tokens, token.text, depth) : unescape(token.text);
    case "escape":
      return token.text;
    default:
      return token.raw;
  }
}

function item(token: Tokens.ListItem, depth: number, key: number): VNode {
  return (
    <li key={key} class={token.task ? "task-item" : undefined}>
      {token.task && <span aria-hidden="true">{token.checked ? "☑ " : "☐ "}</span>}
      {token.task && <span class="visually-hidden">{token.checked ? "done: " : "to do: "}</span>}
      {token.tokens.map((inner, at) => block(inner as MarkedToken, depth + 1, at))}
    </li>
  );
}

function table(token: Tokens.Table, depth: number, key: number): VNode {
  const cell = (content: Tokens.TableCell) => inline(content.tokens, content.text, depth);
  return (
    <div class="md-table" key={key} tabIndex={0} role="region" aria-label="Table">
      <table>
        <thead>
          <tr>{token.header.map((content, at) => <th key={at} data-align={content.align}>{cell(content)}</th>)}</tr>
        </thead>
        <tbody>
          {token.rows.map((row, at) => (
            <tr key={at}>{row.map((content, column) => <td key={column} data-align={content.align}>{cell(content)}</td>)}</tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Headings of agents begin below the page's own. */
const HEADINGS = ["h3", "h4", "h5", "h6", "h6", "h6"] as const;

function block(token: MarkedToken, depth: number, key: number): ComponentChildren {
  if (depth > DEPTH_MAX) return <p key={key}>{token.raw}</p>;
  switch (token.type) {
    case "space":
    case "def":
      return null;
    case "paragraph":
      return <p key={key}>{inline(token.tokens, token.text, depth)}</p>;
    case "heading": {
      const Heading = HEADINGS[token.depth - 1] ?? "h6";
      return <Heading key={key}>{inline(token.tokens, token.text, depth)}</Heading>;
    }
    case "code":
      return <CodeBlock key={key} code={token.text} language={(token.lang ?? "").split(/\s/, 1)[0] ?? ""} />;
    case "blockquote":
      return <blockquote key={key}>{token.tokens.map((inner, at) => block(inner as MarkedToken, depth + 1, at))}</blockquote>;
    case "list": {
      const items = token.items.map((entry, at) => item(entry, depth, at));
      return token.ordered ? <ol key={key} start={Number(token.start) || 1}>{items}</ol> : <ul key={key}>{items}</ul>;
    }
    case "table":
      return table(token, depth, key);
    case "hr":
      return <hr key={key} />;
    case "text":
      return <span key={key}>{inlineToken(token, depth)}</span>;
    case "html":
      return <p key={key}>{token.raw}</p>;
    default:
      return inlineToken(token, depth);
  }
}

/** A block is drawn again only if its text changed: of a streamed answer, the last one. */
const Block = memo(
  ({ token }: { token: Token; raw: string }) => <>{block(token as MarkedToken, 0, 0)}</>,
  (before, after) => before.raw === after.raw,
);

export const Markdown = memo(({ text }: { text: string }) => {
  const clean = useMemo(() => readable(text), [text]);
  const tokens = useMemo(() => parse(clean), [clean]);
  if (!tokens) return <PlainText text={clean} />;
  return (
    <div class="md">
      {tokens.map((token, at) => (
        <Block key={at} token={token} raw={token.raw} />
      ))}
    </div>
  );
});
