#!/bin/bash
# Stands in for the start script of PostgreSQL's image: as much of it as deploy/compose.yaml relies on.
set -e
if [ "$1" = postgres ] && [ "$(id -u)" = 0 ]; then
    chown postgres: "$PGDATA" && chmod 700 "$PGDATA"
    exec setpriv --reuid=postgres --regid=postgres --init-groups "$0" "$@"
fi
if [ "$1" = postgres ] && [ ! -s "$PGDATA/PG_VERSION" ]; then
    # shellcheck disable=SC2086 # words
    initdb --username="$POSTGRES_USER" --pwfile=<(echo "$POSTGRES_PASSWORD") $POSTGRES_INITDB_ARGS
    echo "listen_addresses = '*'" >> "$PGDATA/postgresql.conf"
    echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
    pg_ctl --wait start --options="-c listen_addresses=''"
    createdb --username="$POSTGRES_USER" "$POSTGRES_DB" 2>/dev/null || true
    for script in /docker-entrypoint-initdb.d/*.sh; do
        # shellcheck disable=SC1090 # as the image does
        if [ -x "$script" ]; then "$script"; else . "$script"; fi
    done
    pg_ctl --wait --mode=fast stop
fi
exec "$@"
