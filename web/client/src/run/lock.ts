/**
 * One owner per run. Web Locks where the browser has them: a tab that crashes frees its lock. Otherwise
 * (plain HTTP has none) a lease in storage, and a question over BroadcastChannel whether its owner lives;
 * an owner that was asleep and lost its lease is refused by the store at its next write.
 */
import { activeKey } from "./checkpoint.js";
import { pause } from "./limit.js";
import type { Fence, RunStorage } from "./storage.js";
import { type Clock, messageOf, newId, RunError, systemClock } from "./types.js";

export interface HeldLock {
  readonly owner: string;
  /** Passed to every write when only the store can tell that the lock was lost. */
  readonly fence?: Fence;
  release(): Promise<void>;
}

/** Who has the run of a chat. Also the reasons with which it is not offered. */
export type LockOwner = "owned_by_this_page" | "owned_by_other_tab";

export interface TabLock {
  /** `null`: it is taken. */
  acquire(chatId: string): Promise<HeldLock | null>;
  /** `null`: no tab has it. */
  ownerOf(chatId: string): Promise<LockOwner | null>;
  /** Waits until no tab has it. */
  whenFree(chatId: string, signal: AbortSignal): Promise<void>;
}

export interface TabLockOptions {
  storage: RunStorage;
  clock?: Clock;
  /** `null` does without Web Locks. */
  locks?: LockManager | null;
  localStorage?: Storage | null;
  /** What this page holds: owners by chat. By default one for all lock objects of the page. */
  heldHere?: Map<string, string>;
}

const HELD_HERE = new Map<string, string>();

/** A page that was just left may hold its lock for a moment. */
const GRACE_ATTEMPTS = 8;
const GRACE_MS = 50;
/** A living owner answers within this time. */
const ANSWER_TIMEOUT_MS = 700;
const POLL_MS = 2_000;

export function tabLock(options: TabLockOptions): TabLock {
  const locks = options.locks === undefined ? globalThis.navigator?.locks : options.locks;
  return locks ? new WebLock(locks, options) : new LeaseLock(options);
}

/**
 * `run_active_…` says to other code of the page that a run is active. Nothing is decided by it: where storage is
 * full or disabled there is none.
 */
function flag(options: TabLockOptions, chatId: string, owner: string | null): void {
  try {
    const local = options.localStorage === undefined ? globalThis.localStorage : options.localStorage;
    const at = (options.clock ?? systemClock).now();
    if (owner) local?.setItem(activeKey(chatId), JSON.stringify({ owner, at }));
    else local?.removeItem(activeKey(chatId));
  } catch {
    // A courtesy.
  }
}

class WebLock implements TabLock {
  readonly #clock: Clock;
  readonly #options: TabLockOptions;
  readonly #mine: Map<string, string>;
  readonly #locks: LockManager;

  constructor(locks: LockManager, options: TabLockOptions) {
    this.#locks = locks;
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#mine = options.heldHere ?? HELD_HERE;
  }

  async acquire(chatId: string): Promise<HeldLock | null> {
    return this.#patiently(() => this.#tryAcquire(chatId), (held) => held !== null);
  }

  /** Attempts are counted, not timed: the clock may be set back meanwhile. */
  async #patiently<T>(attempt: () => Promise<T>, isEnough: (found: T) => boolean): Promise<T> {
    for (let left = GRACE_ATTEMPTS; ; left--) {
      const found = await attempt();
      if (left === 0 || isEnough(found)) return found;
      await pause(this.#clock, GRACE_MS);
    }
  }

  #tryAcquire(chatId: string): Promise<HeldLock | null> {
    if (this.#mine.has(chatId)) return Promise.resolve(null);
    return new Promise((resolve, reject) => {
      const ended = this.#locks.request(activeKey(chatId), { ifAvailable: true }, (lock) => {
        if (!lock) {
          resolve(null);
          return undefined;
        }
        const owner = newId();
        this.#mine.set(chatId, owner);
        flag(this.#options, chatId, owner);
        return new Promise<void>((free) => {
          const release = async () => {
            flag(this.#options, chatId, null);
            free();
            await ended;
            this.#mine.delete(chatId);
          };
          resolve({ owner, release });
        });
      });
      // Denied where the site may store nothing.
      ended.catch((error: unknown) => reject(new RunError("storage_unavailable", messageOf(error), { cause: error })));
    });
  }

  ownerOf(chatId: string): Promise<LockOwner | null> {
    return this.#patiently(async () => {
      const { held = [] } = await this.#locks.query();
      if (!held.some((lock) => lock.name === activeKey(chatId))) return null;
      return this.#mine.has(chatId) ? "owned_by_this_page" : "owned_by_other_tab";
    }, (owner) => owner !== "owned_by_other_tab");
  }

  async whenFree(chatId: string, signal: AbortSignal): Promise<void> {
    await this.#locks.request(activeKey(chatId), { mode: "shared", signal }, () => undefined);
  }
}

class LeaseLock implements TabLock {
  readonly #clock: Clock;
  readonly #options: TabLockOptions;
  readonly #storage: RunStorage;
  readonly #mine: Map<string, string>;

  constructor(options: TabLockOptions) {
    this.#clock = options.clock ?? systemClock;
    this.#options = options;
    this.#storage = options.storage;
    this.#mine = options.heldHere ?? HELD_HERE;
  }

  async acquire(chatId: string): Promise<HeldLock | null> {
    if (this.#mine.has(chatId)) return null;
    const seen = await this.#storage.updateLease(chatId, (lease) => lease);
    if (seen && (await this.#isAlive(chatId, seen.owner))) return null;
    const owner = newId();
    const taken = await this.#storage.updateLease(chatId, (lease) =>
      lease?.owner === seen?.owner ? { owner } : lease,
    );
    if (taken?.owner !== owner) return null;
    this.#mine.set(chatId, owner);
    flag(this.#options, chatId, owner);
    const stopAnswering = this.#answer(chatId, owner);
    const release = async () => {
      stopAnswering();
      this.#mine.delete(chatId);
      flag(this.#options, chatId, null);
      await this.#storage.updateLease(chatId, (lease) => (lease?.owner === owner ? null : lease));
    };
    return { owner, fence: { owner }, release };
  }

  async ownerOf(chatId: string): Promise<LockOwner | null> {
    const lease = await this.#storage.updateLease(chatId, (seen) => seen);
    if (!lease) return null;
    if (this.#mine.get(chatId) === lease.owner) return "owned_by_this_page";
    return (await this.#isAlive(chatId, lease.owner)) ? "owned_by_other_tab" : null;
  }

  async whenFree(chatId: string, signal: AbortSignal): Promise<void> {
    while (!signal.aborted && (await this.ownerOf(chatId))) await pause(this.#clock, POLL_MS);
    signal.throwIfAborted();
  }

  #answer(chatId: string, owner: string): () => void {
    const channel = new BroadcastChannel(activeKey(chatId));
    channel.onmessage = (event: MessageEvent<{ ask?: string }>) => {
      if (event.data?.ask === owner) channel.postMessage({ alive: owner });
    };
    return () => channel.close();
  }

  #isAlive(chatId: string, owner: string): Promise<boolean> {
    const channel = new BroadcastChannel(activeKey(chatId));
    return new Promise((resolve) => {
      const finish = (alive: boolean) => {
        this.#clock.clearTimeout(timer);
        channel.close();
        resolve(alive);
      };
      const timer = this.#clock.setTimeout(() => finish(false), ANSWER_TIMEOUT_MS);
      channel.onmessage = (event: MessageEvent<{ alive?: string }>) => {
        if (event.data?.alive === owner) finish(true);
      };
      channel.postMessage({ ask: owner });
    });
  }
}
