// A card for each state that a person may have to do something about.
import type { SessionStatus } from "piton-client";
import { client } from "../../data/account.ts";
import { api } from "../../data/actions.ts";
import { agentName, agents } from "../../data/agents.ts";
import { openNewSession } from "../../data/dialogs.ts";
import { readable } from "../../lib/text.ts";
import { Button, LinkButton } from "../../ui/Button.tsx";
import { Command } from "../../ui/Command.tsx";
import { Ago, Card, Elapsed } from "../../ui/parts.tsx";
import { cardsOf, type CardName } from "./cards.ts";
import { useLoginMethods } from "./login.ts";
import { InterruptedCard } from "./InterruptedCard.tsx";

type Props = { status: SessionStatus };

/** `errorSeq`: the record of the agent's last error, which says how one can log in. */
export function StateCards({ status, isOpening, errorSeq }: Props & { isOpening: boolean; errorSeq: number | null }) {
  // What the visit itself is about to do is not asked of the person.
  const cards = cardsOf(status).filter((name) => !(isOpening && name === "resume"));
  return <>{cards.map((name) => <StateCard key={name} name={name} status={status} errorSeq={errorSeq} />)}</>;
}

function StateCard({ name, status, errorSeq }: { name: CardName; errorSeq: number | null } & Props) {
  switch (name) {
    case "starting":
      return <Starting status={status} />;
    case "executor-failed":
      return <ExecutorFailed status={status} />;
    case "executor-unreachable":
      return <ExecutorUnreachable status={status} />;
    case "agent-failed":
      return <AgentFailed status={status} errorSeq={errorSeq} />;
    case "workspace-failed":
      return <WorkspaceFailed status={status} />;
    case "context-lost":
      return <ContextLost status={status} />;
    case "paused":
      return <Paused status={status} />;
    case "interrupted":
      return <InterruptedCard status={status} />;
    case "resume":
      return <Resume status={status} />;
    case "not-resumable":
      return <NotResumable status={status} />;
    case "queue-held":
      return <QueueHeld status={status} />;
    case "read-only":
      return <ReadOnly />;
    case "closed":
      return <Closed status={status} />;
  }
}

const newSession = (status: SessionStatus) => openNewSession({ agent: status.agent_profile_id ?? null, folder: status.working_dir ?? null, task: status.task_id ?? null });

const CONTEXT_REASONS: Record<string, string> = {
  not_resumable: "This agent cannot resume earlier sessions.",
  missing_resume_token: "The agent left no session id to resume from.",
  session_refused: "The agent does not know its session id any more.",
  user_request: "The agent was started without its conversation, as asked.",
};

/** Why the agent does not have its own conversation, or would not; null: it has, or nothing was said. */
function contextReason(status: SessionStatus): string | null {
  return (status.context_reason && CONTEXT_REASONS[status.context_reason]) || null;
}

function Cause({ status }: Props) {
  return status.error_message ? (
    <pre class="cause" tabIndex={0} aria-label="Cause">
      {readable(status.error_message)}
    </pre>
  ) : (
    <p>{status.sentence}</p>
  );
}

function Retry({ status, label, isSecond }: Props & { label?: string; isSecond?: boolean }) {
  return (
    <Button look={isSecond ? "normal" : "primary"} onClick={() => api(status.session_id).resume()}>
      {label ?? "Retry"}
    </Button>
  );
}

function Starting({ status }: Props) {
  const isWaiting = status.reason === "agent_waiting_to_load";
  const what = status.reason === "executor_starting" ? "The executor is starting" : `${agentName(status.agent_profile_id)} is starting`;
  return (
    <Card tone="accent" name="starting" title={what} aside={<Elapsed since={status.active_at} />}>
      <p>{isWaiting || !status.run ? status.sentence : "Your prompt is in the log and is delivered when the agent is ready."}</p>
    </Card>
  );
}

function ExecutorFailed({ status }: Props) {
  return (
    <Card tone="error" name="executor-failed" title="The executor failed" actions={<Retry status={status} />}>
      <Cause status={status} />
    </Card>
  );
}

function ExecutorUnreachable({ status }: Props) {
  const seen = status.live?.last_seen_at ?? status.executor?.last_seen_at;
  return (
    <Card
      tone="error"
      name="executor-unreachable"
      title="The executor does not respond"
      aside={seen ? <>last heard of <Ago at={seen} /> ago</> : null}
      actions={
        <>
          <Retry status={status} />
          <Button
            look="danger"
            onClick={() => api(status.session_id).abandon(status.agent_execution_id ?? undefined)}
          >
            Abandon the executor
          </Button>
        </>
      }
    >
      <p>Its agent may still be working, so no second one is started. Piton keeps trying to reach it.</p>
      <p class="muted">Abandoning it interrupts the run. If the executor returns, its agent is ended.</p>
      {status.error_message && <p class="small wrap">{readable(status.error_message)}</p>}
    </Card>
  );
}

function AgentFailed({ status, errorSeq }: Props & { errorSeq: number | null }) {
  const agent = agents.value.find((known) => known.agent_profile_id === status.agent_profile_id);
  const needsLogin = status.reason === "login_needed" || status.error_code === "agent_auth_required";
  const isMissing = status.reason === "agent_missing" || status.error_code === "agent_missing";
  return (
    <Card
      tone="error"
      name="agent-failed"
      title={needsLogin ? `${agentName(status.agent_profile_id)} needs a login` : `${agentName(status.agent_profile_id)} could not be started`}
      actions={
        <>
          {needsLogin && <LoginButtons sessionId={status.session_id} errorSeq={errorSeq} />}
          <Retry status={status} isSecond={needsLogin} />
          <Button onClick={() => newSession(status)}>New session</Button>
        </>
      }
    >
      <Cause status={status} />
      {isMissing && agent?.install && (
        <>
          <p>Install it on the machine that Piton runs on, then retry:</p>
          <Command text={agent.install} label={`Install ${agent.name}`} />
        </>
      )}
      {needsLogin && <p>Log in here, or with the agent's own command in a terminal, then retry. Files, git and the terminal keep working.</p>}
    </Card>
  );
}

/** One button for each method that the agent names: with several of them it must be said which. */
function LoginButtons({ sessionId, errorSeq }: { sessionId: string; errorSeq: number | null }) {
  const methods = useLoginMethods(sessionId, errorSeq);
  const logIn = (method?: string) => api(sessionId).logIn(method);
  if (!methods || methods.length < 2) return <Button look="primary" disabled={methods === null} onClick={() => logIn(methods?.[0]?.id)}>Log in</Button>;
  return (
    <>
      {methods.map((method, at) => (
        <Button key={method.id} look={at === 0 ? "primary" : "normal"} label={method.description ? readable(method.description) : method.id} onClick={() => logIn(method.id)}>
          Log in: {readable(method.name)}
        </Button>
      ))}
    </>
  );
}

function WorkspaceFailed({ status }: Props) {
  const canRepair = status.reason === "worktree_missing";
  return (
    <Card
      tone="error"
      name="workspace-failed"
      title="The workspace is missing"
      actions={
        <>
          {canRepair && (
            <Button look="primary" onClick={async () => { await client.call("post", "/api/v1/sessions/{session_id}/worktree", { path: { session_id: status.session_id } }); await api(status.session_id).resume(); }}>
              Create the worktree again
            </Button>
          )}
          <Retry status={status} isSecond={canRepair} />
          <Button onClick={() => newSession(status)}>New session</Button>
        </>
      }
    >
      <Cause status={status} />
    </Card>
  );
}

function ContextLost({ status }: Props) {
  const choose = (choice: SessionStatus["choices"][number]) => {
    if (choice.choice === "new_session") return newSession(status);
    const context = choice.choice === "continue_with_history" ? "injected" : choice.choice === "continue_without_context" ? "none" : undefined;
    return api(status.session_id).resume(context ? { context } : {});
  };
  return (
    <Card
      tone="waiting"
      name="context-lost"
      title={status.is_agent_running ? `${agentName(status.agent_profile_id)} does not know the earlier conversation` : "The agent's context cannot be restored"}
      actions={status.choices.map((choice, at) => (
        <Button key={choice.choice} look={at === 0 ? "primary" : "normal"} onClick={() => choose(choice)}>
          {choice.label}
        </Button>
      ))}
    >
      <p>{status.context_sentence ?? contextReason(status) ?? status.sentence} The conversation itself is safe: it is all in Piton's log.</p>
    </Card>
  );
}

function Paused({ status }: Props) {
  return (
    <Card
      tone="waiting"
      name="paused"
      title="Paused"
      actions={
        <>
          <Button look="primary" onClick={() => api(status.session_id).resume({ continue: true })}>Continue</Button>
          <Button onClick={() => api(status.session_id).cancel()}>Cancel the run</Button>
        </>
      }
    >
      <p>The run stays where it is. A prompt that you send now is queued behind it; “Replace run” beside the prompt box cancels it instead.</p>
    </Card>
  );
}

function Resume({ status }: Props) {
  return (
    <Card
      tone="accent"
      name="resume"
      title={`${agentName(status.agent_profile_id)} is not running`}
      actions={
        <>
          <Retry status={status} label="Resume session" />
          {contextReason(status) && <Button onClick={() => newSession(status)}>Create new session</Button>}
        </>
      }
    >
      {contextReason(status) && <p>{contextReason(status)}</p>}
      <p>{status.resume_strategy === "native" ? "It can load its own conversation." : status.resume_strategy === "history" ? "It starts fresh and is given the history with your next prompt." : status.sentence} Or just send a prompt.</p>
    </Card>
  );
}

function NotResumable({ status }: Props) {
  return (
    <Card
      tone="waiting"
      name="not-resumable"
      title="This agent does not support resuming"
      actions={<Button look="primary" onClick={() => newSession(status)}>Create new session</Button>}
    >
      <p>{contextReason(status) ?? status.sentence} Files, git and the terminal of this session still work.</p>
    </Card>
  );
}

function QueueHeld({ status }: Props) {
  return (
    <Card tone="waiting" name="queue-held" title="Queued prompts are held" actions={<Button look="primary" onClick={() => api(status.session_id).releaseQueue()}>Deliver them</Button>}>
      <p>The last run did not end well, so the prompts behind it wait for your word. You can edit or remove them below.</p>
    </Card>
  );
}

function ReadOnly() {
  return (
    <Card tone="waiting" name="read-only" title="Read-only: a newer version of Piton wrote this session">
      <p>You can read everything. To prompt it, upgrade Piton on the machine that serves this page.</p>
    </Card>
  );
}

function Closed({ status }: Props) {
  return (
    <Card
      name="closed"
      tone={status.status === "failed" ? "error" : "normal"}
      title={`Closed as ${status.status}`}
      aside={<Ago at={status.active_at} />}
      actions={
        <>
          <Button onClick={() => newSession(status)}>New session</Button>
          <LinkButton href="#/">Home</LinkButton>
        </>
      }
    >
      <p>A closed session can be read but not continued. Files and git can still be looked at.</p>
    </Card>
  );
}
