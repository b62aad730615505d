import { useEffect, useMemo, useState } from "preact/hooks";
import { api } from "../../data/actions.ts";
import { bytes, count } from "../../lib/format.ts";
import { revealed } from "../../lib/text.ts";
import { Button } from "../../ui/Button.tsx";
import { copy, spans, useHighlighted } from "../../ui/CodeBlock.tsx";
import { Loading } from "../../ui/parts.tsx";
import { Problem } from "./Problem.tsx";
import { useLoaded } from "./load.ts";

const LINES_SHOWN = 2_000;
const IMAGES: Record<string, string> = { png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", gif: "image/gif", webp: "image/webp" };

type Content = { kind: "text"; text: string } | { kind: "image"; blob: Blob } | { kind: "binary"; size: number };

async function read(id: string, path: string): Promise<Content> {
  const blob = await api(id).readFile(path);
  const type = IMAGES[path.split(".").pop()?.toLowerCase() ?? ""];
  if (type) return { kind: "image", blob: new Blob([blob], { type }) };
  const data = await blob.arrayBuffer();
  const isBinary = new Uint8Array(data.slice(0, 8_000)).includes(0);
  return isBinary ? { kind: "binary", size: blob.size } : { kind: "text", text: new TextDecoder().decode(data) };
}

export function FileView({ id, path }: { id: string; path: string }) {
  const loaded = useLoaded(`${id} ${path}`, () => read(id, path));
  if (loaded.error) return <Problem text={loaded.error} onRetry={loaded.reload} />;
  const content = loaded.value;
  if (!content) return <Loading what="Reading the file" since={loaded.since} />;
  return (
    <div>
      <div class="panel-bar">
        <span class="mono grow truncate" title={path}>{revealed(path)}</span>
        {content.kind === "text" && <Button icon="copy" look="plain" dense label="Copy the file" onClick={() => copy(content.text)} />}
        <Button dense look="plain" onClick={loaded.reload}>Refresh</Button>
      </div>
      {content.kind === "image" && <Picture blob={content.blob} name={path} />}
      {content.kind === "binary" && <p class="empty">A binary file of {bytes(content.size)}.</p>}
      {content.kind === "text" && <Lines text={content.text} path={path} />}
    </div>
  );
}

function Picture({ blob, name }: { blob: Blob; name: string }) {
  const [url, setUrl] = useState<string | null>(null);
  useEffect(() => {
    const made = URL.createObjectURL(blob);
    setUrl(made);
    return () => URL.revokeObjectURL(made);
  }, [blob]);
  return <div class="panel-scroll">{url && <img class="image-block" src={url} alt={name} />}</div>;
}

function extension(path: string): string {
  const name = path.split("/").pop() ?? "";
  return name.includes(".") ? (name.split(".").pop() ?? "").toLowerCase() : "";
}

function Lines({ text, path }: { text: string; path: string }) {
  const [isAll, setAll] = useState(false);
  const lines = useMemo(() => revealed(text).replace(/\n$/, "").split("\n"), [text]);
  const shown = isAll ? lines : lines.slice(0, LINES_SHOWN);
  const body = useMemo(() => shown.join("\n"), [shown]);
  const parts = useHighlighted(body, extension(path));
  return (
    <div class="file-view">
      <div class="file-columns">
        <pre class="file-numbers" aria-hidden="true">{shown.map((_, at) => at + 1).join("\n")}</pre>
        <pre class="file-text" tabIndex={0} aria-label={`Contents of ${path}`}>{parts ? spans(parts) : body}</pre>
      </div>
      {shown.length < lines.length && (
        <p class="diff-more">
          <Button dense onClick={() => setAll(true)}>Show {count(lines.length - shown.length)} more lines</Button>
        </p>
      )}
    </div>
  );
}
