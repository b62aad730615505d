/** An agent's own features, as it said them last: modes, models, options, commands, plan, usage. */
import type { AgentChoice, AgentView, LogRecord } from "../types.js";
import { object, optional, string } from "./conversation.js";

type Said = Record<string, unknown>;
type Named = { id: string; name: string; description: string | null };
type ChoiceList = { current: string | null; available: Named[] };
type ConfigOption = AgentView["config_options"][number];

type Chosen = { mode?: string; model?: string; options: Record<string, string | boolean> };

/** Most options that a user can have chosen. */
const CHOICES_MAX = 64;
const CHOICE_REFUSED = "choice_refused:";
const FEATURES: ReadonlySet<string> = new Set(["modes", "mode", "models", "model", "config", "commands", "plan", "usage", "turn_usage"]);

export class AgentFeatures {
  /** What the agent said last of each feature. */
  #said = new Map<string, Said>();
  #seed: AgentView | null = null;
  #chosen: Chosen = { options: {} };
  #mcpServers: string[] = [];
  #forkedFrom: string | null = null;
  #view: AgentView | null = null;

  /** Begins with what a server has put together. */
  seed(view: AgentView): void {
    this.#said.clear();
    this.#seed = view;
    const { mode, model, options } = view.chosen;
    this.#chosen = { options: { ...options } };
    if (mode) this.#chosen.mode = mode;
    if (model) this.#chosen.model = model;
    this.#mcpServers = [...view.mcp_servers];
    this.#forkedFrom = view.forked_from ?? null;
    this.#view = view;
  }

  /** Takes a record; `isCurrent`: of an update, whether it comes from the session's execution. */
  apply(record: LogRecord, isCurrent: boolean): void {
    switch (record.kind) {
      case "agent.updated":
        if (isCurrent) this.#updated(string(record["what"]), record["update"]);
        break;
      case "agent.configured":
        this.#configured(record);
        break;
      case "agent.mcp_servers_set":
        this.#mcpServers = list(record["servers"]).map((server) => string(object(server)?.["name"]));
        break;
      case "session.forked":
        this.#forkedFrom = optional(record["from_session_id"]);
        break;
      default:
        return;
    }
    this.#view = null;
  }

  get view(): AgentView {
    this.#view ??= this.#build();
    return this.#view;
  }

  #updated(what: string, update: unknown): void {
    if (what.startsWith(CHOICE_REFUSED)) {
      const refused = what.slice(CHOICE_REFUSED.length);
      if (refused === "mode" || refused === "model") delete this.#chosen[refused];
      else delete this.#chosen.options[refused];
      return;
    }
    if (!FEATURES.has(what)) return;
    // What was redacted is not known any more.
    if (update === undefined) this.#said.delete(what);
    else this.#said.set(what, object(update) ?? {});
    // They name the current one, too.
    if (what === "modes") this.#said.delete("mode");
    if (what === "models") this.#said.delete("model");
  }

  #configured(record: LogRecord): void {
    const mode = optional(record["mode"]);
    const model = optional(record["model"]);
    if (mode !== null) this.#chosen.mode = mode;
    if (model !== null) this.#chosen.model = model;
    for (const [id, value] of Object.entries(object(record["options"]) ?? {})) {
      const isRoom = Object.keys(this.#chosen.options).length < CHOICES_MAX || id in this.#chosen.options;
      if (isRoom && (typeof value === "string" || typeof value === "boolean")) this.#chosen.options[id] = value;
    }
  }

  #build(): AgentView {
    const config = this.#said.get("config");
    const options = config ? list(config["configOptions"]).map(configOption).filter((option) => option !== null) : (this.#seed?.config_options ?? []);
    const commands = this.#said.get("commands");
    const plan = this.#said.get("plan");
    const { mode, model, options: values } = this.#chosen;
    const chosen: AgentChoice = { ...(mode === undefined ? {} : { mode }), ...(model === undefined ? {} : { model }), ...(Object.keys(values).length === 0 ? {} : { options: values }) };
    return {
      modes: this.#choices("modes", "mode", "availableModes", "id", "currentModeId") ?? this.#seeded("modes", "mode", "currentModeId") ?? ofCategory(options, "mode"),
      models: this.#choices("models", "model", "availableModels", "modelId", "currentModelId") ?? this.#seeded("models", "model", "currentModelId") ?? ofCategory(options, "model"),
      config_options: options,
      commands: commands ? list(commands["availableCommands"]).map(command).filter((one) => one !== null) : (this.#seed?.commands ?? []),
      plan: plan ? list(plan["entries"]).map(planEntry).filter((one) => one !== null) : (this.#seed?.plan ?? []),
      usage: this.#usage(),
      chosen,
      mcp_servers: this.#mcpServers,
      forked_from: this.#forkedFrom,
    };
  }

  /** What the seed knew of the agent's own list, with what was said since of the current one. */
  #seeded(all: "modes" | "models", one: string, currentKey: string): ChoiceList | null {
    const seeded = (this.#seed?.[all] as ChoiceList | null | undefined) ?? null;
    if (!seeded || !this.#seed) return null;
    // Without a list of its own it came from an option, which may have been said again since.
    const ofOption = ofCategory(this.#seed.config_options, one);
    if (JSON.stringify(seeded) === JSON.stringify(ofOption)) return null;
    const current = optional(this.#said.get(one)?.[currentKey]);
    return current === null ? seeded : { ...seeded, current };
  }

  #choices(all: string, one: string, listKey: string, idKey: string, currentKey: string): ChoiceList | null {
    const told = this.#said.get(all);
    if (!told) return null;
    const inner = object(told[all]) ?? told;
    const current = optional(this.#said.get(one)?.[currentKey]) ?? optional(inner[currentKey]);
    const available = list(inner[listKey]).map((value) => named(value, idKey)).filter((value) => value !== null);
    return { current, available };
  }

  #usage(): NonNullable<AgentView["usage"]> | null {
    const [context, turn] = [this.#said.get("usage"), this.#said.get("turn_usage")];
    const seeded = this.#seed?.usage ?? null;
    if (!context && !turn) return seeded;
    const cost = object(context?.["cost"]);
    const amount = cost?.["amount"];
    return {
      context_tokens: context ? count(context["used"]) : (seeded?.context_tokens ?? null),
      context_window_tokens: context ? count(context["size"]) : (seeded?.context_window_tokens ?? null),
      cost: context ? (typeof amount === "number" ? { amount, currency: string(cost?.["currency"]) } : null) : (seeded?.cost ?? null),
      input_tokens: turn ? count(turn["inputTokens"]) : (seeded?.input_tokens ?? null),
      output_tokens: turn ? count(turn["outputTokens"]) : (seeded?.output_tokens ?? null),
      total_tokens: turn ? count(turn["totalTokens"]) : (seeded?.total_tokens ?? null),
    };
  }
}

function ofCategory(options: readonly ConfigOption[], category: string): ChoiceList | null {
  const option = options.find((one) => one.category === category);
  if (!option) return null;
  const current = typeof option.current === "string" ? option.current : null;
  return { current, available: option.values as Named[] };
}

function named(value: unknown, idKey: string): Named | null {
  const one = object(value);
  const id = optional(one?.[idKey]);
  if (!one || id === null) return null;
  return { id, name: optional(one["name"]) ?? id, description: optional(one["description"]) };
}

/** The values of a select option; they may be grouped. */
function values(option: Said): Named[] {
  return list(option["options"])
    .flatMap((part) => {
      const group = list(object(part)?.["options"]);
      return group.length === 0 ? [part] : group;
    })
    .map((value) => named(value, "value"))
    .filter((value) => value !== null);
}

function configOption(value: unknown): ConfigOption | null {
  const option = object(value);
  const head = named(value, "id");
  if (!option || !head) return null;
  const now = option["currentValue"];
  const current = typeof now === "boolean" || typeof now === "string" ? now : null;
  return { ...head, category: optional(option["category"]), current, values: values(option) };
}

function command(value: unknown): AgentView["commands"][number] | null {
  const one = object(value);
  const name = optional(one?.["name"]);
  if (!one || name === null) return null;
  return { name, description: string(one["description"]), hint: optional(object(one["input"])?.["hint"]) };
}

function planEntry(value: unknown): AgentView["plan"][number] | null {
  const one = object(value);
  const content = optional(one?.["content"]);
  if (!one || content === null) return null;
  return { content, status: optional(one["status"]), priority: optional(one["priority"]) };
}

function list(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}

function count(value: unknown): number | null {
  return typeof value === "number" && Number.isInteger(value) && value >= 0 ? value : null;
}
