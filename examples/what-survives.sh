#!/usr/bin/env bash
# Guide: docs/concepts/what-survives.md. Kills the server, the agent and agentctl in the middle of their
# work, and checks what is left. It uses a data folder of its own and the built-in agent: no API key, no
# network. Needs jq.
set -euo pipefail

PITON_DATA=$(mktemp -d)
export PITON_DATA PITON_SERVER_LISTEN=127.0.0.1:0
cleanup() {
    piton stop >/dev/null 2>&1 || true
    rm -rf "$PITON_DATA" # an agent whose data folder is gone ends by itself
}
trap cleanup EXIT

fail() {
    printf 'NOT AS PROMISED: %s\n' "$*" >&2
    exit 1
}
field() { piton sessions show "$1" --json | jq -r "$2"; }
# until_is SESSION FIELD VALUE: waits for 20 s at most.
until_is() {
    for _ in $(seq 200); do
        [ "$(field "$1" "$2")" = "$3" ] && return
        sleep 0.1
    done
    fail "$2 of the session is $(field "$1" "$2"), not $3"
}
# said SESSION TEXT: whether the conversation has it. `attach` ends with 4 after an interrupted run.
said() {
    local all
    all=$(piton attach "$1" </dev/null 2>/dev/null || true)
    [[ $all == *"$2"* ]]
}
new() { piton sessions new --agent echo --json | jq -r .session_id; }
agentctl_of() { cat "$PITON_DATA/run/$(field "$1" .executor.agent_execution_id)/lock"; }

echo '1. The server is killed while the agent asks, with a prompt in the queue'
session=$(new)
piton sessions prompt "$session" 'ask May I?' >/dev/null
piton sessions prompt "$session" 'say the queued prompt' --if-busy queue >/dev/null
until_is "$session" .status waiting
agent=$(field "$session" .executor.agent_session_id)
kill -9 "$(piton status --json | jq .pid)"
while piton status >/dev/null 2>&1; do sleep 0.1; done
piton sessions answer "$session" 1 >/dev/null # starts a server, which finds the agent
until_is "$session" .status idle
[ "$(field "$session" .executor.agent_session_id)" = "$agent" ] || fail 'another agent'
said "$session" '
the queued prompt' || fail 'the queued prompt was not delivered'
echo '   The same agent got the answer and then the queued prompt.'

echo '2. agentctl and its agent are killed in the middle of an answer'
session=$(new)
piton sessions prompt "$session" 'stream 1000 20' >/dev/null
until_is "$session" .status running
sleep 1
kill -9 "$(agentctl_of "$session")"
until_is "$session" .status interrupted_startup
[ "$(field "$session" .interruption.phase)" = answering ] || fail 'the phase is not known'
said "$session" 'chunk 1 chunk 2' || fail 'the partial answer is gone'
echo '   The run is interrupted, and what the agent said is in the log.'

echo '3. The session is resumed'
piton sessions resume "$session" --continue >/dev/null
until_is "$session" .status idle
[ "$(field "$session" .context)" = native ] || fail 'the agent does not have its conversation'
echo '   A new agent has the conversation and continued the run.'

echo '4. Every record is as it was written'
piton verify >/dev/null || fail 'verify found something'
echo '   piton verify agrees.'
for id in $(piton sessions list --json | jq -r .session_id); do piton sessions close "$id" >/dev/null; done
