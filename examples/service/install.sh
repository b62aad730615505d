#!/usr/bin/env bash
# Guide: docs/guides/service.md. Install Piton as a service of your user and start it.
set -euo pipefail
cd "$(dirname "$0")"
units=${XDG_CONFIG_HOME:-$HOME/.config}/systemd/user
mkdir -p "$units"
# The unit names the program where `cargo install` puts it; use the one in the PATH instead.
sed "s|%h/.cargo/bin/piton|$(command -v piton)|" piton.service >"$units/piton.service"
systemctl --user daemon-reload
systemctl --user enable --now piton
loginctl enable-linger
piton doctor
