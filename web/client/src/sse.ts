/** Server-sent events, read as they come. Each character is looked at once. */

export interface ServerEvent {
  id: string | null;
  /** The event's name; empty if it has none. */
  event: string;
  data: string;
}

/** The longest event that is read, in characters. */
export const EVENT_CHARS_MAX = 64 * 1024 * 1024;

export class EventParser {
  #line = "";
  #id: string | null = null;
  #event = "";
  #data: string[] = [];
  #chars = 0;
  #afterReturn = false;

  /** Takes what has arrived; returns the events that are whole now. */
  push(text: string): ServerEvent[] {
    const events: ServerEvent[] = [];
    let from = 0;
    if (this.#afterReturn && text.length > 0) {
      this.#afterReturn = false;
      if (text[0] === "\n") from = 1;
    }
    for (;;) {
      const end = lineEnd(text, from);
      if (end < 0) break;
      this.#extend(text.slice(from, end));
      from = end + 1;
      if (text[end] === "\r") {
        if (from === text.length) this.#afterReturn = true;
        else if (text[from] === "\n") from += 1;
      }
      const event = this.#endLine();
      if (event) events.push(event);
    }
    this.#extend(text.slice(from));
    return events;
  }

  #extend(text: string): void {
    this.#chars += text.length;
    if (this.#chars > EVENT_CHARS_MAX) throw new RangeError(`An event is longer than ${EVENT_CHARS_MAX} characters`);
    this.#line += text;
  }

  #endLine(): ServerEvent | null {
    const line = this.#line;
    this.#line = "";
    if (line === "") {
      const event = { id: this.#id, event: this.#event, data: this.#data.join("\n") };
      const isWhole = this.#data.length > 0;
      [this.#id, this.#event, this.#data, this.#chars] = [null, "", [], 0];
      return isWhole ? event : null;
    }
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    if (name === "data") this.#data.push(value);
    else if (name === "event") this.#event = value;
    else if (name === "id") this.#id = value;
    return null;
  }
}

function lineEnd(text: string, from: number): number {
  const feed = text.indexOf("\n", from);
  const carriage = text.indexOf("\r", from);
  return feed < 0 ? carriage : carriage < 0 ? feed : Math.min(feed, carriage);
}
