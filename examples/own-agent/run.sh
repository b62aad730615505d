#!/usr/bin/env bash
# Guide: docs/guides/your-own-agent.md. An ACP agent and a program without a protocol, each ended between two prompts.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../sandbox.sh"
export PITON_CONFIG=$here/config.toml CAPITALS_HOME=$sandbox/capitals

piton agents probe capitals
for agent in capitals oneshot; do
    piton chat --agent "$agent" --print 'the first prompt'   # the agent ends with the run
    session=$(piton sessions list --limit 1 --json | jq -r .session_id)
    piton sessions prompt "$session" 'the second prompt'     # starts it again, with its conversation
    piton attach "$session" </dev/null
    piton sessions show "$session" --json | jq -r '"context: \(.context)"'
done
