import type { ShellInfo } from "piton-client";
import { useEffect, useState } from "preact/hooks";
import { api } from "../../data/actions.ts";
import type { OpenSession } from "../../data/session.ts";
import { isClosed } from "../../data/states.ts";
import { Button } from "../../ui/Button.tsx";
import { Loading } from "../../ui/parts.tsx";
import { Problem } from "./Problem.tsx";
import { useLoaded } from "./load.ts";
import { TerminalView } from "./TerminalView.tsx";

/** Shells of the session: those that run are attached to again, after a reload and after a restart of the server. */
export function TerminalPanel({ session }: { session: OpenSession }) {
  const loaded = useLoaded(session.id, async () => (await api(session.id).shells()).shells.filter((shell) => !shell.is_ended));
  const [shown, setShown] = useState<string | null>(null);
  const shells = loaded.value;
  useEffect(() => {
    if (shells && !shells.some((shell) => shell.shell_id === shown)) setShown(shells[0]?.shell_id ?? null);
  }, [shells]);
  const open = async () => {
    const { shell_id } = await api(session.id).openShell({ cols: 80, rows: 24 });
    setShown(shell_id);
    loaded.reload();
  };
  if (session.status.value && isClosed(session.status.value)) return <div class="empty"><p>A closed session has no terminal.</p></div>;
  if (loaded.error && !shells) return <Problem text={loaded.error} onRetry={loaded.reload} />;
  if (!shells) return <Loading what="Looking for shells" since={loaded.since} />;
  return (
    <div class="panel">
      <div class="panel-bar">
        <div class="row" role="group" aria-label="Shells">
          {shells.map((shell, at) => <ShellTab key={shell.shell_id} shell={shell} at={at} isShown={shell.shell_id === shown} onShow={setShown} />)}
        </div>
        <span class="grow" />
        {shown && <Button dense look="plain" onClick={async () => { await api(session.id).endShell(shown); loaded.reload(); }}>End shell</Button>}
        <Button dense icon="plus" onClick={open}>New shell</Button>
      </div>
      {shown ? (
        <TerminalView key={shown} sessionId={session.id} shellId={shown} onEnded={loaded.reload} />
      ) : (
        <div class="empty">
          <h2>No shell is open</h2>
          <p>A shell runs beside the agent, in the same folder. It keeps running when you leave this page.</p>
          <Button look="primary" onClick={open}>Open a shell</Button>
        </div>
      )}
    </div>
  );
}

function ShellTab({ shell, at, isShown, onShow }: { shell: ShellInfo; at: number; isShown: boolean; onShow: (id: string) => void }) {
  return (
    <button type="button" class="chip" aria-pressed={isShown} title={`Process ${shell.pid}`} onClick={() => onShow(shell.shell_id)}>
      Shell {at + 1}
    </button>
  );
}
