#!/usr/bin/env bash
# Guide: docs/guides/backup-upgrade-move.md. Copy the data folder, verify the copy, restore one session.
. "$(dirname "$0")/sandbox.sh"

piton chat --print 'say worth keeping'
session=$(piton sessions list --limit 1 --json | jq -r .session_id)
piton stop
cp -a "$PITON_DATA" "$sandbox/backup"
piton --data "$sandbox/backup" verify

echo 'correct horse' >"$sandbox/passphrase"
piton sessions export "$session" --to "$sandbox/one.piton" --passphrase-file "$sandbox/passphrase"
piton --data "$sandbox/restored" sessions import "$sandbox/one.piton" --passphrase-file "$sandbox/passphrase"
piton --data "$sandbox/restored" sessions show "$session"
