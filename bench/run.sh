#!/bin/sh
# Measures a fresh server: builds it, starts it on an empty folder, runs the scenarios, stops it.
# Arguments go to `wayleave bench`, for example: bench/run.sh --scenario put --seconds 12
set -eu
cd "$(dirname "$0")/.."
cargo build --release --bin wayleave
port="${PORT:-7171}"
data="$(mktemp -d)"
target/release/wayleave serve --listen "127.0.0.1:$port" --data "$data" >"$data.log" 2>&1 &
server=$!
trap 'kill "$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; rm -rf "$data"' EXIT INT TERM
for _ in $(seq 100); do
    if curl -fs "http://127.0.0.1:$port/readyz" >/dev/null; then break; fi
    kill -0 "$server" 2>/dev/null || { cat "$data.log" >&2; exit 1; }
    sleep 0.1
done
target/release/wayleave bench --address "127.0.0.1:$port" --pid "$server" "$@"
