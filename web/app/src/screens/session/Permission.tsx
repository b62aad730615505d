import type { PermissionRequest, Wait } from "piton-client";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { api, isReject } from "../../data/actions.ts";
import { client } from "../../data/account.ts";
import { otherArguments } from "../../data/permission.ts";
import { bytes, clock } from "../../lib/format.ts";
import { diffTexts } from "../../lib/lines.ts";
import { now } from "../../lib/now.ts";
import { useSettled } from "../../lib/settled.ts";
import { readable, revealed } from "../../lib/text.ts";
import { Button } from "../../ui/Button.tsx";
import { DiffCount, DiffView } from "../../ui/DiffView.tsx";
import { Card } from "../../ui/parts.tsx";
import { sentenceOf } from "../../ui/toasts.ts";
import { relative } from "./tool.ts";

const RETRY_DELAY_MS = 1_000;
const RETRY_DELAY_MAX_MS = 15_000;

type Whole = { request: PermissionRequest | null; isWhole: boolean; /** Why the rest is not here yet. */ problem: string | null };

/** A request is cut in lists and statuses; what is decided on must be whole. */
function useWhole(wait: Wait): Whole {
  const [whole, setWhole] = useState<{ id: string; request: PermissionRequest } | null>(null);
  const [attempt, setAttempt] = useState(0);
  const [problem, setProblem] = useState<string | null>(null);
  const given = wait.permission ?? null;
  const isCut = given?.truncated != null;
  useEffect(() => {
    if (!isCut) return;
    let isCurrent = true;
    let timer: ReturnType<typeof setTimeout> | undefined;
    client
      .call("get", "/api/v1/waits/{wait_id}", { path: { wait_id: wait.wait_id } })
      .then((full) => {
        if (!isCurrent || !full.permission) return;
        setWhole({ id: wait.wait_id, request: full.permission });
        setProblem(null);
      })
      .catch((error: unknown) => {
        if (!isCurrent) return;
        setProblem(sentenceOf(error));
        timer = setTimeout(() => setAttempt(attempt + 1), Math.min(RETRY_DELAY_MS * 2 ** attempt, RETRY_DELAY_MAX_MS));
      });
    return () => {
      isCurrent = false;
      clearTimeout(timer);
    };
  }, [wait.wait_id, isCut, attempt]);
  if (!isCut) return { request: given, isWhole: given !== null, problem: null };
  const found = whole?.id === wait.wait_id ? whole.request : null;
  return { request: found ?? given, isWhole: found !== null && found.truncated == null, problem };
}

function heading(request: PermissionRequest, agent: string): string {
  if (request.command) return `${agent} wants to run`;
  if (request.diffs.length > 0) return `${agent} wants to change ${request.diffs.length === 1 ? "a file" : `${request.diffs.length} files`}`;
  return `${agent} asks for permission`;
}

export function PermissionCard({ wait, agent, folder }: { wait: Wait; agent: string; folder: string | null }) {
  const { request, isWhole, problem } = useWhole(wait);
  // The rest of a request moves the buttons, too.
  const isReady = useSettled(`${wait.wait_id} ${String(isWhole)}`);
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
          {problem && ` ${problem}. Trying again.`}
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
        <pre class="command" tabIndex={0} aria-label="Arguments">
          {revealed(JSON.stringify(others, null, 2))}
        </pre>
      )}
      {folder && request.command && <p class="muted small wrap">in {folder}</p>}
    </div>
  );
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
          {option.name}
        </Button>
      ))}
      {rejects.slice(1).map((option) => (
        <Button key={option.option_id} disabled={!isEnabled} onClick={() => api(wait.session_id).answerPermission(wait.wait_id, option.option_id)}>
          {option.name}
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
