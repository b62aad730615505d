/** The IndexedDB behind the run's storage: opened when it is first needed, and again when it was closed. */
import { errorOf } from "./detect.js";
import { within } from "./limit.js";
import { type Clock, messageOf } from "./types.js";

const OPEN_TIMEOUT_MS = 3_000;
const STORES = ["checkpoints", "leases", "conversations"];

export class Database {
  /** Set while it is open. */
  current: IDBDatabase | null = null;
  /** There is one, even if it cannot be opened now. */
  exists = false;
  readonly factory: IDBFactory | null;
  readonly #name: string;
  readonly #clock: Clock;
  /** Why it cannot be opened; `null` when it is open. */
  readonly #onProblem: (why: string | null) => void;
  #opening: Promise<IDBDatabase | null> | null = null;

  constructor(factory: IDBFactory | null, name: string, clock: Clock, onProblem: (why: string | null) => void) {
    this.factory = factory;
    this.#name = name;
    this.#clock = clock;
    this.#onProblem = onProblem;
  }

  open(): Promise<IDBDatabase | null> {
    if (this.current) return Promise.resolve(this.current);
    this.#opening ??= this.#openOnce().finally(() => {
      this.#opening = null;
    });
    return this.#opening;
  }

  get(store: string, key: string): Promise<unknown> {
    return this.transaction([store], "readonly", (transaction, done) => {
      const reading = transaction.objectStore(store).get(key);
      reading.onsuccess = () => done(reading.result);
    });
  }

  /** Begun before it returns if the database is open. Fulfilled, with what `done` was given, when it is on the disk. */
  transaction<T>(
    stores: string[],
    mode: IDBTransactionMode,
    run: (transaction: IDBTransaction, done: (result: T) => void, fail: (error: Error) => void) => void,
  ): Promise<T> {
    const begin = (database: IDBDatabase) =>
      new Promise<T>((resolve, reject) => {
        let result: T;
        let failure: Error | null = null;
        const transaction = database.transaction(stores, mode, { durability: "strict" });
        transaction.oncomplete = () => resolve(result);
        transaction.onabort = () => reject(failure ?? transaction.error);
        run(
          transaction,
          (value) => {
            result = value;
          },
          (error) => {
            failure = error;
            transaction.abort();
          },
        );
      });
    if (this.current) return begin(this.current);
    return this.open().then((database) => {
      if (database) return begin(database);
      throw errorOf("storage_unavailable");
    });
  }

  async #openOnce(): Promise<IDBDatabase | null> {
    const { factory } = this;
    if (!factory) return null;
    const opened = () =>
      new Promise<IDBDatabase>((resolve, reject) => {
        const request = factory.open(this.#name, 1);
        request.onupgradeneeded = () => {
          for (const store of STORES) request.result.createObjectStore(store);
        };
        request.onerror = () => reject(request.error);
        // Also when it comes late.
        request.onsuccess = () => {
          const database = request.result;
          const forget = () => {
            database.close();
            if (this.current === database) this.current = null;
          };
          database.onversionchange = forget;
          database.onclose = forget;
          this.current = database;
          this.exists = true;
          this.#onProblem(null);
          resolve(database);
        };
      });
    const late = () => {
      this.exists = true;
      return new Error("It did not open in time");
    };
    try {
      return await within(this.#clock, OPEN_TIMEOUT_MS, opened, { late });
    } catch (error) {
      // Of a newer version of this package: there, but not readable.
      this.exists ||= (error as Error | null)?.name === "VersionError";
      this.#onProblem(messageOf(error));
      return null;
    }
  }
}
