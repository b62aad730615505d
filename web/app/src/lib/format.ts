// Times, sizes and counts as people read them.

const MINUTE = 60;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** "3 m 12 s", "2 h 5 m": an elapsed time, in whole seconds. */
export function elapsed(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < MINUTE) return `${whole} s`;
  if (whole < HOUR) return `${Math.floor(whole / MINUTE)} m ${whole % MINUTE} s`;
  if (whole < DAY) return `${Math.floor(whole / HOUR)} h ${Math.floor((whole % HOUR) / MINUTE)} m`;
  return `${Math.floor(whole / DAY)} d`;
}

/** "now", "5 min", "2 h", "3 d": how long ago, for lists. */
export function ago(then: string | number | Date, now: number): string {
  const seconds = (now - new Date(then).getTime()) / 1000;
  if (!Number.isFinite(seconds) || seconds < 45) return "now";
  if (seconds < HOUR) return `${Math.max(1, Math.round(seconds / MINUTE))} min`;
  if (seconds < DAY) return `${Math.round(seconds / HOUR)} h`;
  return `${Math.round(seconds / DAY)} d`;
}

/** "14:02", and with the day if it is another one. */
export function clock(then: string | number | Date, now: number): string {
  const date = new Date(then);
  const time = date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false });
  if (date.toDateString() === new Date(now).toDateString()) return time;
  return `${date.toLocaleDateString([], { day: "numeric", month: "short" })}, ${time}`;
}

export function exact(then: string | number | Date): string {
  return new Date(then).toLocaleString([], { dateStyle: "medium", timeStyle: "medium" });
}

export function bytes(count: number): string {
  if (count < 1000) return `${count} B`;
  const units = ["kB", "MB", "GB", "TB"];
  let value = count;
  let unit = -1;
  do {
    value /= 1000;
    unit += 1;
  } while (value >= 999.5 && unit < units.length - 1);
  return `${value >= 10 ? Math.round(value) : value.toFixed(1)} ${units[unit] ?? "TB"}`;
}

/** "12,345" without depending on the browser's language. */
export function count(value: number): string {
  return value.toLocaleString("en");
}

export function plural(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** The last part of a path: what a folder is called. */
export function folderName(path: string | null | undefined): string {
  if (!path) return "";
  const parts = path.split("/").filter(Boolean);
  return parts[parts.length - 1] ?? "/";
}

/** A path with the middle left out, so that both ends stay readable. */
export function shortPath(path: string, max = 48): string {
  if (path.length <= max) return path;
  const head = Math.floor(max / 3);
  return `${path.slice(0, head)}…${path.slice(path.length - (max - head - 1))}`;
}
