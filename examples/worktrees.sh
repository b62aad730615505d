#!/usr/bin/env bash
# Guide: docs/guides/worktrees.md. Two sessions work on one task, each on its own branch.
. "$(dirname "$0")/sandbox.sh"

piton serve >/dev/null 2>&1 &                                              # tasks need a server
until piton status >/dev/null 2>&1; do sleep 0.1; done
task=$(piton tasks new 'Try two ways' --repo . --json | jq -r .task_id)   # the task and its first session
piton sessions new --repo . --task "$task"                                 # a second one beside it
for session in $(piton sessions list --task "$task" --json | jq -r .session_id); do
    piton sessions prompt "$session" "write way.txt the way of $session"
    piton attach "$session" </dev/null
done
git worktree list
piton tasks show "$task"
piton sessions cleanup "$session" || echo 'Refused: way.txt is nowhere else'
piton sessions cleanup "$session" --force
