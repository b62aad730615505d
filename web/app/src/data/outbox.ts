// Prompts on their way to the server: kept until it has them, also over a reload.
import { Outbox } from "piton-client";
import { isStorageUsable } from "../lib/storage.ts";
import { client, token } from "./account.ts";
import { homeConnection } from "./home.ts";
import { toSignal } from "./observe.ts";
import { effect } from "@preact/signals";

export const outbox = new Outbox(client, isStorageUsable() ? localStorage : null);
export const outgoing = toSignal(outbox.prompts);
export const isOutboxDurable = toSignal(outbox.isDurable);

// Another tab's prompts are on their way, too.
addEventListener("storage", (event) => {
  if (event.key === null || event.key.startsWith("piton.outbox.")) outbox.refresh();
});

// What could not be sent is sent when the server answers again.
effect(() => {
  if (token.value !== null && homeConnection.value.phase === "live") void outbox.flush();
});
