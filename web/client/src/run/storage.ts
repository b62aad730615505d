/**
 * Where checkpoints are kept: localStorage, because it can be written while a page is being hidden, and
 * IndexedDB with strict durability behind it, because what localStorage was given in the last second is
 * lost when the browser is killed. The newer valid copy counts.
 */
import { checkpointKey, isMessage, parseCheckpoint, type Parsed, type Tombstone } from "./checkpoint.js";
import { Database } from "./database.js";
import { errorOf } from "./detect.js";
import { pause } from "./limit.js";
import { CHECKPOINT_VERSION, type Clock, codeOf, messageOf, RunError, type RunCheckpoint, type RunMessage, systemClock } from "./types.js";

export type StorageProblem =
  | "local_storage_unavailable"
  | "local_storage_full"
  | "indexed_db_unavailable"
  | "indexed_db_failed"
  | "checkpoint_damaged"
  | "checkpoint_newer"
  | "conversation_damaged";

export interface Loaded {
  checkpoint: RunCheckpoint | null;
  /** What was found beside it, or instead of it. */
  problems: StorageProblem[];
  /** The highest position that was seen; the next write gets a higher one. */
  writeSeq: number;
}

/** Who may write: checked in the transaction that writes. */
export interface Fence {
  owner: string;
}

export interface Lease {
  /** Of one page, for one run: it is never used again. */
  owner: string;
}

export interface RunStorage {
  /** Damaged copies are set aside; with `forWriting` those of a newer version as well, before they are overwritten. */
  load(chatId: string, forWriting?: "forWriting"): Promise<Loaded>;
  /**
   * Writes to localStorage before it returns; the promise is fulfilled when the checkpoint is on the disk.
   * It is rejected with `lock_lost` when another tab owns the run, and with `storage_failed` when no
   * store took it.
   */
  save(checkpoint: RunCheckpoint, fence?: Fence): Promise<void>;
  /**
   * The run is over, and so is every checkpoint up to this position; a later one stays. Rejected with `lock_lost`
   * when another tab owns the run.
   */
  clear(chatId: string, writeSeq: number, fence?: Fence): Promise<void>;
  /** Reads and replaces the lease of a chat; two tabs cannot do it at the same time. */
  updateLease(chatId: string, update: (lease: Lease | null) => Lease | null): Promise<Lease | null>;
  loadConversation(chatId: string): Promise<RunMessage[]>;
  saveConversation(chatId: string, messages: RunMessage[]): Promise<void>;
  /** Says when a store cannot be used; each problem once until it is gone. */
  onProblem(listener: (problem: StorageProblem, detail: string) => void): () => void;
}

export interface BrowserStorageOptions {
  /** `null` does without it. */
  localStorage?: Storage | null;
  /** `null` does without it. */
  indexedDB?: IDBFactory | null;
  databaseName?: string;
  clock?: Clock;
}

type Saved = Extract<Parsed, { kind: "checkpoint" | "cleared" }>;

/** Of a longer answer localStorage, which has 5 MB for the whole site, gets the end; IndexedDB has all of it. */
const LOCAL_ANSWER_CHARS = 128 * 1024;
/** A clear is remembered for so long; a checkpoint that it must outrank is stale long before. */
const TOMBSTONE_MS = 24 * 60 * 60 * 1000;

export function browserStorage(options: BrowserStorageOptions = {}): RunStorage {
  return new BrowserStorage(options);
}

class BrowserStorage implements RunStorage {
  readonly #local: Storage | null;
  readonly #clock: Clock;
  readonly #database: Database;
  readonly #listeners = new Set<(problem: StorageProblem, detail: string) => void>();
  readonly #reported = new Set<StorageProblem>();

  constructor(options: BrowserStorageOptions) {
    this.#clock = options.clock ?? systemClock;
    this.#local = options.localStorage === undefined ? globalLocalStorage() : options.localStorage;
    const factory = options.indexedDB === undefined ? (globalThis.indexedDB ?? null) : options.indexedDB;
    this.#database = new Database(factory, options.databaseName ?? "piton_run", this.#clock, (why) =>
      why === null ? this.#reported.delete("indexed_db_unavailable") : this.#report("indexed_db_unavailable", why),
    );
    if (!this.#local) this.#report("local_storage_unavailable");
    if (!factory) this.#report("indexed_db_unavailable");
  }

  async load(chatId: string, forWriting?: "forWriting"): Promise<Loaded> {
    const problems: StorageProblem[] = [];
    const fromLocal = this.#readLocal(chatId);
    const fromDatabase = await this.#readDatabase(chatId, problems);
    const found: Saved[] = [];
    for (const [raw, setAside] of [
      [fromLocal, (text: string) => this.#setLocalAside(checkpointKey(chatId), text)],
      [fromDatabase, (text: string) => this.#moveAside("checkpoints", chatId, text)],
    ] as const) {
      if (raw === null || raw === undefined) continue;
      const parsed = parseCheckpoint(raw, chatId);
      if (parsed.kind === "damaged") {
        problems.push("checkpoint_damaged");
        await setAside(String(raw));
        this.#report("checkpoint_damaged", parsed.why);
      } else if (parsed.kind === "newer") {
        problems.push("checkpoint_newer");
        if (forWriting) await setAside(String(raw));
      } else found.push(parsed);
    }
    // A clear outranks a checkpoint of the same position: it was written behind it.
    found.sort((a, b) => positionOf(b) - positionOf(a) || (a.kind === "cleared" ? -1 : 1));
    const newest = found[0];
    // A clear that the database did not take is finished.
    if (fromLocal && newest?.kind === "cleared") await this.clear(chatId, positionOf(newest)).catch(() => undefined);
    return {
      checkpoint: newest?.kind === "checkpoint" ? withWholeAnswer(newest.checkpoint, found[1]) : null,
      problems,
      writeSeq: newest ? positionOf(newest) : 0,
    };
  }

  async save(checkpoint: RunCheckpoint, fence?: Fence): Promise<void> {
    const { chatId } = checkpoint;
    const text = JSON.stringify(checkpoint);
    const from = checkpoint.accumulated.length - LOCAL_ANSWER_CHARS;
    const isCut = from > 0 && this.#database.current !== null && !this.#reported.has("indexed_db_failed");
    await this.#write(chatId, text, isCut ? JSON.stringify(cutAnswer(checkpoint, from)) : text, fence);
  }

  async clear(chatId: string, writeSeq: number, fence?: Fence): Promise<void> {
    const before = this.#readLocal(chatId);
    if (positionOf(parseCheckpoint(before, chatId)) > writeSeq) return;
    const tombstone: Tombstone = {
      version: CHECKPOINT_VERSION,
      chatId,
      cleared: true,
      writeSeq,
      savedAt: this.#clock.now(),
    };
    const text = JSON.stringify(tombstone);
    // First a note in both, then the removal: killed between any two steps, no older copy counts again. A database
    // that does not take the note may give its older copy later, so the other one stays.
    let isSettled = !this.#database.factory;
    try {
      if (await this.#write(chatId, text, text, fence, writeSeq)) isSettled = true;
    } catch (error) {
      // Where there is no database, the removal is enough.
      if (!isSettled || codeOf(error) === "lock_lost") throw error;
    }
    // Unless the next run has written already.
    const left = this.#readLocal(chatId);
    if (isSettled && (left === text || left === before)) this.#removeLocal(checkpointKey(chatId));
  }

  async updateLease(chatId: string, update: (lease: Lease | null) => Lease | null): Promise<Lease | null> {
    if (!(await this.#database.open())) return this.#updateLocalLease(chatId, update);
    return this.#database.transaction(["leases"], "readwrite", (transaction, done) => {
      const store = transaction.objectStore("leases");
      const reading = store.get(chatId);
      reading.onsuccess = () => {
        const next = update((reading.result as Lease | undefined) ?? null);
        if (next) store.put(next, chatId);
        else store.delete(chatId);
        // A copy that can be read without waiting; the database decides.
        this.#writeLocalLease(chatId, next);
        done(next);
      };
    });
  }

  async loadConversation(chatId: string): Promise<RunMessage[]> {
    const hasDatabase = await this.#hasConversations();
    const raw = hasDatabase ? await this.#database.get("conversations", chatId) : this.#getLocal(conversationKey(chatId));
    const messages = parseMessages(raw);
    if (messages) return messages;
    // Kept under another key, so that nothing is lost and the chat can continue.
    this.#report("conversation_damaged", chatId);
    if (hasDatabase) await this.#moveAside("conversations", chatId, String(raw));
    else this.#setLocalAside(conversationKey(chatId), String(raw));
    return [];
  }

  async saveConversation(chatId: string, messages: RunMessage[]): Promise<void> {
    const text = JSON.stringify(messages);
    if (await this.#hasConversations()) {
      await this.#database.transaction<void>(["conversations"], "readwrite", (transaction) => {
        transaction.objectStore("conversations").put(text, chatId);
      });
    } else if (!this.#writeLocal(conversationKey(chatId), text)) {
      throw new RunError("storage_failed", "No store took the conversation");
    }
  }

  onProblem(listener: (problem: StorageProblem, detail: string) => void): () => void {
    this.#listeners.add(listener);
    for (const problem of this.#reported) listener(problem, "");
    return () => this.#listeners.delete(listener);
  }

  /**
   * Whether the database has it, too. With `writeSeq` only in the place of what is not later. The database is written
   * to at once if it is open, so that a page that is being frozen still hands it over.
   */
  async #write(chatId: string, text: string, localText: string, fence?: Fence, writeSeq?: number): Promise<boolean> {
    // Looked at before anything is written: a tab that slept through its lease must not leave a newer copy behind.
    // With a database this copy of the lease may be missing, and the database decides.
    const lease = fence && this.#readLocalLease(chatId);
    if (fence && (lease || !this.#database.exists) && lease?.owner !== fence.owner) throw lockLost();
    const isInLocal = this.#writeLocal(checkpointKey(chatId), localText);
    try {
      await this.#database.transaction<void>(["checkpoints", "leases"], "readwrite", (transaction, _, fail) => {
        const checkpoints = transaction.objectStore("checkpoints");
        const put = () => {
          if (writeSeq === undefined) return void checkpoints.put(text, chatId);
          const reading = checkpoints.get(chatId);
          reading.onsuccess = () => {
            if (positionOf(parseCheckpoint(reading.result, chatId)) <= writeSeq) checkpoints.put(text, chatId);
          };
        };
        if (!fence) return put();
        const reading = transaction.objectStore("leases").get(chatId);
        reading.onsuccess = () => {
          const held = reading.result as Lease | undefined;
          if (held?.owner === fence.owner) put();
          else fail(lockLost());
        };
      });
      this.#reported.delete("indexed_db_failed");
      return true;
    } catch (error) {
      if (codeOf(error) === "lock_lost") {
        if (this.#readLocal(chatId) === localText) this.#removeLocal(checkpointKey(chatId));
        throw error;
      }
      if (this.#database.factory) this.#report("indexed_db_failed", messageOf(error));
      if (!isInLocal) throw new RunError("storage_failed", `No store took the checkpoint: ${messageOf(error)}`, { cause: error });
      return false;
    }
  }

  async #readDatabase(chatId: string, problems: StorageProblem[]): Promise<unknown> {
    if (!(await this.#database.open())) {
      if (this.#database.exists) problems.push("indexed_db_failed");
      return null;
    }
    try {
      void this.#pruneTombstones();
      return await this.#database.get("checkpoints", chatId);
    } catch (error) {
      problems.push("indexed_db_failed");
      this.#report("indexed_db_failed", messageOf(error));
      return null;
    }
  }

  async #pruneTombstones(): Promise<void> {
    const oldest = this.#clock.now() - TOMBSTONE_MS;
    await this.#database.transaction<void>(["checkpoints"], "readwrite", (transaction) => {
      const cursor = transaction.objectStore("checkpoints").openCursor();
      cursor.onsuccess = () => {
        const at = cursor.result;
        if (!at) return;
        const parsed = parseCheckpoint(at.value, String(at.key));
        if (parsed.kind === "cleared" && parsed.tombstone.savedAt < oldest) at.delete();
        at.continue();
      };
    }).catch(() => undefined);
  }

  /** A conversation is in one store: where the database has it, localStorage is no second place for it. */
  async #hasConversations(): Promise<boolean> {
    if (await this.#database.open()) return true;
    if (this.#database.exists) throw errorOf("storage_unavailable");
    return false;
  }

  #getLocal(key: string): string | null {
    try {
      return this.#local?.getItem(key) ?? null;
    } catch (error) {
      this.#report("local_storage_unavailable", messageOf(error));
      return null;
    }
  }

  #readLocal(chatId: string): string | null {
    return this.#getLocal(checkpointKey(chatId));
  }

  #writeLocal(key: string, text: string): boolean {
    if (!this.#local) return false;
    try {
      this.#local.setItem(key, text);
      this.#reported.delete("local_storage_full");
      return true;
    } catch (error) {
      // What is there stays: an older copy is better than none, and never counts as the newest.
      this.#report(/quota/i.test(String(error)) ? "local_storage_full" : "local_storage_unavailable", messageOf(error));
      return false;
    }
  }

  #removeLocal(key: string): void {
    try {
      this.#local?.removeItem(key);
    } catch {
      // A store that cannot be written has nothing of ours that is newer than the database's copy.
    }
  }

  #setLocalAside(key: string, text: string): void {
    this.#removeLocal(key);
    this.#writeLocal(`${key}.aside`, text);
  }

  async #moveAside(name: string, chatId: string, text: string): Promise<void> {
    if (!(await this.#database.open())) return;
    await this.#database.transaction<void>([name], "readwrite", (transaction) => {
      const store = transaction.objectStore(name);
      store.put(text, `${chatId}.aside`);
      store.delete(chatId);
    });
  }

  /** Without IndexedDB: written, and read again after a moment in which another tab may have written. */
  async #updateLocalLease(chatId: string, update: (lease: Lease | null) => Lease | null): Promise<Lease | null> {
    // Without any store two tabs could not know of each other.
    if (!this.#writeLocalLease(chatId, update(this.#readLocalLease(chatId)))) throw errorOf("storage_unavailable");
    await pause(this.#clock, 100 + Math.random() * 100);
    return this.#readLocalLease(chatId);
  }

  #writeLocalLease(chatId: string, lease: Lease | null): boolean {
    const isWritten = lease !== null && this.#writeLocal(leaseKey(chatId), JSON.stringify(lease));
    // An older lease would shut its new owner out.
    if (!isWritten) this.#removeLocal(leaseKey(chatId));
    return isWritten || !lease;
  }

  #readLocalLease(chatId: string): Lease | null {
    try {
      return JSON.parse(this.#getLocal(leaseKey(chatId)) ?? "null") as Lease | null;
    } catch {
      return null;
    }
  }

  #report(problem: StorageProblem, detail = ""): void {
    if (this.#reported.has(problem)) return;
    this.#reported.add(problem);
    for (const listener of this.#listeners) listener(problem, detail);
  }
}

function globalLocalStorage(): Storage | null {
  try {
    return globalThis.localStorage ?? null;
  } catch {
    return null;
  }
}

function cutAnswer(checkpoint: RunCheckpoint, accumulatedFrom: number): RunCheckpoint {
  const accumulated = checkpoint.accumulated.slice(accumulatedFrom);
  return { ...checkpoint, accumulated, accumulatedFrom, thinkingAccumulated: checkpoint.thinkingAccumulated.slice(-LOCAL_ANSWER_CHARS) };
}

/** The end of an answer, behind what the other copy has of its beginning. */
function withWholeAnswer(checkpoint: RunCheckpoint, other: Parsed | undefined): RunCheckpoint {
  const { accumulatedFrom: from, ...rest } = checkpoint;
  if (!from) return checkpoint;
  const isBegun = other?.kind === "checkpoint" && other.checkpoint.runId === rest.runId && other.checkpoint.round === rest.round;
  const older = isBegun ? other.checkpoint.accumulated : "";
  const begin = older.length < from ? `[${from} characters of this answer were not saved.]\n` : older.slice(0, from);
  return { ...rest, accumulated: begin + rest.accumulated };
}

/** Null: damaged. */
function parseMessages(raw: unknown): RunMessage[] | null {
  if (raw === undefined || raw === null) return [];
  try {
    const messages: unknown = JSON.parse(String(raw));
    return Array.isArray(messages) && messages.every(isMessage) ? (messages as RunMessage[]) : null;
  } catch {
    return null;
  }
}

/** Where a copy stands among the others; what cannot be read stands nowhere. */
function positionOf(parsed: Parsed): number {
  if (parsed.kind === "checkpoint") return parsed.checkpoint.writeSeq;
  return parsed.kind === "cleared" ? parsed.tombstone.writeSeq : -1;
}

function leaseKey(chatId: string): string {
  return `run_lease_${chatId}`;
}

function conversationKey(chatId: string): string {
  return `run_conversation_${chatId}`;
}

export function lockLost(): RunError {
  return new RunError("lock_lost", "Another tab has taken the run over.");
}
