// Storage of this origin. It may be full, switched off, or cleared: everything works without it, for this page's life.
const memory = new Map<string, string>();

export function load(key: string): string | null {
  try {
    return localStorage.getItem(key) ?? memory.get(key) ?? null;
  } catch {
    return memory.get(key) ?? null;
  }
}

/** False: it is kept in memory only, and gone after a reload. */
export function save(key: string, value: string | null): boolean {
  if (value === null) memory.delete(key);
  else memory.set(key, value);
  try {
    if (value === null) localStorage.removeItem(key);
    else localStorage.setItem(key, value);
    return true;
  } catch {
    return false;
  }
}

export function isStorageUsable(): boolean {
  try {
    localStorage.setItem("piton.probe", "1");
    localStorage.removeItem("piton.probe");
    return true;
  } catch {
    return false;
  }
}
