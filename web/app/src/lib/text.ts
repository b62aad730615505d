// Text of agents is not trusted: control sequences and direction overrides must not change what a person reads.

/** ESC sequences as terminals know them: CSI, OSC, and the two-character ones. */
// biome-ignore lint: control characters are what this is about.
const ANSI = /\u001b\[[0-?]*[ -/]*[@-~]|\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|\u001b[@-_]/g;
/** C0 and C1 controls but tab and line feed; DEL. */
const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g;
/** Embeddings, overrides and isolates: they can show a command in another order than it runs in. */
const BIDI = /[\u200e\u200f\u202a-\u202e\u2066-\u2069\u061c]/g;
/** Zero-width characters that hide text inside text. */
const INVISIBLE = /[\u200b\u2060\ufeff\u{e0000}-\u{e007f}]/gu;

/** For prose: what cannot be seen is left out, direction marks too. */
export function readable(text: string): string {
  return text.replace(/\r\n?/g, "\n").replace(ANSI, "").replace(CONTROL, "").replace(BIDI, "");
}

function nameOf(found: string): string {
  const code = found.codePointAt(0) ?? 0;
  return `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
}

/** For commands, paths and diffs: what cannot be seen is shown by its name, since it would run. */
export function revealed(text: string): string {
  return visible(text).replace(INVISIBLE, nameOf);
}

// biome-ignore lint: control characters are what this is about.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069\u061c]/;

/** For everything on the page: what changes the order of a text, and controls, by their names. */
export function visible(text: string): string {
  if (!UNSEEN.test(text)) return text;
  return text.replace(/\r\n/g, "\n").replace(BIDI, nameOf).replace(/\u001b/g, "␛").replace(CONTROL, nameOf);
}

/** Output of commands: colours are dropped, a progress line keeps its last state. */
export function terminalText(text: string): string {
  return text
    .replace(ANSI, "")
    .replace(/\r\n/g, "\n")
    .split("\n")
    .map((line) => {
      const parts = line.split("\r").filter((part) => part !== "");
      return parts[parts.length - 1] ?? "";
    })
    .join("\n")
    .replace(CONTROL, "")
    .replace(BIDI, "");
}

/** Only these leave the page. Everything else is shown as text. */
export function safeHref(href: string): string | null {
  const trimmed = href.trim();
  if (!/^(https?:|mailto:)/i.test(trimmed)) return null;
  try {
    const url = new URL(trimmed);
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

/** The first line of something, for lists. */
export function firstLine(text: string, max = 160): string {
  const line = visible(text).trim().split("\n", 1)[0] ?? "";
  return line.length > max ? `${line.slice(0, max - 1)}…` : line;
}
