/// <reference types="node" />
import { readFileSync } from "node:fs";

import { expect, test } from "vitest";

import { type InterruptionFindings, interruptionSummary } from "../../src/run/index.js";

interface Vector {
  name: string;
  /** Of an agent, whose phase follows from a server's log: no page writes its text. */
  kind?: "agent";
  findings: InterruptionFindings;
  request: string;
  text: string;
}

const file = new URL("../../../../crates/piton-core/tests/fixtures/interruption-summary.json", import.meta.url);
const vectors = JSON.parse(readFileSync(file, "utf8")) as Vector[];
const loops = vectors.filter((vector) => vector.kind !== "agent");

test.each(loops.map((vector) => [vector.name, vector] as const))("the server's text: %s", (_, vector) => {
  expect(interruptionSummary(vector.findings, vector.request)).toBe(vector.text);
});
