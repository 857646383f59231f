/* gpuann--0.2--0.3.sql: what version 0.3 changes. A fresh CREATE EXTENSION runs the scripts of 0.1 and 0.2 first, which stay as they were published. */
-- complain if script is sourced in psql, rather than via ALTER EXTENSION
\echo Use "ALTER EXTENSION gpuann UPDATE TO '0.3'" to load this file. \quit

-- No engine schedules batches over several units; how even their work would be gpuann_list_placement tells.

DROP FUNCTION gpuann_list_schedule(regclass, integer, text, bigint, float8[], integer, integer, integer);

-- Columns that an index includes take room in it. The function without them stays: gpuann_migrate() calls it.

CREATE FUNCTION gpuann_estimate(rows bigint, dims integer, type regtype, options text[], metric text, include regtype[],
	OUT index_bytes bigint, OUT mirror_bytes bigint, OUT build_memory bigint, OUT build_seconds float8, OUT build_threads integer)
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION gpuann_estimate(bigint, integer, regtype, text[], text, regtype[]) IS
	'what a gpuann index would take: bytes in the file, in a mirror, of maintenance_work_mem to build it in memory; seconds to build it';

-- What gpuann_recall measures, used: the option with which an index reaches a recall.

CREATE FUNCTION gpuann_tune(index regclass, recall float8 DEFAULT 0.95, k integer DEFAULT 10, samples integer DEFAULT 100, apply boolean DEFAULT true,
	OUT option text, OUT value_before integer, OUT recall_before float8, OUT time_before float8,
	OUT value integer, OUT recall_after float8, OUT time_after float8, OUT exact_time float8,
	OUT samples_asked integer, OUT server_share float8, OUT reached boolean, OUT applied boolean)
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;

COMMENT ON FUNCTION gpuann_tune(regclass, float8, integer, integer, boolean) IS
	'set ef_search or probes of a gpuann index to the least value that reaches a recall; recall and milliseconds a query before and after';

-- How long scans took, as percentiles of each index and path.

CREATE FUNCTION gpuann_stat_latency(OUT indexrelid oid, OUT relfilenode oid, OUT path text, OUT scans bigint, OUT p50 float8, OUT p95 float8, OUT p99 float8)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION gpuann_stat_latency() IS 'what pg_stat_gpuann_latency shows, without names';

CREATE VIEW pg_stat_gpuann_latency AS
	SELECT i.indrelid AS relid, s.indexrelid, n.nspname AS schemaname, t.relname, c.relname AS indexrelname, s.path, s.scans, s.p50, s.p95, s.p99
	FROM gpuann_stat_latency() s
		JOIN pg_class c ON c.oid = s.indexrelid AND pg_catalog.pg_relation_filenode(c.oid::regclass) = s.relfilenode
		JOIN pg_index i ON i.indexrelid = c.oid
		JOIN pg_class t ON t.oid = i.indrelid
		JOIN pg_namespace n ON n.oid = t.relnamespace;

COMMENT ON VIEW pg_stat_gpuann_latency IS 'per index and path: milliseconds until the first row, as percentiles of scans';

GRANT SELECT ON pg_stat_gpuann_latency TO PUBLIC;

-- Several machines: the nearest rows of partitions that are foreign tables.

CREATE FUNCTION gpuann_parts_query(relation regclass, distance text, k integer DEFAULT 10, columns text DEFAULT NULL,
	condition text DEFAULT NULL, without text[] DEFAULT '{}') RETURNS text
	AS 'MODULE_PATHNAME' LANGUAGE C STABLE PARALLEL SAFE;

COMMENT ON FUNCTION gpuann_parts_query(regclass, text, integer, text, text, text[]) IS
	'the query for the k nearest rows of a partitioned table, with the LIMIT in each part: all servers search at once';

-- Batches from one session.

CREATE FUNCTION gpuann_search(index regclass, vectors anyarray, k integer DEFAULT 10, ef integer DEFAULT NULL,
	OUT query integer, OUT rank integer, OUT tid tid, OUT distance float8)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 1000;

COMMENT ON FUNCTION gpuann_search(regclass, anyarray, integer, integer) IS
	'the k nearest rows of each of many vectors, asked for in batches';

CREATE FUNCTION gpuann_knn_graph(index regclass, k integer DEFAULT 10, ef integer DEFAULT NULL, exact boolean DEFAULT false,
	OUT tid tid, OUT neighbour tid, OUT distance float8)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 100000;

COMMENT ON FUNCTION gpuann_knn_graph(regclass, integer, integer, boolean) IS
	'the k nearest other rows of each row of a gpuann index, asked for in batches';
