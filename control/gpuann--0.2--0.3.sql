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
