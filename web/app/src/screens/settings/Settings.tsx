import { AgentSettings } from "./AgentSettings.tsx";
import { DeviceSettings } from "./DeviceSettings.tsx";
import { ExecutorSettings } from "./ExecutorSettings.tsx";
import { Health } from "./Health.tsx";
import { TokenSettings } from "./TokenSettings.tsx";

const SECTIONS = [
  { name: "health", label: "Health" },
  { name: "agents", label: "Agents" },
  { name: "executors", label: "Executors" },
  { name: "tokens", label: "Access tokens" },
  { name: "device", label: "This device" },
] as const;

export function Settings({ section }: { section: string }) {
  const shown = SECTIONS.find(({ name }) => name === section)?.name ?? "health";
  return (
    <main class="page" id="main" aria-label="Settings and health">
      <div class="page-inner">
        <header class="page-header">
          <a class="button back" data-look="plain" href="#/">Back</a>
          <h1>Settings and health</h1>
        </header>
        <nav class="tabs settings-tabs" aria-label="Sections">
          {SECTIONS.map(({ name, label }) => <a key={name} class="tab" href={`#/settings/${name}`} aria-current={name === shown ? "page" : undefined}>{label}</a>)}
        </nav>
        {shown === "health" && <Health />}
        {shown === "agents" && <AgentSettings />}
        {shown === "executors" && <ExecutorSettings />}
        {shown === "tokens" && <TokenSettings />}
        {shown === "device" && <DeviceSettings />}
        <p class="muted small">For web developers: <a href="/demo/browser-run">a run in this page</a> that survives a locked phone.</p>
      </div>
    </main>
  );
}
