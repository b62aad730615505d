// How many tool calls of a session have ended since it is looked at: with each, its files may have changed. The list says
// only that something was written to the log, and that is every word of a streaming agent.
import type { SessionSummary } from "piton-client";
import { useEffect, useState } from "preact/hooks";
import { socket } from "../../data/socket.ts";
import { isClosed } from "../../data/states.ts";

export function useEndedCalls(session: SessionSummary): number {
  const { session_id: id, last_seq } = session;
  const [count, setCount] = useState(0);
  const isFollowed = !isClosed(session);
  useEffect(() => {
    // Without a WebSocket each session would hold a connection: then the end of a run has to do.
    if (!isFollowed || !socket) return;
    const source = socket.records(id, {
      after: last_seq,
      onRecords: (deliveries) => {
        const ended = deliveries.filter(({ record }) => record.kind === "tool.outcome").length;
        if (ended > 0) setCount((before) => before + ended);
      },
    });
    source.start();
    return () => source.stop();
  }, [id, isFollowed]);
  return count;
}
