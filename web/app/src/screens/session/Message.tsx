import type { Item } from "piton-client";
import { memo } from "preact/compat";
import { agentName } from "../../data/agents.ts";
import { count } from "../../lib/format.ts";
import { Markdown } from "../../lib/markdown.tsx";
import { readable } from "../../lib/text.ts";
import { Ago, Disclosure } from "../../ui/parts.tsx";
import { PlainText } from "../../ui/PlainText.tsx";
import { ImageBlock } from "./ImageBlock.tsx";
import { Notice } from "./Notice.tsx";
import { ToolCall } from "./ToolCall.tsx";

/** A pasted log must not push the conversation away. */
const PROMPT_LINES_SHOWN = 24;

type UserItem = Extract<Item, { type: "user" }>;
type AgentItem = Extract<Item, { type: "agent" }>;

export type MessageContext = { agent: string | null; folder: string | null; /** The agent works at this moment. */ isLive: boolean };

export function keyOfItem(item: Item): string {
  if (item.type === "tool") return `${item.run_id}/${item.call_id}`;
  return item.type === "notice" ? `notice ${item.seq}` : item.message_id;
}

export const Message = memo(({ item, agent, folder, isLive }: { item: Item } & MessageContext) => {
  switch (item.type) {
    case "user":
      return <UserMessage item={item} />;
    case "agent":
      return item.channel === "thought" ? <Thought item={item} isLive={isLive} /> : <Answer item={item} agent={agent} isLive={isLive} />;
    case "tool":
      return <ToolCall item={item} folder={folder} />;
    case "notice":
      return <Notice item={item} agent={agent} />;
  }
});

function Redacted() {
  return <p class="muted">[This content was redacted]</p>;
}

function UserMessage({ item }: { item: UserItem }) {
  return (
    <div class="message" data-role="user">
      <h3 class="message-head">
        <span>You</span>
        <Ago at={item.ts} />
      </h3>
      <div class="user-text">
        {item.text === null ? <Redacted /> : <UserContent item={item} />}
      </div>
    </div>
  );
}

function UserContent({ item }: { item: UserItem }) {
  if (typeof item.content === "string" || item.content === null) return <PlainText text={readable(item.text ?? "")} lines={PROMPT_LINES_SHOWN} />;
  return (
    <>
      {item.content.map((block, at) => {
        if (block.type === "text") return <PlainText key={at} text={readable(block.text)} lines={PROMPT_LINES_SHOWN} />;
        if (block.type === "image") return <ImageBlock key={at} data={block.data} mimeType={block.mimeType} alt="Attached image" />;
        return (
          <p class="muted small" key={at}>
            Attached: {block.type === "resource_link" ? block.name : block.type === "resource" ? block.resource.uri : block.type}
          </p>
        );
      })}
    </>
  );
}

function Answer({ item, agent, isLive }: { item: AgentItem; agent: string | null; isLive: boolean }) {
  return (
    <div class="message" data-role="agent" data-streaming={!item.complete && isLive ? "" : undefined}>
      <h3 class="message-head">
        <span>{agentName(agent)}</span>
        <Ago at={item.ts} />
      </h3>
      {item.text === null ? <Redacted /> : <Markdown text={item.text} />}
      {item.truncated && <p class="tool-note">A part of this message was over a limit and is missing.</p>}
      {!item.complete && !isLive && <p class="tool-note">This answer was cut off.</p>}
    </div>
  );
}

function Thought({ item, isLive }: { item: AgentItem; isLive: boolean }) {
  const text = item.text ?? "";
  const words = text.split(/\s+/).filter(Boolean).length;
  return (
    <Disclosure
      class="thought"
      summary={
        <span class="muted">
          {!item.complete && isLive ? "Thinking" : "Thought"} <span class="small">· {count(words)} words</span>
        </span>
      }
    >
      <div class="thought-text">{item.text === null ? <Redacted /> : <Markdown text={text} />}</div>
    </Disclosure>
  );
}
