// What an app writes: compiled against the packed package, from outside, as bundlers and as Node resolve it.
import { PitonClient, type Schemas, SessionStore } from "piton-client";
import { createRun, detectInterruptedRun, type Run, RunError, type RunState, tabLock, browserStorage } from "piton-client/run";
import { defineResumeBanner, type ResumeBannerElement } from "piton-client/run/banner";
import { gitTruth } from "piton-client/run/git";
import { instrument } from "piton-client/run/instrument";
import { openAiStream } from "piton-client/run/openai";
import { type JoinedJob, joinJob, pitonSandbox } from "piton-client/run/piton";
import { type ResumableRun, useResumableRun } from "piton-client/run/react";

const sandbox = { identity: () => ({ sandboxSessionId: "s", activeBranch: null, repoId: null }), truth: gitTruth(async () => "") };
const options = { chatId: "chat", provider: "p", model: "m", sandbox, stream: openAiStream({ baseUrl: "/v1" }) };
export const run: Run = createRun({
  ...options,
  tools: { read: { description: "Reads", kind: "read", run: ({ path }: { path: string }) => path } },
});
// @ts-expect-error: a run needs a model
createRun({ chatId: "chat", provider: "p", sandbox, stream: options.stream });
// @ts-expect-error: there is no such state
export const wrong: RunState["status"] = "sleeping";
export const isRunning = (state: RunState): boolean => state.status === "running";

export const loop = instrument(async ({ recorder, signal }, prompt?: string) => {
  recorder.text(`${prompt ?? ""}${String(signal.aborted)}`);
}, { ...options, conversation: { load: () => [], save: () => undefined } });

export const client = new PitonClient({ address: "http://127.0.0.1:7411" });
export const store = new SessionStore(client, "ses_1");
export const title = (status: Schemas["SessionStatus"]): string => status.session_id;
export const box = pitonSandbox({ token: "t", sessionId: "ses_1" });
export const job = (): JoinedJob | null => joinJob(client, run.recovery);
export const useChat = (): ResumableRun => useResumableRun(options);
export const found = detectInterruptedRun({ chatId: "chat", storage: browserStorage(), lock: tabLock({ storage: browserStorage() }) });
found.catch((error: unknown) => (error instanceof RunError ? error.code : null));
defineResumeBanner();
(document.querySelector("piton-resume-banner") as ResumeBannerElement).recovery = run.recovery;
