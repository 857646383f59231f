#!/bin/sh
#
# initdb.sh
#		What compose.yaml has PostgreSQL's image do when it has made the cluster: the extension, and the role of postgres_exporter.

set -eu
psql -X -v ON_ERROR_STOP=1 --username "${POSTGRES_USER:-postgres}" --dbname "${POSTGRES_DB:-postgres}" <<'SQL'
\getenv password EXPORTER_PASSWORD
CREATE EXTENSION gpuann CASCADE;
CREATE ROLE exporter LOGIN PASSWORD :'password' IN ROLE pg_monitor;
SQL
