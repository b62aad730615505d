#!/usr/bin/env bash
# Guide: docs/guides/remote.md. Answer a question over HTTP, with an access token and with a resume token.
. "$(dirname "$0")/sandbox.sh"

piton chat --print 'ask May I deploy?' || test $? = 5
address=$(piton status --json | jq -r .address)
token=$(piton tokens new phone --scope read --scope control --expires-in 30d --json | jq -r .token)
auth="Authorization: Bearer $token"
json='Content-Type: application/json'

wait=$(curl -fsS -H "$auth" "$address/api/v1/waits" | jq -r '.waits[0].wait_id')
curl -fsS -H "$auth" -H "$json" -d '{"answer": {"option_id": "allow_once"}}' "$address/api/v1/waits/$wait/answer"
echo

# Someone who has no access token answers one question, once.
piton chat --print 'ask And publish?' || test $? = 5
session=$(piton sessions list --limit 1 --json | jq -r .session_id)
secret=$(piton sessions resume-token "$session" --json | jq -r .token)
curl -fsS -H "$json" -d "{\"token\": \"$secret\", \"answer\": {\"option_id\": \"allow_once\"}}" \
    "$address/api/v1/resume-tokens/${secret%%.*}"
echo
piton attach "$session" </dev/null
