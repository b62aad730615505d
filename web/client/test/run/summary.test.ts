/// <reference types="node" />
import { readFileSync } from "node:fs";

import { expect, test } from "vitest";

import { type InterruptionFindings, interruptionSummary } from "../../src/run/index.js";

interface Vector {
  name: string;
  findings: InterruptionFindings;
  request: string;
  text: string;
}

const file = new URL("../../../../crates/piton-core/tests/fixtures/interruption-summary.json", import.meta.url);
const vectors = JSON.parse(readFileSync(file, "utf8")) as Vector[];

test.each(vectors.map((vector) => [vector.name, vector] as const))("the server's text: %s", (_, vector) => {
  expect(interruptionSummary(vector.findings, vector.request)).toBe(vector.text);
});
