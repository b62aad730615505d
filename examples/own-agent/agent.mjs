#!/usr/bin/env node
// The smallest agent that Piton can run: it speaks the Agent Client Protocol (one JSON-RPC message per
// line on stdin and stdout), answers each prompt with its own text in capitals, and can load a
// conversation again after it was ended.
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { randomUUID } from 'node:crypto';

const folder = process.env.CAPITALS_HOME ?? join(homedir(), '.capitals');
mkdirSync(folder, { recursive: true });
const file = (id) => join(folder, `${id.replace(/[^\w-]/g, '')}.json`);
const send = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
const say = (sessionId, sessionUpdate, text) =>
  send({ method: 'session/update', params: { sessionId, update: { sessionUpdate, content: { type: 'text', text } } } });

const methods = {
  initialize: () => ({
    protocolVersion: 1,
    agentCapabilities: { loadSession: true },
    agentInfo: { name: 'capitals', version: '1.0.0' },
  }),
  'session/new': () => {
    const sessionId = randomUUID();
    writeFileSync(file(sessionId), '[]');
    return { sessionId };
  },
  // Replays the conversation before it answers, as the protocol demands.
  'session/load': ({ sessionId }) => {
    if (!existsSync(file(sessionId))) throw { code: -32002, message: `Session not found: ${sessionId}` };
    for (const [update, text] of JSON.parse(readFileSync(file(sessionId), 'utf8'))) say(sessionId, update, text);
    return {};
  },
  'session/prompt': ({ sessionId, prompt }) => {
    const text = prompt.filter((block) => block.type === 'text').map((block) => block.text).join('\n');
    const answer = text.toUpperCase();
    const past = JSON.parse(readFileSync(file(sessionId), 'utf8'));
    writeFileSync(file(sessionId), JSON.stringify([...past, ['user_message_chunk', text], ['agent_message_chunk', answer]]));
    say(sessionId, 'agent_message_chunk', answer);
    return { stopReason: 'end_turn' };
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) continue; // a notification, such as session/cancel
  try {
    if (!methods[method]) throw { code: -32601, message: `Method not found: ${method}` };
    send({ id, result: methods[method](params) });
  } catch ({ code = -32603, message }) {
    send({ id, error: { code, message } });
  }
}
