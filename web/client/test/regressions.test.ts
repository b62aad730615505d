/// <reference types="node" />
import { readFileSync } from "node:fs";

import { expect, test } from "vitest";

const read = (path: string) => readFileSync(new URL(`../../../${path}`, import.meta.url), "utf8");

test("the tests of the web packages that docs/internals/regressions.md names exist", () => {
  const named = [...read("docs/internals/regressions.md").matchAll(/`(web\/[^`]+\.test\.\w+)::([^`]+)`/g)];
  expect(named.length).toBeGreaterThanOrEqual(12);
  const missing = named.filter(([, path = "", title = ""]) => !read(path).includes(`"${title}`)).map(([all]) => all);
  expect(missing).toEqual([]);
});
