import type { PermissionRequest, Wait } from "piton-client";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { api, isReject } from "../../data/actions.ts";
import { client } from "../../data/account.ts";
import { bytes, clock } from "../../lib/format.ts";
import { diffTexts } from "../../lib/lines.ts";
import { now } from "../../lib/now.ts";
import { readable, revealed } from "../../lib/text.ts";
import { Button } from "../../ui/Button.tsx";
import { DiffCount, DiffView } from "../../ui/DiffView.tsx";
import { Card } from "../../ui/parts.tsx";
import { relative } from "./tool.ts";

/** A click that was meant for what was there before must not answer. */
const ANSWER_DELAY_MS = 300;

/** A request is cut in lists and statuses; what is decided on must be whole. */
function useWhole(wait: Wait): { request: PermissionRequest | null; isWhole: boolean } {
  const [whole, setWhole] = useState<{ id: string; request: PermissionRequest } | null>(null);
  const given = wait.permission ?? null;
  const isCut = given?.truncated != null;
  useEffect(() => {
    if (!isCut) return;
    let isCurrent = true;
    client
      .call("get", "/api/v1/waits/{wait_id}", { path: { wait_id: wait.wait_id } })
      .then((full) => {
        if (isCurrent && full.permission) setWhole({ id: wait.wait_id, request: full.permission });
      })
      // The card then says that the request is not whole, and its buttons stay off.
      .catch(() => {});
    return () => {
      isCurrent = false;
    };
  }, [wait.wait_id, isCut]);
  if (!isCut) return { request: given, isWhole: given !== null };
  const found = whole?.id === wait.wait_id ? whole.request : null;
  return { request: found ?? given, isWhole: found !== null && found.truncated == null };
}

function heading(request: PermissionRequest, agent: string): string {
  if (request.command) return `${agent} wants to run`;
  if (request.diffs.length > 0) return `${agent} wants to change ${request.diffs.length === 1 ? "a file" : `${request.diffs.length} files`}`;
  return `${agent} asks for permission`;
}

export function PermissionCard({ wait, agent, folder }: { wait: Wait; agent: string; folder: string | null }) {
  const { request, isWhole } = useWhole(wait);
  const [isReady, setReady] = useState(false);
  useEffect(() => {
    setReady(false);
    const timer = setTimeout(() => setReady(true), ANSWER_DELAY_MS);
    return () => clearTimeout(timer);
  }, [wait.wait_id]);
  if (!request) return null;
  return (
    <Card
      tone="waiting"
      name="permission"
      title={heading(request, agent)}
      aside={wait.deadline_at ? <span title="It is cancelled then">until {clock(wait.deadline_at, now.value)}</span> : null}
      actions={<Answers wait={wait} request={request} isEnabled={isReady && isWhole} />}
    >
      <RequestBody request={request} folder={folder} />
      {!isWhole && (
        <p class="small" role="status">
          {request.truncated ? `${bytes(request.truncated.missing_bytes)} of this request are not shown yet. It can be answered when all of it is.` : ""}
        </p>
      )}
    </Card>
  );
}

/** All of what is asked: the command, every argument, every changed line. */
export function RequestBody({ request, folder }: { request: PermissionRequest; folder: string | null }) {
  const diffs = useMemo(() => request.diffs.map((diff) => diffTexts(diff.path, diff.old_text ?? null, diff.new_text)), [request]);
  const others = otherArguments(request);
  const isTitled = !request.command || !request.title.includes(request.command);
  return (
    <div class="stack">
      {request.command && (
        <pre class="command" tabIndex={0} aria-label="Command">
          {revealed(request.command)}
        </pre>
      )}
      {isTitled && request.title && request.title !== request.tool && diffs.length === 0 && <p class="wrap">{revealed(request.title)}</p>}
      {request.text && <p class="wrap">{readable(request.text)}</p>}
      {diffs.map((file) => (
        <div key={file.path}>
          <p class="row small">
            <span class="mono grow wrap">{revealed(relative(file.path, folder))}</span>
            <DiffCount added={file.added} removed={file.removed} />
          </p>
          <DiffView file={file} whole />
        </div>
      ))}
      {others && (
        <pre class="tool-text" tabIndex={0} aria-label="Arguments">
          {revealed(others)}
        </pre>
      )}
      {folder && request.command && <p class="muted small wrap">in {folder}</p>}
    </div>
  );
}

/** What the command and the diffs do not show already. */
function otherArguments(request: PermissionRequest): string | null {
  const given = request.arguments as Record<string, unknown> | null | undefined;
  if (!given || typeof given !== "object") return null;
  const rest = Object.entries(given).filter(([key, value]) => {
    if (request.command && (key === "command" || key === "cmd")) return false;
    const isShown = request.diffs.some((diff) => value === diff.new_text || value === diff.old_text || value === diff.path);
    return !isShown;
  });
  return rest.length > 0 ? JSON.stringify(Object.fromEntries(rest), null, 2) : null;
}

function Answers({ wait, request, isEnabled }: { wait: Wait; request: PermissionRequest; isEnabled: boolean }) {
  const [rejecting, setRejecting] = useState(false);
  const [message, setMessage] = useState("");
  const input = useRef<HTMLTextAreaElement>(null);
  const allows = request.options.filter((option) => !isReject(option));
  const rejects = request.options.filter(isReject);
  const reject = rejects[0];
  useEffect(() => {
    if (rejecting) input.current?.focus();
  }, [rejecting]);
  if (rejecting && reject) {
    return (
      <form
        class="stack grow"
        onSubmit={(event) => {
          event.preventDefault();
        }}
      >
        <label class="field">
          <span>What should the agent do instead? It is sent as the next prompt.</span>
          <textarea class="input" rows={2} ref={input} value={message} onInput={(event) => setMessage(event.currentTarget.value)} />
        </label>
        <div class="card-actions">
          <Button look="danger" disabled={!isEnabled} onClick={() => api(wait.session_id).answerPermission(wait.wait_id, reject.option_id, message.trim())}>
            {message.trim() ? "Reject and send" : "Reject"}
          </Button>
          <Button look="plain" onClick={() => setRejecting(false)}>
            Back
          </Button>
        </div>
      </form>
    );
  }
  return (
    <>
      {allows.map((option, at) => (
        <Button key={option.option_id} look={at === 0 ? "primary" : "normal"} disabled={!isEnabled} onClick={() => api(wait.session_id).answerPermission(wait.wait_id, option.option_id)}>
          {readable(option.name)}
        </Button>
      ))}
      {rejects.slice(1).map((option) => (
        <Button key={option.option_id} disabled={!isEnabled} onClick={() => api(wait.session_id).answerPermission(wait.wait_id, option.option_id)}>
          {readable(option.name)}
        </Button>
      ))}
      {reject && (
        <Button disabled={!isEnabled} onClick={() => setRejecting(true)}>
          Reject…
        </Button>
      )}
    </>
  );
}
