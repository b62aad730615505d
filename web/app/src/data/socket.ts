// One WebSocket for the page: the list and the session on the screen. Browsers allow six HTTP connections to a server, for
// all tabs together; streams over HTTP would leave none for a third tab. WebSockets are not counted among them.
import { PitonSocket } from "piton-client";
import { client } from "./account.ts";

export const socket: PitonSocket | undefined = client.environment.WebSocket ? new PitonSocket(client) : undefined;
