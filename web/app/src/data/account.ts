// Who uses this browser: the access token, kept in storage of this origin and nowhere else.
import { signal } from "@preact/signals";
import { PitonClient, ProblemError } from "piton-client";
import { load, save } from "../lib/storage.ts";
import { toSignal } from "./observe.ts";

const TOKEN_KEY = "piton.token";

export const client = new PitonClient({ token: load(TOKEN_KEY) });

export const token = toSignal(client.token);
/** Why the server does not accept the token any more. */
export const signedOutBy = toSignal(client.signedOut);
export const signInError = signal<string | null>(null);

/** Another tab signed in or out. */
addEventListener("storage", (event) => {
  if (event.key === TOKEN_KEY && event.newValue !== client.token.value) client.setToken(event.newValue);
});

export function setToken(value: string | null): void {
  save(TOKEN_KEY, value);
  client.setToken(value);
}

/** The secret of a sign-in link is behind the `#`; it works once and must not stay in the history. */
export async function signInByLink(): Promise<void> {
  const link = new URLSearchParams(location.hash.slice(1)).get("link");
  if (!link) return;
  history.replaceState(null, "", `${location.pathname}#/`);
  await signIn(link);
}

/** With a link's secret, or an access token as `piton tokens new` prints it. */
export async function signIn(secret: string): Promise<void> {
  const given = secret.trim().replace(/^.*#link=/, "");
  signInError.value = null;
  try {
    const issued = await client.signIn(given);
    save(TOKEN_KEY, issued.token);
  } catch (error) {
    if (!(error instanceof ProblemError)) {
      signInError.value = "The server cannot be reached. Check that it runs, then try again.";
      return;
    }
    if (!(await tryToken(given))) signInError.value = `${error.message}. Make a new link with \`piton open\`.`;
  }
}

/** The secret may be an access token itself. */
async function tryToken(given: string): Promise<boolean> {
  const before = client.token.value;
  client.setToken(given);
  try {
    await client.call("get", "/api/v1/sessions", { query: { limit: 1 } });
    save(TOKEN_KEY, given);
    return true;
  } catch {
    client.setToken(before);
    return false;
  }
}

export function signOut(): void {
  setToken(null);
}
