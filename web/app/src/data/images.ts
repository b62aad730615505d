// Images that were attached and not sent: too large for localStorage, so they are in IndexedDB. Without it they are kept
// for the page's life, as everything else that is not stored.
import type { Attachment } from "../screens/session/Attachments.tsx";

const STORE = "images";
const memory = new Map<string, readonly Attachment[]>();

function open(): Promise<IDBDatabase> {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open("piton.drafts", 1);
    request.onupgradeneeded = () => request.result.createObjectStore(STORE);
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error ?? new Error("IndexedDB cannot be opened"));
  });
}

async function within<T>(mode: IDBTransactionMode, act: (store: IDBObjectStore) => IDBRequest<T>): Promise<T | null> {
  try {
    const database = await open();
    try {
      return await new Promise<T>((resolve, reject) => {
        const request = act(database.transaction(STORE, mode).objectStore(STORE));
        request.onsuccess = () => resolve(request.result);
        request.onerror = () => reject(request.error ?? new Error("IndexedDB failed"));
      });
    } finally {
      database.close();
    }
  } catch {
    // Off, full, or private.
    return null;
  }
}

export async function loadImages(session: string): Promise<readonly Attachment[]> {
  const stored = await within<unknown>("readonly", (store) => store.get(session));
  return Array.isArray(stored) ? (stored as Attachment[]) : (memory.get(session) ?? []);
}

export async function saveImages(session: string, images: readonly Attachment[]): Promise<void> {
  if (images.length === 0) memory.delete(session);
  else memory.set(session, images);
  await within<unknown>("readwrite", (store) => (images.length === 0 ? store.delete(session) : store.put([...images], session)) as IDBRequest<unknown>);
}
