#!/bin/sh
# Lets the standby in, and lets every commit wait for it from the next start on; run once by the database's image when its
# folder is made. Not earlier: what the image itself commits then would wait for a standby that cannot be there yet.
set -eu
echo "host replication wayleave all scram-sha-256" >> "$PGDATA/pg_hba.conf"
psql --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" --command "ALTER SYSTEM SET synchronous_standby_names = 'db_2'"
