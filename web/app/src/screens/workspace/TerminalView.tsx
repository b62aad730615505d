import { FitAddon } from "@xterm/addon-fit";
import { type ITheme, Terminal } from "@xterm/xterm";
import "@xterm/xterm/css/xterm.css";
import { useEffect, useRef, useState } from "preact/hooks";
import { strictDocument, withStrictStyles } from "./strict-document.ts";
import { type ShellState, ShellSocket } from "./shell-socket.ts";

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

const STATES: Record<ShellState, string> = { connecting: "Connecting…", live: "", lost: "Reconnecting to the shell…", ended: "The shell has ended." };

export function TerminalView({ sessionId, shellId, onEnded }: { sessionId: string; shellId: string; onEnded: () => void }) {
  const host = useRef<HTMLDivElement>(null);
  const [state, setState] = useState<ShellState>("connecting");
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
    const socket = new ShellSocket(sessionId, shellId, {
      onData: (data) => terminal.write(data),
      onState: setState,
      // What the shell still has is sent again from the beginning.
      onAttach: () => {
        terminal.reset();
        socket.resize(terminal.cols, terminal.rows);
      },
      onEnd: onEnded,
    });
    terminal.onData((text) => socket.send(new TextEncoder().encode(text)));
    terminal.onResize(({ cols, rows }) => socket.resize(cols, rows));
    const resized = new ResizeObserver(() => fit.fit());
    resized.observe(element);
    fit.fit();
    terminal.focus();
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    const recolour = () => {
      terminal.options.theme = isDark() ? DARK : LIGHT;
    };
    scheme.addEventListener("change", recolour);
    return () => {
      scheme.removeEventListener("change", recolour);
      resized.disconnect();
      socket.close();
      terminal.dispose();
    };
  }, [sessionId, shellId]);
  return (
    <>
      {STATES[state] && <p class="notice" role="status">{STATES[state]}</p>}
      <div class="terminal-host" ref={host} />
    </>
  );
}
