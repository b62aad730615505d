/** Requests to a Piton server. */
import { ConnectionError, ProblemError, problemOf } from "./errors.js";
import { type Environment, hostEnvironment } from "./environment.js";
import { Observable, type ReadonlyObservable } from "./observable.js";
import type { AccessScope, BodyOf, Method, PathOf, PathParams, QueryParams, ResponseOf, Schemas } from "./types.js";

/** How long a response may take to begin. */
const RESPONSE_TIMEOUT_MS = 100_000;
/** How often a request whose answer was lost is sent again under its key. */
const RETRIES = 2;
const RETRY_DELAY_MS = 400;

export interface ClientOptions {
  /** Where the server is, e.g. `https://host:7411`; by default the page's own origin. */
  address?: string;
  /** `KEY.SECRET`; can be set later. */
  token?: string | null;
  environment?: Environment;
}

export interface CallOptions<M extends Method, P extends PathOf<M>> {
  path?: PathParams<M, P>;
  query?: QueryParams<M, P>;
  body?: BodyOf<M, P>;
  /** Repeats of the request under the same key are carried out once. Changes get a key by themselves. */
  idempotencyKey?: string;
  signal?: AbortSignal;
}

interface RawRequest {
  method: string;
  path: string;
  body?: BodyInit;
  headers?: Record<string, string>;
  signal?: AbortSignal;
  /** A request that is safe to send again. */
  isRepeatable: boolean;
  /** No time limit for the body: a stream. */
  isStream?: boolean;
}

export class PitonClient {
  readonly address: string;
  readonly environment: Environment;
  readonly #token: Observable<string | null>;
  readonly #signedOut = new Observable<ProblemError | null>(null);

  constructor(options: ClientOptions = {}) {
    const origin = typeof location === "undefined" ? undefined : location.origin;
    const address = options.address ?? origin;
    if (!address) throw new TypeError("PitonClient needs an address: there is no page whose origin it could use");
    this.address = address.replace(/\/+$/, "");
    this.environment = options.environment ?? hostEnvironment();
    this.#token = new Observable(options.token ?? null);
  }

  /** The access token; streams that ended for want of one begin again when it changes. */
  get token(): ReadonlyObservable<string | null> {
    return this.#token;
  }

  /** Why the token is not accepted any more; null while nothing is known against it. */
  get signedOut(): ReadonlyObservable<ProblemError | null> {
    return this.#signedOut;
  }

  setToken(token: string | null): void {
    this.#signedOut.set(null);
    this.#token.set(token);
  }

  newKey(): string {
    return this.environment.randomId();
  }

  /** Calls an operation of the API by its method and path, with the types of the description. */
  async call<M extends Method, P extends PathOf<M>>(method: M, path: P, options: CallOptions<M, P> = {}): Promise<ResponseOf<M, P>> {
    const response = await this.#send(this.#request(method, path, options));
    if (response.status === 204) return undefined as ResponseOf<M, P>;
    const type = response.headers.get("content-type") ?? "";
    try {
      return (type.includes("json") ? await response.json() : await response.text()) as ResponseOf<M, P>;
    } catch (error) {
      if (options.signal?.aborted) throw error;
      throw new ConnectionError("The answer was cut off", error);
    }
  }

  /** The same, with the response as it is: for files and other bytes. */
  async callRaw<M extends Method, P extends PathOf<M>>(method: M, path: P, options: CallOptions<M, P> = {}): Promise<Response> {
    return await this.#send(this.#request(method, path, options));
  }

  /** Opens a stream; its body has no time limit. */
  async stream(path: string, headers: Record<string, string>, signal: AbortSignal): Promise<Response> {
    return await this.#send({ method: "GET", path, headers, signal, isRepeatable: false, isStream: true });
  }

  /** Exchanges the secret of a sign-in link for a token, and uses it from now on. */
  async signIn(link: string): Promise<Schemas["AccessTokenIssued"]> {
    const issued = await this.call("post", "/api/v1/sign-in", { body: { link } });
    this.setToken(issued.token);
    return issued;
  }

  /** Makes a sign-in link for another device; needs the scope `admin`. */
  async createLink(name: string, scopes: AccessScope[], expiresInS?: number): Promise<string> {
    const body = { name, scopes, expires_in_s: expiresInS ?? null };
    const issued = await this.call("post", "/api/v1/links", { body });
    return `${this.address}/#link=${issued.token}`;
  }

  #request<M extends Method, P extends PathOf<M>>(method: M, template: P, options: CallOptions<M, P>): RawRequest {
    const path = fill(template, options.path) + queryString(options.query);
    const headers: Record<string, string> = { accept: "application/json, */*;q=0.5" };
    const request: RawRequest = { method: method.toUpperCase(), path, headers, isRepeatable: method === "get" };
    if (options.signal) request.signal = options.signal;
    if (options.body !== undefined) {
      const body: unknown = options.body;
      const isBytes = body instanceof Uint8Array || body instanceof Blob;
      headers["content-type"] = isBytes ? "application/octet-stream" : "application/json";
      request.body = isBytes ? (body as BodyInit) : JSON.stringify(options.body);
    }
    // One key for all attempts: what was carried out and whose answer was lost is not done twice.
    const takesKey = method === "post" || method === "patch" || options.idempotencyKey !== undefined;
    if (takesKey && template !== "/api/v1/sign-in") {
      headers["idempotency-key"] = options.idempotencyKey ?? this.newKey();
      request.isRepeatable = true;
    }
    return request;
  }

  async #send(request: RawRequest): Promise<Response> {
    for (let attempt = 0; ; attempt += 1) {
      try {
        return await this.#sendOnce(request);
      } catch (error) {
        const isLast = attempt >= RETRIES || !request.isRepeatable || request.signal?.aborted;
        if (!(error instanceof ConnectionError) || isLast) throw error;
        await this.#delay(RETRY_DELAY_MS * (attempt + 1));
      }
    }
  }

  #delay(ms: number): Promise<void> {
    return new Promise((resolve) => void this.environment.setTimeout(resolve, ms));
  }

  async #sendOnce(request: RawRequest): Promise<Response> {
    const abort = new AbortController();
    const onAbort = () => abort.abort(request.signal?.reason);
    if (request.signal?.aborted) onAbort();
    request.signal?.addEventListener("abort", onAbort, { once: true });
    const endTimer = this.environment.setTimeout(() => abort.abort(new ConnectionError("The server did not answer in time")), RESPONSE_TIMEOUT_MS);
    const token = this.#token.value;
    const headers = { ...request.headers, ...(token === null ? {} : { authorization: `Bearer ${token}` }) };
    const init: RequestInit = { method: request.method, headers, signal: abort.signal, cache: "no-store", credentials: "omit", redirect: "error" };
    if (request.body !== undefined) init.body = request.body;
    let response: Response;
    try {
      response = await this.environment.fetch(this.address + request.path, init);
    } catch (error) {
      if (request.signal?.aborted) throw error;
      throw error instanceof ConnectionError ? error : new ConnectionError("The server cannot be reached", error);
    } finally {
      endTimer();
      // A stream is ended by its caller's signal as long as it is read.
      if (!request.isStream) request.signal?.removeEventListener("abort", onAbort);
    }
    if (response.ok) return response;
    const problem = await problemOf(response);
    // An answer to an older token says nothing about the present one.
    if (problem.isSignedOut && this.#token.value === token) this.#signedOut.set(problem);
    throw problem;
  }
}

function fill(template: string, params: unknown): string {
  const values = (params ?? {}) as Record<string, unknown>;
  return template.replace(/\{(\w+)\}/g, (_, name: string) => {
    const value = values[name];
    if (value === undefined || value === null || value === "") throw new TypeError(`${template} needs ${name}`);
    return encodeURIComponent(String(value));
  });
}

function queryString(params: unknown): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries((params ?? {}) as Record<string, unknown>)) {
    if (value !== undefined && value !== null) query.set(name, String(value));
  }
  const text = query.toString();
  return text === "" ? "" : `?${text}`;
}
