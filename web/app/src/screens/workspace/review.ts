// What a session has changed: commits of its branch, staged and unstaged changes, and new files, as one diff.
import type { GitStatus } from "piton-client";
import { isPitonError } from "piton-client";
import { api } from "../../data/actions.ts";
import { diffTexts, type FileDiff, parseGitDiff } from "../../lib/lines.ts";

const NEW_FILES_MAX = 100;
const NEW_FILE_BYTES_MAX = 256 * 1024;

export type Review = { files: FileDiff[]; isCut: boolean };

export function untrackedOf(status: GitStatus): string[] {
  return status.changed.filter((change) => change.status.trim() === "??" || change.status === "untracked").map((change) => change.path);
}

/** Everything that the branch adds to its base, whether it is committed, staged, changed or new. */
export async function readReview(id: string, status?: GitStatus): Promise<Review> {
  const own = api(id);
  const known = status ?? (await own.gitStatus());
  if (!known.repository) return { files: [], isCut: false };
  const [diff, untracked] = await Promise.all([readBranchDiff(id), readNew(id, untrackedOf(known))]);
  return { files: [...diff.files, ...untracked.files], isCut: diff.isCut || untracked.isCut };
}

async function readBranchDiff(id: string): Promise<Review> {
  const own = api(id);
  try {
    const { diff, truncated } = await own.branchDiff();
    return { files: parseGitDiff(diff), isCut: truncated };
  } catch (error) {
    // A folder that the server itself cannot read, e.g. in a container: what is not committed is known all the same.
    if (!isPitonError(error)) throw error;
    const [unstaged, staged] = await Promise.all([own.gitDiff({}), own.gitDiff({ staged: true })]);
    return { files: [...parseGitDiff(staged.diff), ...parseGitDiff(unstaged.diff)], isCut: unstaged.truncated || staged.truncated };
  }
}

/** Files that git does not know yet, with their content. */
export async function readNew(id: string, paths: readonly string[]): Promise<Review> {
  const files = await Promise.all(paths.slice(0, NEW_FILES_MAX).map((path) => readNewFile(id, path)));
  return { files, isCut: paths.length > NEW_FILES_MAX };
}

async function readNewFile(id: string, path: string): Promise<FileDiff> {
  const empty = (note: string): FileDiff => ({ path, oldPath: null, hunks: [], added: 0, removed: 0, note });
  try {
    const blob = await api(id).readFile(path);
    if (blob.size > NEW_FILE_BYTES_MAX) return empty(`New file of ${blob.size} bytes; see Files`);
    const bytes = new Uint8Array(await blob.arrayBuffer());
    if (bytes.subarray(0, 8_000).includes(0)) return empty("New binary file");
    return diffTexts(path, null, new TextDecoder().decode(bytes));
  } catch {
    // Removed meanwhile, a folder, or a link out of the workspace.
    return empty("New; its content cannot be read");
  }
}

export function sum(files: readonly FileDiff[], what: "added" | "removed"): number {
  return files.reduce((total, file) => total + file[what], 0);
}
