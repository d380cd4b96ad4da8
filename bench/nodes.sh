#!/usr/bin/env bash
# URLs in and out through 1, 2 and 3 nodes over one PostgreSQL on this machine, durable; rows a commit; one compare-and-swap
# an operation beside it; and hosts while a node is added and removed.
#
#   cargo build --release --bin wayleave && bench/nodes.sh
#   HERDS=10 bench/nodes.sh    # only herds of idle callers, on one node and on three, with that many seconds for each
#   LIMITS=1,1000 bench/nodes.sh # only page limits: that many crawls with and without them, on three nodes
#
# Needs Debian's postgresql package (initdb, pgbench). Everything lies in a temporary folder and is removed afterwards.
set -euo pipefail

wayleave=${WAYLEAVE:-target/release/wayleave}
seconds=${SECONDS_EACH:-9}
bin=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -1)
folder=$(mktemp -d)
port=${PORT:-25432}
first=${FIRST:-27071}
as=()
if [ "$(id -u)" = 0 ]; then
  as=(runuser -u postgres --)
  chown postgres "$folder"
fi
declare -A pids

finish() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait || true
  (cd / && "${as[@]}" "$bin/pg_ctl" -D "$folder/pg" -m immediate stop >/dev/null 2>&1) || true
  rm -rf "$folder"
}
trap finish EXIT

sql() { (cd / && psql -qAt -h 127.0.0.1 -p "$port" -U postgres "$@"); }
database() { sql -c "DROP DATABASE IF EXISTS w WITH (FORCE)" -c "CREATE DATABASE w"; }
start() { # node number
  "$wayleave" serve --engine "postgres://postgres@127.0.0.1:$port/w" --listen "127.0.0.1:$((first + $1))" \
    --node "node-$1" --node-ttl-ms 3000 >"$folder/node-$1.log" 2>&1 &
  pids[$1]=$!
  for _ in $(seq 200); do
    grep -q ready "$folder/node-$1.log" && return
    sleep 0.05
  done
  cat "$folder/node-$1.log" >&2
  exit 1
}
stop() { # node number
  kill "${pids[$1]}"
  wait "${pids[$1]}" 2>/dev/null || true
  unset "pids[$1]"
}
even() { # number of nodes: waits until the shards are spread
  for _ in $(seq 100); do
    "$wayleave" --server "http://127.0.0.1:$((first + 1))" --json nodes >"$folder/nodes.json"
    [ "$(grep -c '"shards": [1-9]' "$folder/nodes.json")" -gt "$1" ] && return
    sleep 0.1
  done
}
work() { sql -d w -c "SELECT xact_commit, tup_inserted + tup_updated + tup_deleted FROM pg_stat_database WHERE datname = 'w'"; }

(cd / && "${as[@]}" "$bin/initdb" -D "$folder/pg" -A trust -U postgres >/dev/null)
(cd / && "${as[@]}" "$bin/pg_ctl" -D "$folder/pg" -w -l "$folder/pg.log" \
  -o "-p $port -k $folder -c listen_addresses=127.0.0.1 -c shared_buffers=512MB -c max_wal_size=8GB" start >/dev/null)

if [ -n "${HERDS:-}" ]; then
  for nodes in ${NODES:-1 3}; do
    echo "== herds on $nodes node(s)"
    database
    addresses=
    for n in $(seq "$nodes"); do
      start "$n"
      addresses+=${addresses:+,}127.0.0.1:$((first + n))
    done
    even "$nodes"
    "$wayleave" bench --scenario "${SCENARIO:-herds}" --address "$addresses" --seconds "$HERDS" --waiters "${WAITERS:-1,100,10000}" \
      --pid "$(IFS=,; echo "${pids[*]}")"
    for n in $(seq "$nodes"); do stop "$n"; done
  done
  exit
fi

if [ -n "${LIMITS:-}" ]; then
  database
  for n in 1 2 3; do start "$n"; done
  even 3
  "$(dirname "$0")/limits.py" --crawls "$LIMITS" --address "$(printf '127.0.0.1:%s,' $((first + 1)) $((first + 2)))127.0.0.1:$((first + 3))" \
    --pid "$(IFS=,; echo "${pids[*]}")" --database "postgres://postgres@127.0.0.1:$port/w"
  for n in 1 2 3; do stop "$n"; done
  exit
fi

echo "== one compare-and-swap an operation (pgbench, 8 clients, one row each, synced)"
database
sql -d w -c "CREATE TABLE cas (key bytea PRIMARY KEY, version bigint, value bytea)" \
  -c "INSERT INTO cas SELECT int8send(n), 0, '\\x00' FROM generate_series(1, 100000) n"
cat >"$folder/cas.sql" <<'SQL'
\set n random(1, 100000)
UPDATE cas SET version = version + 1, value = '\x01' WHERE key = int8send(:n) AND version >= 0;
SQL
(cd / && "$bin/pgbench" -h 127.0.0.1 -p "$port" -U postgres -n -M prepared -c 8 -j 2 -T "$seconds" -f "$folder/cas.sql" w) |
  grep -E "^tps|latency average"

for nodes in 1 2 3; do
  echo "== $nodes node(s)"
  database
  addresses=
  for n in $(seq "$nodes"); do
    start "$n"
    addresses+=${addresses:+,}127.0.0.1:$((first + n))
  done
  even "$nodes"
  before=$(work)
  "$wayleave" bench --urls 200000 --address "$addresses" --no-null --scenario put-4,put-batches-4 --seconds "$seconds" --hosts 20000
  sleep 1.5
  echo "commits and rows before: $before, after: $(work)"
  "$wayleave" bench --address "$addresses" --no-null --scenario get-10x1-4,native-cycle --seconds "$seconds" \
    --hosts 20000 --urls 50000
  for n in $(seq "$nodes"); do stop "$n"; done
done

echo "== 200 hosts while node 3 is added and removed again and again"
database
start 1
start 2
even 2
"$wayleave" bench --address "127.0.0.1:$((first + 1)),127.0.0.1:$((first + 2))" --churn --seconds 30 >"$folder/churn" &
churn=$!
for _ in 1 2 3 4; do
  sleep 3
  start 3
  sleep 3
  stop 3
done
wait "$churn"
cat "$folder/churn"
