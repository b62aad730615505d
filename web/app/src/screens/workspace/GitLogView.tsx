import { api } from "../../data/actions.ts";
import { readable } from "../../lib/text.ts";
import { Ago, Loading } from "../../ui/parts.tsx";
import { Problem } from "./Problem.tsx";
import { useLoaded } from "./load.ts";

const COMMITS_MAX = 100;

export function GitLogView({ id }: { id: string }) {
  const loaded = useLoaded(id, () => api(id).gitLog(COMMITS_MAX));
  if (loaded.error) return <Problem text={loaded.error} onRetry={loaded.reload} />;
  if (!loaded.value) return <Loading what="Asking git" since={loaded.since} />;
  if (loaded.value.commits.length === 0) return <p class="muted">No commits yet.</p>;
  return (
    <table class="table">
      <thead>
        <tr><th>Commit</th><th>Subject</th><th>Author</th><th>When</th></tr>
      </thead>
      <tbody>
        {loaded.value.commits.map((commit) => (
          <tr key={commit.id}>
            <td><code>{commit.id.slice(0, 7)}</code></td>
            <td>{readable(commit.subject)}</td>
            <td class="muted">{readable(commit.author)}</td>
            <td class="muted"><Ago at={commit.at} /></td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
