import { describe, expect, test, vi } from "vitest";

import { detectInterruptedRun, type RunCheckpoint, type RunError, type RunMessage, type StorageProblem } from "../../src/run/index.js";
import { Browser, call, checkpoint, say, testRun, TestStorage } from "./helpers.js";

const KEY = "run_checkpoint_chat";

/** Deletes the database, which makes every connection close. */
function closeDatabase(browser: Browser): Promise<string> {
  return new Promise((resolve) => {
    const opening = browser.factory.open("piton_run", 2);
    opening.onupgradeneeded = () => opening.transaction?.abort();
    opening.onerror = () => resolve("closed");
    opening.onsuccess = () => resolve("opened");
  });
}

describe("the two stores", () => {
  test("localStorage has a checkpoint before save returns", () => {
    const browser = new Browser();
    void browser.storage().save(checkpoint({ accumulated: "now" }));
    expect(browser.local.getItem(KEY)).toContain('"accumulated":"now"');
  });

  test("the newer valid one counts, by its position and not by the clock", async () => {
    const browser = new Browser();
    const storage = browser.storage();
    await storage.save(checkpoint({ writeSeq: 7, accumulated: "database", savedAt: 1 }));
    browser.local.setItem(KEY, JSON.stringify(checkpoint({ writeSeq: 6, accumulated: "older", savedAt: 99 })));
    expect((await storage.load("chat")).checkpoint?.accumulated).toBe("database");
    browser.local.setItem(KEY, JSON.stringify(checkpoint({ writeSeq: 8, accumulated: "newer", savedAt: 0 })));
    expect((await storage.load("chat")).checkpoint?.accumulated).toBe("newer");
  });

  test("killed before IndexedDB had it, or with localStorage lost: one is enough", async () => {
    const browser = new Browser();
    await browser.storage().save(checkpoint({ accumulated: "both" }));
    browser.local.clear();
    expect((await browser.storage().load("chat")).checkpoint?.accumulated).toBe("both");
    const other = new Browser();
    other.local.setItem(KEY, JSON.stringify(checkpoint({ accumulated: "local only" })));
    expect((await other.storage().load("chat")).checkpoint?.accumulated).toBe("local only");
  });

  test("a damaged copy is set aside, and the other one counts", async () => {
    const browser = new Browser();
    const storage = browser.storage();
    await storage.save(checkpoint({ accumulated: "whole" }));
    browser.local.setItem(KEY, "{damaged");
    const loaded = await storage.load("chat");
    expect(loaded.checkpoint?.accumulated).toBe("whole");
    expect(loaded.problems).toEqual(["checkpoint_damaged"]);
    expect(browser.local.getItem(`${KEY}.aside`)).toBe("{damaged");
  });
});

describe("a cleared run", () => {
  test("is gone, and its key with it", async () => {
    const browser = new Browser();
    const storage = browser.storage();
    await storage.save(checkpoint());
    await storage.clear("chat", 2);
    expect(browser.local.getItem(KEY)).toBeNull();
    expect(await storage.load("chat")).toEqual({ checkpoint: null, problems: [], writeSeq: 2 });
  });

  test("stays gone when localStorage comes back with its last second lost", async () => {
    const browser = new Browser();
    const storage = browser.storage();
    await storage.save(checkpoint());
    const before = browser.local.getItem(KEY) ?? "";
    await storage.clear("chat", 2);
    browser.local.setItem(KEY, before);
    expect((await browser.storage().load("chat")).checkpoint).toBeNull();
  });

  test("stays gone when the page is killed before IndexedDB knows", async () => {
    const browser = new Browser();
    await browser.storage().save(checkpoint());
    void browser.storage({ indexedDB: null }).clear("chat", 2);
    expect((await browser.storage().load("chat")).checkpoint).toBeNull();
  });

  test("does not take the next run with it", async () => {
    const browser = new Browser();
    const storage = browser.storage();
    await storage.save(checkpoint());
    const clearing = storage.clear("chat", 2);
    void storage.save(checkpoint({ writeSeq: 3 }));
    await clearing;
    expect((await storage.load("chat")).checkpoint?.writeSeq).toBe(3);
    expect(browser.local.getItem(KEY)).not.toBeNull();
  });

  test("is forgotten after a day", async () => {
    const browser = new Browser();
    const storage = browser.storage();
    await storage.clear("chat", 2);
    browser.clock.time += 25 * 3_600_000;
    await storage.load("chat");
    await storage.load("other");
    expect((await storage.load("chat")).writeSeq).toBe(0);
  });
});

describe("stores that cannot be used", () => {
  const problemsOf = (storage: ReturnType<Browser["storage"]>) => {
    const problems: StorageProblem[] = [];
    storage.onProblem((problem) => problems.push(problem));
    return problems;
  };

  test("a full localStorage: IndexedDB has it, and the older copy does not count", async () => {
    const browser = new Browser();
    const storage = browser.storage();
    const problems = problemsOf(storage);
    await storage.save(checkpoint({ accumulated: "small" }));
    browser.local.limit = 2_000;
    await storage.save(checkpoint({ accumulated: "x".repeat(5_000_000), writeSeq: 2 }));
    expect(problems).toEqual(["local_storage_full"]);
    expect((await storage.load("chat")).checkpoint?.accumulated).toHaveLength(5_000_000);
    await storage.save(checkpoint({ accumulated: "small again", writeSeq: 3 }));
    expect(browser.local.getItem(KEY)).toContain("small again");
  });

  test("a full localStorage without IndexedDB: what was saved before stays, and a cleared run is gone", async () => {
    const browser = new Browser();
    const storage = browser.storage({ indexedDB: null });
    const messages = [{ role: "user", content: "go" }];
    await storage.save(checkpoint({ accumulated: "small" }));
    await storage.saveConversation("chat", messages);
    browser.local.limit = 20;
    await expect(storage.save(checkpoint({ accumulated: "larger", writeSeq: 2 }))).rejects.toMatchObject({ code: "storage_failed" });
    await expect(storage.saveConversation("chat", [...messages, ...messages])).rejects.toMatchObject({ code: "storage_failed" });
    expect((await storage.load("chat")).checkpoint?.accumulated).toBe("small");
    expect(await storage.loadConversation("chat")).toEqual(messages);
    await storage.clear("chat", 3).catch(() => undefined);
    expect((await storage.load("chat")).checkpoint).toBeNull();
  });

  test("a database that does not open in time, or is of a newer version: no second conversation begins", async () => {
    const silent = { open: () => ({}) } as unknown as IDBFactory;
    const newer = new Browser();
    await new Promise<void>((resolve) => {
      const opening = newer.factory.open("piton_run", 2);
      opening.onsuccess = () => {
        opening.result.close();
        resolve();
      };
    });
    for (const factory of [silent, newer.factory]) {
      const browser = new Browser();
      browser.clock.setTimeout = (run, ms) => setTimeout(run, ms / 100);
      const storage = browser.storage({ indexedDB: factory });
      await expect(storage.loadConversation("chat")).rejects.toMatchObject({ code: "storage_unavailable" });
      await expect(storage.saveConversation("chat", [])).rejects.toMatchObject({ code: "storage_unavailable" });
      expect([...browser.local.values.keys()]).toEqual([]);
      // The checkpoint may be there: it is not said that there is none.
      expect(await detectInterruptedRun({ chatId: "chat", storage, lock: browser.locks.tab() })).toMatchObject({ reason: "storage_unavailable" });
      await storage.save(checkpoint({ accumulated: "kept" }));
      expect((await storage.load("chat")).checkpoint?.accumulated).toBe("kept");
    }
  });

  test("a database that is lost while the page works: the conversation waits for it, the run keeps its messages", async () => {
    const browser = new Browser();
    let isLost = false;
    const factory = { open: (name: string, version: number) => {
      if (isLost) throw new DOMException("lost", "UnknownError");
      return browser.factory.open(name, version);
    } } as unknown as IDBFactory;
    const storage = browser.storage({ indexedDB: factory });
    const { run } = testRun(browser, async function* () {
      yield say("Half ");
      isLost = true;
      // As when the browser closes it by force.
      const transaction = await closeDatabase(browser);
      expect(transaction).toBe("closed");
      yield say("whole");
    }, { storage });
    expect(await run.send("go")).toBe("completed");
    isLost = false;
    const next = testRun(browser, () => [], { storage: browser.storage() });
    expect(await next.run.open()).toMatchObject({ status: "offered" });
    await next.run.recovery.dismiss();
    expect((await browser.storage().loadConversation("chat")).map((message) => message.content)).toEqual(["go", "Half whole"]);
  });

  test("localStorage disabled", async () => {
    const browser = new Browser();
    browser.local.isBroken = true;
    const storage = browser.storage();
    await storage.save(checkpoint({ accumulated: "kept" }));
    expect((await storage.load("chat")).checkpoint?.accumulated).toBe("kept");
  });

  test("no IndexedDB", async () => {
    const browser = new Browser();
    const storage = browser.storage({ indexedDB: null });
    expect(problemsOf(storage)).toEqual(["indexed_db_unavailable"]);
    await storage.save(checkpoint({ accumulated: "kept" }));
    expect((await storage.load("chat")).checkpoint?.accumulated).toBe("kept");
  });

  test("neither: the save says so", async () => {
    const storage = new Browser().storage({ localStorage: null, indexedDB: null });
    await expect(storage.save(checkpoint())).rejects.toMatchObject({ code: "storage_failed" } satisfies Partial<RunError>);
    expect((await storage.load("chat")).checkpoint).toBeNull();
  });

  test("IndexedDB that throws when it is opened", async () => {
    const broken = { open: () => { throw new DOMException("denied", "SecurityError"); } } as unknown as IDBFactory;
    const local = new TestStorage();
    const storage = new Browser().storage({ localStorage: local, indexedDB: broken });
    await storage.save(checkpoint({ accumulated: "kept" }));
    expect((await storage.load("chat")).checkpoint?.accumulated).toBe("kept");
  });
});

test("only the owner of the lease writes", async () => {
  const storage = new Browser().storage();
  await storage.updateLease("chat", () => ({ owner: "a" }));
  await storage.save(checkpoint({ accumulated: "by a" }), { owner: "a" });
  await storage.updateLease("chat", () => ({ owner: "b" }));
  const late = storage.save(checkpoint({ accumulated: "late", writeSeq: 0 }), { owner: "a" });
  await expect(late).rejects.toMatchObject({ code: "lock_lost" });
});

test("an answer of 5 MB: localStorage gets its end, IndexedDB has all of it, and together they are whole", async () => {
  const browser = new Browser();
  browser.local.limit = 1024 * 1024;
  const storage = browser.storage();
  const problems: string[] = [];
  storage.onProblem((problem) => void problems.push(problem));
  await storage.load("chat");
  const answer = Array.from({ length: 5 * 1024 * 128 }, (_, n) => String(n).padStart(7) + " ").join("");
  const begun = answer.slice(0, -1_000);
  await storage.save(checkpoint({ phase: "streaming_llm", accumulated: begun, writeSeq: 1 }));
  // The page is hidden: the synchronous store is written, the database is not asked any more.
  const local = browser.local.setItem.bind(browser.local);
  let last = "";
  browser.local.setItem = (key, value) => {
    last = value;
    local(key, value);
  };
  await storage.save(checkpoint({ phase: "streaming_llm", accumulated: answer, writeSeq: 2 }));
  expect(last.length).toBeLessThan(140 * 1024);
  const inDatabase = async (text: string) => {
    const before = new Browser();
    before.factory = browser.factory;
    await before.storage({ localStorage: null }).save(JSON.parse(text) as RunCheckpoint);
  };
  await inDatabase(JSON.stringify(checkpoint({ phase: "streaming_llm", accumulated: begun, writeSeq: 1 })));
  const loaded = await browser.storage().load("chat");
  expect(loaded.checkpoint?.writeSeq).toBe(2);
  expect(loaded.checkpoint?.accumulated === answer).toBe(true);
  expect(loaded.checkpoint).not.toHaveProperty("accumulatedFrom");
  // Of another run the beginning is no beginning: what is missing is named.
  await inDatabase(JSON.stringify(checkpoint({ runId: "other", phase: "streaming_llm", accumulated: begun, writeSeq: 1 })));
  const cut = (await browser.storage().load("chat")).checkpoint?.accumulated ?? "";
  expect(cut).toMatch(/^\[\d+ characters of this answer were not saved\.\]\n/);
  expect(answer.endsWith(cut.slice(cut.indexOf("\n") + 1))).toBe(true);
  expect(problems).toEqual([]);
});

describe("a clear that IndexedDB does not take", () => {
  /** From now on its writes fail, as those of a full disk do. */
  async function refuseWrites(browser: Browser) {
    const database = await new Promise<IDBDatabase>((resolve) => {
      const request = browser.factory.open("piton_run", 1);
      request.onsuccess = () => resolve(request.result);
    });
    const prototype = Object.getPrototypeOf(database.transaction("checkpoints").objectStore("checkpoints")) as IDBObjectStore;
    database.close();
    return vi.spyOn(prototype, "put").mockImplementation(function (this: IDBObjectStore) {
      const request = this.get("");
      this.transaction.abort();
      return request;
    });
  }

  test("leaves its note, so that the older checkpoint is not offered; the next load finishes it", async () => {
    const browser = new Browser();
    await browser.storage().save(checkpoint({ writeSeq: 4 }));
    const refused = await refuseWrites(browser);
    await browser.storage().clear("chat", 5);
    expect(browser.local.getItem("run_checkpoint_chat")).toContain('"cleared":true');
    expect((await browser.storage().load("chat")).checkpoint).toBeNull();
    refused.mockRestore();
    expect((await browser.storage().load("chat")).checkpoint).toBeNull();
    expect(browser.local.getItem("run_checkpoint_chat")).toBeNull();
    expect(await browser.storage().load("chat")).toMatchObject({ checkpoint: null, writeSeq: 5 });
  });

  test("at the end of a run: it is not offered again", async () => {
    const browser = new Browser();
    const messages: RunMessage[] = [];
    const conversation = { load: () => messages, save: (all: RunMessage[]) => void messages.splice(0, messages.length, ...all) };
    let refused: { mockRestore(): void } | undefined;
    const { run } = testRun(browser, (_, round) => (round === 1 ? [call("write", {})] : [say("Done.")]), {
      conversation,
      tools: {
        write: {
          description: "", kind: "change",
          run: async () => {
            refused = await refuseWrites(browser);
          },
        },
      },
    });
    expect(await run.send("go")).toBe("completed");
    refused?.mockRestore();
    expect((await testRun(browser, () => [], { conversation }).run.open()).status).toBe("none");
  });
});
