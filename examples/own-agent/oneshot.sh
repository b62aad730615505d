#!/usr/bin/env bash
# An agent without a protocol: Piton starts it once per prompt, writes the prompt to its stdin and reads
# one JSON message per line. The first names the conversation, so that the next prompt can continue it.
set -euo pipefail
conversation=${1:-$(date +%s)-$$}
prompt=$(cat)
printf '{"type":"system","subtype":"init","session_id":"%s"}\n' "$conversation"
text=$(jq -Rs '"You said: " + rtrimstr("\n")' <<<"$prompt")
printf '{"type":"assistant","session_id":"%s","message":{"role":"assistant","content":[{"type":"text","text":%s}]}}\n' "$conversation" "$text"
printf '{"type":"result","subtype":"success","is_error":false,"session_id":"%s"}\n' "$conversation"
