/** What is published: the built files and the README, with the types of the public API. */
import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { describe, expect, expectTypeOf, it } from "vitest";
import { type Item, PitonClient, type ReadonlyObservable, type Schemas, SessionStore, type SessionView } from "../src/index.js";

const folder = fileURLToPath(new URL("..", import.meta.url));

describe("the package", () => {
  it("has the built files and nothing else", () => {
    execFileSync("npm", ["run", "--silent", "build"], { cwd: folder });
    const packed = execFileSync("npm", ["pack", "--dry-run", "--json", "--ignore-scripts"], { cwd: folder, stdio: ["ignore", "pipe", "ignore"] });
    const [{ files }] = JSON.parse(packed.toString()) as [{ files: { path: string }[] }];
    const paths = files.map((file) => file.path);
    for (const needed of ["package.json", "README.md", "dist/index.js", "dist/index.d.ts"]) expect(paths).toContain(needed);
    expect(paths.filter((path) => !/^(dist\/.*\.(js|d\.ts)|README\.md|package\.json|LICENSE.*)$/.test(path))).toEqual([]);
  }, 60_000);

  it("needs nothing at run time", async () => {
    const { default: manifest } = (await import("../package.json", { with: { type: "json" } })) as { default: { dependencies?: unknown } };
    expect(manifest.dependencies).toBeUndefined();
  });

  it("has the types of the API", () => {
    const client = new PitonClient({ address: "http://piton.test" });
    const shown = () => client.call("get", "/api/v1/sessions/{session_id}", { path: { session_id: "s" } });
    expectTypeOf(shown).returns.resolves.toEqualTypeOf<Schemas["SessionStatus"]>();
    const prompted = () => client.call("post", "/api/v1/sessions/{session_id}/messages", { path: { session_id: "s" }, body: { content: "x" } });
    expectTypeOf(prompted).returns.resolves.toEqualTypeOf<Schemas["PromptAccepted"]>();
    // @ts-expect-error: there is no such operation
    void (() => client.call("get", "/api/v1/nothing"));
    // @ts-expect-error: the path needs a session
    void (() => client.call("get", "/api/v1/sessions/{session_id}", { path: { wrong: 1 } }));
    expectTypeOf<SessionStore["view"]>().toEqualTypeOf<ReadonlyObservable<SessionView>>();
    expectTypeOf<SessionView["items"]>().toEqualTypeOf<readonly Item[]>();
  });
});
