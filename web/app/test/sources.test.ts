// @vitest-environment node
/** What no source of the web packages may contain, and what a page of the docs must not promise without a test. */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { describe, expect, it } from "vitest";

const TREE = resolve(import.meta.dirname, "../../..");
/** Text that becomes markup or code: what an agent says must never reach one of them. */
const FORBIDDEN = /\.(?:innerHTML|outerHTML)\b|\b(?:dangerouslySetInnerHTML|insertAdjacentHTML|createContextualFragment|setHTMLUnsafe|parseHTMLUnsafe|srcdoc)\b|\bdocument\s*\.\s*write(?:ln)?\s*\(|\beval\s*\(|\bnew\s+Function\s*\(|["'](?:innerHTML|outerHTML)["']/;

const filesOf = (folder: string) => readdirSync(join(TREE, folder), { recursive: true, encoding: "utf8" }).map((name) => `${folder}/${name}`);
const sources = [...["web/app/src", "web/client/src", "web/app/public"].flatMap(filesOf).filter((path) => /\.(?:[mc]?[jt]sx?|html)$/.test(path)), "web/app/index.html"];

/** Comments may name what the code does not do. */
const code = (text: string) => text.replace(/\/\*[\s\S]*?\*\//g, "").replace(/(^|\s)\/\/.*$/gm, "");

describe("no source makes markup or code of text", () => {
  it("the search finds what it looks for", () => {
    for (const line of ["a.innerHTML = b", "<p dangerouslySetInnerHTML={x} />", "el.insertAdjacentHTML('x', y)", "document.write(x)", "eval(x)", "new Function(x)", 'el["innerHTML"] = x']) expect(FORBIDDEN.test(code(line)), line).toBe(true);
    for (const line of ["// no innerHTML = here", "a.textContent = b", "evaluate(x)", "/* a.innerHTML */"]) expect(FORBIDDEN.test(code(line)), line).toBe(false);
    expect(sources.length).toBeGreaterThan(120);
  });

  it("of the app and the client", () => {
    const found = sources.filter((path) => FORBIDDEN.test(code(readFileSync(join(TREE, path), "utf8"))));
    expect(found).toEqual([]);
  });
});

it("regressions.md names tests of the web packages that exist", () => {
  const page = readFileSync(join(TREE, "docs/internals/regressions.md"), "utf8");
  const rows = [...page.matchAll(/`(web\/[^`]+\.(?:ts|tsx|mjs))`: ([^|]+?) \|/g)].map(([, path = "", name = ""]) => ({ path, name }));
  expect(rows.length).toBeGreaterThan(1);
  const missing = rows.filter(({ path, name }) => !existsSync(join(TREE, path)) || !readFileSync(join(TREE, path), "utf8").includes(name));
  expect(missing).toEqual([]);
});
