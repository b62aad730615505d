import type { SessionStatus, SessionView } from "piton-client";
import { useRef } from "preact/hooks";
import { api } from "../../data/actions.ts";
import { agentName } from "../../data/agents.ts";
import { Button } from "../../ui/Button.tsx";
import { Menu, type MenuItem } from "../../ui/Menu.tsx";

type Props = { status: SessionStatus; view: SessionView; canAttach: boolean; onFiles: (files: Iterable<File>) => void; onInsert: (piece: string) => void };

type Choices = NonNullable<SessionView["agent"]["modes"]>;

function items(choices: Choices, choose: (id: string) => unknown): MenuItem[] {
  return choices.available.map((choice) => ({
    label: choice.name,
    note: choice.description ?? undefined,
    checked: choice.id === choices.current,
    onSelect: () => choose(choice.id),
  }));
}

function nameOf(choices: Choices, fallback: string): string {
  return choices.available.find((choice) => choice.id === choices.current)?.name ?? choices.current ?? fallback;
}

/** What the agent offers: its modes, models, options and commands; files and images to add. */
export function ComposerChoices({ status, view, canAttach, onFiles, onInsert }: Props) {
  const picker = useRef<HTMLInputElement>(null);
  const { modes, models, commands, config_options } = view.agent;
  const session = api(status.session_id);
  const others = config_options.filter((option) => option.category !== "mode" && option.category !== "model" && option.values.length > 0);
  return (
    <>
      <input
        ref={picker}
        type="file"
        hidden
        accept="image/png,image/jpeg,image/gif,image/webp"
        multiple
        aria-label="Choose images"
        tabIndex={-1}
        onChange={(event) => {
          onFiles([...(event.currentTarget.files ?? [])]);
          event.currentTarget.value = "";
        }}
      />
      <Button icon="attach" look="plain" dense disabled={!canAttach} label={canAttach ? "Attach images" : `${agentName(status.agent_profile_id)} takes no images`} onClick={() => picker.current?.click()} />
      <Button icon="at" look="plain" dense label="Mention a file" onClick={() => onInsert("@")} />
      {commands.length > 0 && <Button icon="slash" look="plain" dense label="Commands of the agent" onClick={() => onInsert("/")} />}
      {modes && modes.available.length > 0 && (
        <Menu label="Mode" items={items(modes, (mode) => session.configure({ mode }))} up side="left">
          <span class="truncate">{nameOf(modes, "Mode")}</span>
        </Menu>
      )}
      {models && models.available.length > 0 && (
        <Menu label="Model" items={items(models, (model) => session.configure({ model }))} up side="left">
          <span class="truncate">{nameOf(models, "Model")}</span>
        </Menu>
      )}
      {others.map((option) => (
        <Menu
          key={option.id}
          label={option.name}
          up
          side="left"
          items={option.values.map((value) => ({
            label: value.name,
            note: value.description ?? undefined,
            checked: value.id === option.current,
            onSelect: () => session.configure({ options: { [option.id]: value.id } }),
          }))}
        >
          <span class="truncate">{option.values.find((value) => value.id === option.current)?.name ?? option.name}</span>
        </Menu>
      ))}
    </>
  );
}
