#!/bin/sh
# Measures how a server grows: fills one with HOSTS hosts and URLS URLs (a million and ten million if not said) and another
# with a tenth of that; of each the memory, the time from a start after kill -9 to the first reservation, and the rates in and
# out. Takes about five minutes.
set -eu
cd "$(dirname "$0")/.."
cargo build --release --bin wayleave
hosts="${HOSTS:-1000000}"
urls="${URLS:-10000000}"
address="127.0.0.1:${PORT:-7171}"
folder="$(mktemp -d)"
server=

serve() {
    target/release/wayleave serve --listen "$address" --data "$folder/data" >"$folder/log" 2>&1 &
    server=$!
}

stop() {
    kill "$1" "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
}

trap 'stop -TERM; rm -rf "$folder"' EXIT INT TERM

alive() {
    kill -0 "$server" 2>/dev/null || { cat "$folder/log" >&2; exit 1; }
}

bench() {
    target/release/wayleave bench --no-null --address "$address" --pid "$server" --rounds 1 "$@" 2>/dev/null
}

queued() {
    curl -fs "http://$address/v1/stats" | sed 's/.*"queued":\([0-9]*\).*/\1/'
}

reserve() {
    curl -fs "http://$address/v1/reservations" -H 'content-type: application/json' \
        -d '{"holder":"scale","groups":1,"urls":1,"wait_ms":10000}' | grep -q token
}

measure() { # hosts urls
    rm -rf "$folder/data"
    serve
    seed=1
    until curl -fs "http://$address/readyz" >/dev/null 2>&1; do
        alive
        sleep 0.1
    done
    while [ "$(queued)" -lt "$2" ]; do
        bench --scenario put-batches-4 --hosts "$1" --known 0 --seed "$seed" --seconds 4 >/dev/null
        seed=$((seed + 1))
        alive
    done
    loaded="$(queued)"
    memory="$(awk '/VmRSS/ { print int($2 / 1024) }' "/proc/$server/status")"
    stop -KILL
    start="$(date +%s%N)"
    serve
    until reserve; do
        alive
        sleep 0.01
    done
    ready="$(((($(date +%s%N)) - start) / 1000000))"
    after="$(awk '/VmRSS/ { print int($2 / 1024) }' "/proc/$server/status")"
    # What was loaded last is still being merged; each round waits until the server rests. Then it lasts long enough for what
    # it brings itself to be merged meanwhile, and no longer than the URLs of a tenth: three a host, or ten.
    rates="$({
        bench --scenario put-batches-4 --hosts "$1" --seconds 8
        bench --scenario get-10x1-4 --hosts "$1" --urls "$((3 * $1))" --seconds 8
        bench --scenario get-100x10 --hosts "$1" --urls "$((10 * $1))" --seconds 7
    } | awk '$1 != "scenario" { printf "%s ", $2 }')"
    stop -TERM
    echo "$1 $loaded $memory $ready $after $rates" | tee -a "$folder/rows" |
        awk '{ printf "%d hosts, %d URLs: %d MiB; kill -9 to the first reservation %d ms, then %d MiB;", $1, $2, $3, $4, $5
               printf " URLs/s in %d, out 10x1 with 4 clients %d, out 100x10 %d\n", $6, $7, $8 }'
}

measure "$((hosts / 10))" "$((urls / 10))"
measure "$hosts" "$urls"
awk 'NR == 1 { split($0, a) }
     NR == 2 { printf "of the rates at a tenth: in %.2f, out 10x1 %.2f, out 100x10 %.2f\n", $6 / a[6], $7 / a[7], $8 / a[8] }' \
    "$folder/rows"
