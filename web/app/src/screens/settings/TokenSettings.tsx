import type { AccessScope } from "piton-client";
import { useState } from "preact/hooks";
import { client } from "../../data/account.ts";
import { exact } from "../../lib/format.ts";
import { Button } from "../../ui/Button.tsx";
import { copy } from "../../ui/CodeBlock.tsx";
import { Ago, Badge, Card, Field, Loading } from "../../ui/parts.tsx";
import { Problem } from "../workspace/Problem.tsx";
import { useLoaded } from "../workspace/load.ts";

const SCOPES: AccessScope[] = ["read", "control", "admin"];
const DAY_S = 86_400;

export function TokenSettings() {
  const loaded = useLoaded("tokens", () => client.call("get", "/api/v1/access-tokens"));
  if (loaded.error) return <Problem text={`${loaded.error}. Access tokens need the scope admin: piton open --scope read --scope control --scope admin`} onRetry={loaded.reload} />;
  if (!loaded.value) return <Loading what="Asking for access tokens" since={loaded.since} />;
  return (
    <section class="stack">
      <h2>Access tokens</h2>
      <NewToken onMade={loaded.reload} />
      <ul class="stack">
        {loaded.value.access.map((token) => (
          <li key={token.access_token_id} class="card">
            <div class="row-wrap">
              <strong class="wrap">{token.name}</strong>
              {token.scopes.map((scope) => <Badge key={scope}>{scope}</Badge>)}
              {token.single_use && <Badge tone="waiting">unused link</Badge>}
              <span class="grow" />
              <Button dense look="danger" onClick={async () => { await client.call("delete", "/api/v1/access-tokens/{access_token_id}", { path: { access_token_id: token.access_token_id } }); loaded.reload(); }}>Revoke</Button>
            </div>
            <p class="muted small">Made <Ago at={token.created_at} /> ago{token.expires_at ? `, valid until ${exact(token.expires_at)}` : ", does not expire"}</p>
          </li>
        ))}
      </ul>
    </section>
  );
}

function NewToken({ onMade }: { onMade: () => void }) {
  const [name, setName] = useState("");
  const [scopes, setScopes] = useState<readonly AccessScope[]>(["read", "control"]);
  const [secret, setSecret] = useState<string | null>(null);
  const make = async () => {
    const issued = await client.call("post", "/api/v1/access-tokens", { body: { name: name.trim(), scopes: [...scopes], expires_in_s: 30 * DAY_S } });
    setSecret(issued.token);
    setName("");
    onMade();
  };
  return (
    <Card title="New token" actions={<Button disabled={name.trim() === "" || scopes.length === 0} onClick={make}>Create</Button>}>
      <Field label="For whom or what" hint="It is valid for 30 days.">
        {({ id, describedBy }) => <input id={id} aria-describedby={describedBy} class="input" value={name} placeholder="phone" onInput={(event) => setName(event.currentTarget.value)} />}
      </Field>
      <fieldset class="row-wrap">
        <legend class="visually-hidden">Scopes</legend>
        {SCOPES.map((scope) => (
          <label key={scope} class="check">
            <input type="checkbox" checked={scopes.includes(scope)} onChange={() => setScopes(scopes.includes(scope) ? scopes.filter((other) => other !== scope) : [...scopes, scope])} />
            <span>{scope}</span>
          </label>
        ))}
      </fieldset>
      {secret && (
        <div role="status" class="stack-tight">
          <p>Shown once, kept nowhere:</p>
          <pre class="command" tabIndex={0} aria-label="The new token">{secret}</pre>
          <div><Button dense onClick={() => copy(secret)}>Copy</Button></div>
        </div>
      )}
    </Card>
  );
}
