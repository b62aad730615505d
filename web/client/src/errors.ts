/** What can go wrong with a request, as classes that can be told apart. */
import type { Code, Problem } from "./types.js";

/** The server refused: an RFC 9457 problem document with one of Piton's codes. */
export class ProblemError extends Error {
  override readonly name = "ProblemError";
  readonly problem: Problem;
  /** When to try again, in milliseconds, if the server says so. */
  readonly retryAfterMs: number | null;

  constructor(problem: Problem, retryAfterMs: number | null = null) {
    super(problem.detail ? `${problem.title}: ${problem.detail}` : problem.title);
    this.problem = problem;
    this.retryAfterMs = retryAfterMs;
  }

  get code(): Code {
    return this.problem.code;
  }

  get status(): number {
    return this.problem.status;
  }

  /** What to do about it, for people. */
  get hint(): string {
    return this.problem.hint;
  }

  /** The token is missing, wrong, expired or revoked: sign in again. */
  get isSignedOut(): boolean {
    return this.problem.status === 401;
  }

  /** Whether the same request may succeed later without a change. */
  get isTemporary(): boolean {
    return [408, 429, 502, 503, 504].includes(this.problem.status);
  }
}

/** The server could not be reached, or the connection broke. Nothing is known about the request. */
export class ConnectionError extends Error {
  override readonly name = "ConnectionError";

  constructor(message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
  }
}

export type PitonError = ProblemError | ConnectionError;

export function isPitonError(error: unknown): error is PitonError {
  return error instanceof ProblemError || error instanceof ConnectionError;
}

/** Whether the error has one of these codes. */
export function hasCode(error: unknown, ...codes: Code[]): boolean {
  return error instanceof ProblemError && codes.includes(error.code);
}

/** A response that is no problem document, e.g. of a proxy. */
export async function problemOf(response: Response): Promise<ProblemError> {
  const retry = Number(response.headers.get("retry-after"));
  const retryAfterMs = Number.isFinite(retry) && retry > 0 ? retry * 1000 : null;
  let body: unknown;
  try {
    body = await response.json();
  } catch {
    body = null;
  }
  if (isProblem(body)) return new ProblemError(body, retryAfterMs);
  const code = (response.status === 401 ? "unauthenticated" : "server_unreachable") as Code;
  const title = `The server answered with status ${response.status}`;
  const hint = "Check that the address is Piton's and that no proxy is in the way.";
  return new ProblemError({ type: `urn:piton:error:${code}`, title, status: response.status, code, hint }, retryAfterMs);
}

function isProblem(value: unknown): value is Problem {
  const problem = value as Partial<Problem> | null;
  return typeof problem === "object" && problem !== null && typeof problem.code === "string" && typeof problem.title === "string";
}
