import { FitAddon } from "@xterm/addon-fit";
import { type ITheme, Terminal } from "@xterm/xterm";
import "@xterm/xterm/css/xterm.css";
import { type ConnectionState, ShellConnection } from "piton-client";
import { useEffect, useRef, useState } from "preact/hooks";
import { client } from "../../data/account.ts";
import { strictDocument, withStrictStyles } from "./strict-document.ts";

const DARK: ITheme = { background: "#101114", foreground: "#e8e7e3", cursor: "#8ab4ff", selectionBackground: "#33415f" };
const LIGHT: ITheme = {
  background: "#fdfdfc", foreground: "#1c1b19", cursor: "#1d5bc4", selectionBackground: "#c9dbf7",
  black: "#1c1b19", red: "#b0261c", green: "#1f6f3a", yellow: "#8a5300", blue: "#1d5bc4", magenta: "#8b2c8f", cyan: "#12707a", white: "#625f57",
  brightBlack: "#8b877d", brightRed: "#b0261c", brightGreen: "#1f6f3a", brightYellow: "#8a5300", brightBlue: "#1d5bc4", brightMagenta: "#8b2c8f", brightCyan: "#12707a", brightWhite: "#1c1b19",
};

function isDark(): boolean {
  const chosen = document.documentElement.dataset["theme"];
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function wordsOf({ phase, isOffline, problem }: ConnectionState): string {
  switch (phase) {
    case "connecting":
      return "Connecting…";
    case "reconnecting":
      return isOffline ? "Reconnecting to the shell: this device is offline" : "Reconnecting to the shell…";
    case "refused":
      return `${problem?.message ?? "The server refuses the connection"}.`;
    default:
      return "";
  }
}

export function TerminalView({ sessionId, shellId, onEnded }: { sessionId: string; shellId: string; onEnded: () => void }) {
  const host = useRef<HTMLDivElement>(null);
  const [words, setWords] = useState("");
  useEffect(() => {
    const element = host.current;
    if (!element) return;
    const terminal = new Terminal({
      fontFamily: getComputedStyle(document.documentElement).getPropertyValue("--mono"),
      fontSize: 13,
      scrollback: 5_000,
      theme: isDark() ? DARK : LIGHT,
      screenReaderMode: true,
      documentOverride: strictDocument(document),
      // A program's output must not open or copy anything by itself.
      allowProposedApi: false,
      linkHandler: { activate: () => {}, allowNonHttpProtocols: false },
    });
    const fit = new FitAddon();
    terminal.loadAddon(fit);
    withStrictStyles(document, () => terminal.open(element));
    const shell = new ShellConnection(client, sessionId, shellId, {
      onData: (data) => terminal.write(data),
      // What the shell still has is sent again from the beginning.
      onReset: () => terminal.reset(),
      onExit: onEnded,
    });
    const unsubscribe = shell.connection.subscribe((connection) => {
      setWords(wordsOf(connection));
      // The list says which shells there are.
      if (connection.phase === "refused") onEnded();
    });
    terminal.onData((text) => shell.send(text));
    terminal.onResize(({ cols, rows }) => shell.resize(cols, rows));
    const resized = new ResizeObserver(() => fit.fit());
    resized.observe(element);
    fit.fit();
    shell.resize(terminal.cols, terminal.rows);
    shell.start();
    terminal.focus();
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    const recolour = () => {
      terminal.options.theme = isDark() ? DARK : LIGHT;
    };
    scheme.addEventListener("change", recolour);
    return () => {
      scheme.removeEventListener("change", recolour);
      resized.disconnect();
      unsubscribe();
      shell.stop();
      terminal.dispose();
    };
  }, [sessionId, shellId]);
  return (
    <>
      {words && <p class="notice" role="status">{words}</p>}
      <div class="terminal-host" ref={host} />
    </>
  );
}
