import { useState } from "preact/hooks";
import { signedOutBy, signIn, signInError } from "../data/account.ts";
import { Button } from "../ui/Button.tsx";
import { Card, Field } from "../ui/parts.tsx";

export function SignIn() {
  const [secret, setSecret] = useState("");
  const reason = signedOutBy.value;
  return (
    <main class="sign-in" id="main">
      <h1 class="brand">Piton</h1>
      <Card
        name="signed-out"
        tone={reason ? "waiting" : "normal"}
        title={reason ? "You are signed out" : "Sign in"}
      >
        {reason && <p>{reason.message}. Nothing is lost: drafts and unsent prompts are kept in this browser, sessions keep running on the server.</p>}
        <p>Run this where Piton runs. It opens a browser that is signed in, or prints a code for a phone:</p>
        <pre class="command" tabIndex={0} aria-label="Command">piton open{"\n"}piton open --qr</pre>
        <form
          class="stack"
          onSubmit={(event) => {
            event.preventDefault();
            void signIn(secret);
          }}
        >
          <Field label="Or paste a sign-in link or an access token">
            {({ id }) => <input id={id} class="input mono" type="password" autocomplete="off" value={secret} onInput={(event) => setSecret(event.currentTarget.value)} />}
          </Field>
          {signInError.value && <p class="removed" role="alert">{signInError.value}</p>}
          <Button type="submit" look="primary" disabled={secret.trim() === ""} onClick={() => undefined}>Sign in</Button>
        </form>
      </Card>
    </main>
  );
}
