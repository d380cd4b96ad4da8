#!/bin/sh
# Lets the standby in; run once by the database's image when its folder is made.
set -eu
echo "host replication wayleave all scram-sha-256" >> "$PGDATA/pg_hba.conf"
