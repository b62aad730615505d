import { describe, expect, it } from "vitest";
import { EventParser, type ServerEvent } from "../src/sse.js";

const STREAM = ': piton\nretry: 1000\n\nid: 3\nevent: run.started\ndata: {"seq":3}\n\n: here\n\nevent: x\r\ndata: a\r\ndata:b\r\n\r\nid: 9\n\n';
const EXPECTED: ServerEvent[] = [
  { id: "3", event: "run.started", data: '{"seq":3}' },
  { id: null, event: "x", data: "a\nb" },
];

function events(pieces: string[]): ServerEvent[] {
  const parser = new EventParser();
  return pieces.flatMap((piece) => parser.push(piece));
}

describe("EventParser", () => {
  it("gives the same events however the text is cut", () => {
    expect(events([STREAM])).toEqual(EXPECTED);
    expect(events([...STREAM])).toEqual(EXPECTED);
    for (let at = 0; at <= STREAM.length; at += 1) expect(events([STREAM.slice(0, at), STREAM.slice(at)]), `cut at ${at}`).toEqual(EXPECTED);
  });

  it("refuses an event that never ends", () => {
    const parser = new EventParser();
    const piece = "x".repeat(8 * 1024 * 1024);
    expect(() => {
      for (let n = 0; n < 10; n += 1) parser.push(piece);
    }).toThrow(RangeError);
  });
});
