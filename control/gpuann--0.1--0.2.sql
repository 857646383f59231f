/* gpuann--0.1--0.2.sql: what version 0.2 changes. A fresh CREATE EXTENSION runs gpuann--0.1.sql first, which stays as it was published. */
-- complain if script is sourced in psql, rather than via ALTER EXTENSION
\echo Use "ALTER EXTENSION gpuann UPDATE TO '0.2'" to load this file. \quit

-- pg_stat_gpuann counts scans that pages answer because gpuann.engine = auto finds no GPU, and rows of each index, those that are not linked apart.
-- The view keeps its columns in their places, with what depends on them: it is given the new function before the old one goes.

ALTER FUNCTION gpuann_stat_indexes() RENAME TO gpuann_stat_indexes_0_1;

CREATE FUNCTION gpuann_stat_indexes(
	OUT indexrelid oid, OUT relfilenode oid, OUT state text, OUT reason text,
	OUT scans bigint, OUT server_answers bigint, OUT page_answers bigint,
	OUT fallback_off bigint, OUT fallback_no_server bigint, OUT fallback_not_loaded bigint,
	OUT fallback_refused bigint, OUT fallback_behind bigint, OUT fallback_timeout bigint,
	OUT fallback_server_died bigint, OUT fallback_engine_error bigint, OUT fallback_invalid_answer bigint,
	OUT fallback_slot_busy bigint, OUT fallback_too_large bigint, OUT fallback_no_gpu bigint,
	OUT proposed bigint, OUT dropped bigint, OUT pending_searched bigint, OUT continuations bigint,
	OUT batches bigint, OUT batched_queries bigint, OUT queue_time float8, OUT engine_time float8,
	OUT evictions bigint, OUT stats_reset timestamptz,
	OUT mirror_rows bigint, OUT mirror_bytes bigint, OUT mirror_host_bytes bigint, OUT mirror_position bigint, OUT mirror_lag bigint,
	OUT mirror_changes bigint, OUT mirror_change_lag bigint, OUT worker_pid integer,
	OUT index_rows bigint, OUT pending_rows bigint)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME', 'gpuann_stat_indexes_0_2' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION gpuann_stat_indexes() IS 'what pg_stat_gpuann shows, without names';

CREATE OR REPLACE VIEW pg_stat_gpuann AS
	SELECT i.indrelid AS relid, s.indexrelid, n.nspname AS schemaname, t.relname, c.relname AS indexrelname,
		s.state, s.reason, s.scans, s.server_answers, s.page_answers,
		s.fallback_off, s.fallback_no_server, s.fallback_not_loaded, s.fallback_refused, s.fallback_behind,
		s.fallback_timeout, s.fallback_server_died, s.fallback_engine_error, s.fallback_invalid_answer,
		s.fallback_slot_busy, s.fallback_too_large,
		s.proposed, s.dropped, s.pending_searched, s.continuations,
		s.batches, s.batched_queries, s.batched_queries::float8 / nullif(s.batches, 0) AS mean_batch,
		s.queue_time, s.engine_time,
		s.mirror_rows, s.mirror_bytes, s.mirror_host_bytes, s.mirror_position, s.mirror_lag, s.mirror_changes, s.mirror_change_lag, s.worker_pid, s.evictions, s.stats_reset,
		s.fallback_no_gpu, s.index_rows, s.pending_rows
	FROM gpuann_stat_indexes() s
		JOIN pg_class c ON c.oid = s.indexrelid AND pg_relation_filenode(c.oid) = s.relfilenode
		JOIN pg_index i ON i.indexrelid = c.oid
		JOIN pg_class t ON t.oid = i.indrelid
		JOIN pg_namespace n ON n.oid = t.relnamespace;

DROP FUNCTION gpuann_stat_indexes_0_1();

-- gpuann_stats counts rows where it counted slots with a row.

DROP FUNCTION gpuann_stats(regclass);

CREATE FUNCTION gpuann_stats(index regclass,
	OUT live_rows bigint, OUT dead_rows bigint, OUT detached_slots bigint, OUT free_slots bigint, OUT absent_slots bigint,
	OUT linked bigint, OUT pending bigint,
	OUT trimmed_position bigint, OUT linked_position bigint, OUT end_position bigint,
	OUT min_degree integer, OUT avg_degree float8, OUT max_degree integer, OUT degrees integer[],
	OUT reachable float8, OUT seeds bigint,
	OUT meta_bytes bigint, OUT seed_bytes bigint, OUT list_bytes bigint, OUT node_bytes bigint, OUT vector_bytes bigint,
	OUT unused_bytes bigint,
	OUT format_version integer, OUT m integer, OUT ef_construction integer, OUT dimensions integer,
	OUT type text, OUT metric text, OUT nonce text, OUT changes bigint)
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

COMMENT ON FUNCTION gpuann_stats(regclass) IS
	'what a gpuann index holds: rows by state, pending list, graph, bytes by part, format';

-- What replaces pgvector's indexes. Names are bound here, so no search_path changes what it means.

CREATE FUNCTION gpuann_migrate(OUT index regclass, OUT step text, OUT statement text, OUT index_bytes bigint, OUT new_bytes bigint,
	OUT build_seconds float8, OUT note text)
	RETURNS SETOF record LANGUAGE sql VOLATILE PARALLEL RESTRICTED
BEGIN ATOMIC
	WITH defined AS (
		SELECT x.indexrelid, x.indrelid, c.relname, c.relkind, c.relispartition, am.amname, o.opcname, o.opcintype,
			pg_get_indexdef(x.indexrelid, 1, false) AS key, coalesce(pg_get_expr(x.indpred, x.indrelid), '') AS predicate,
			a.atttypmod AS dims, greatest(c.reltuples, 0)::bigint AS tuples, s.spcname,
			CASE am.amname WHEN 'hnsw' THEN c.reloptions END AS options, x.indisvalid AS valid,
			EXISTS (SELECT FROM pg_stat_progress_create_index p WHERE p.index_relid = x.indexrelid) AS in_build
		FROM pg_index x
			JOIN pg_class c ON c.oid = x.indexrelid
			JOIN pg_class t ON t.oid = x.indrelid
			JOIN pg_am am ON am.oid = c.relam AND am.amname IN ('hnsw', 'ivfflat', 'gpuann')
			JOIN pg_opclass o ON o.oid = x.indclass[0]
			JOIN pg_attribute a ON a.attrelid = x.indexrelid AND a.attnum = 1
			LEFT JOIN pg_tablespace s ON s.oid = c.reltablespace
		WHERE pg_has_role(t.relowner, 'USAGE') AND NOT pg_is_other_temp_schema(c.relnamespace)
	), twins AS (
		SELECT d.*, w.indexrelid AS twin, w.valid AS twin_valid, w.in_build AS twin_in_build,
			w.relname = left(d.relname, 56) || '_gpuann' AS twin_has_our_name,
			row_number() OVER (PARTITION BY d.indrelid, d.opcintype, d.opcname, d.key, d.predicate ORDER BY d.indexrelid) > 1 AS repeated
		FROM defined d
			LEFT JOIN LATERAL (
				SELECT * FROM defined w
				WHERE w.amname = 'gpuann' AND w.indrelid = d.indrelid AND w.opcintype = d.opcintype AND w.opcname = d.opcname
					AND w.key = d.key AND w.predicate = d.predicate
				ORDER BY w.valid DESC, w.indexrelid LIMIT 1) w ON true
		WHERE d.amname <> 'gpuann'
	), steps AS (
		SELECT t.*, CASE WHEN pg_opclass_is_visible(g.oid) THEN '' ELSE quote_ident(n.nspname) || '.' END || quote_ident(g.opcname) AS class,
			CASE
				WHEN g.oid IS NULL THEN 'none'
				WHEN t.relispartition AND (t.twin_valid OR t.relkind = 'I') THEN 'wait'
				WHEN t.twin_valid THEN 'drop'
				WHEN t.twin_in_build OR t.repeated THEN 'wait'
				WHEN t.twin IS NOT NULL THEN 'drop failed build'
				WHEN EXISTS (SELECT FROM pg_partition_tree(t.indexrelid) p JOIN twins l ON l.indexrelid = p.relid
					WHERE t.relkind = 'I' AND l.relkind = 'i' AND l.twin_valid IS NOT TRUE) THEN 'wait'
				ELSE 'create' END AS does
		FROM twins t
			LEFT JOIN pg_opclass g ON g.opcname = t.opcname AND g.opcintype = t.opcintype
				AND g.opcmethod = (SELECT oid FROM pg_am WHERE amname = 'gpuann')
			LEFT JOIN pg_namespace n ON n.oid = g.opcnamespace
	)
	SELECT t.indexrelid::regclass, s.step, s.statement, pg_relation_size(t.indexrelid), e.index_bytes, e.build_seconds,
		CASE
			WHEN t.does = 'none' THEN format('gpuann has no operator class %s; an index on a cast may do', t.opcname)
			WHEN t.twin_in_build THEN t.twin::regclass || ' is being built'
			WHEN t.does = 'wait' AND t.repeated THEN 'waits for another index like it'
			WHEN t.does = 'wait' AND t.relispartition THEN 'replaced with the index of the partitioned table'
			WHEN t.does = 'wait' THEN 'waits for the indexes of its partitions'
		END
	FROM steps t
		LEFT JOIN LATERAL gpuann_estimate(
			CASE WHEN t.does = 'create' AND t.relkind = 'i' THEN nullif(t.tuples, 0) END,
			t.dims, t.opcintype::regtype, coalesce(t.options, '{}'), split_part(t.opcname, '_', 2)) e ON true
		CROSS JOIN LATERAL (
			SELECT 1 AS place, t.does AS step, CASE t.does
				WHEN 'create' THEN format('CREATE INDEX %s%I ON %s USING gpuann (%s %s)%s%s%s',
					CASE t.relkind WHEN 'i' THEN 'CONCURRENTLY ' END, left(t.relname, 56) || '_gpuann', t.indrelid::regclass, t.key, t.class,
					' WITH (' || array_to_string(t.options, ', ') || ')', ' TABLESPACE ' || quote_ident(t.spcname),
					' WHERE ' || nullif(t.predicate, ''))
				WHEN 'drop failed build' THEN format('DROP INDEX CONCURRENTLY %s', t.twin::regclass)
				WHEN 'drop' THEN format('DROP INDEX %s%s', CASE t.relkind WHEN 'i' THEN 'CONCURRENTLY ' END, t.indexrelid::regclass)
				END AS statement
			UNION ALL
			SELECT 2, 'rename', format('ALTER INDEX %s RENAME TO %I', t.twin::regclass, t.relname) WHERE t.does = 'drop' AND t.twin_has_our_name
		) s
	ORDER BY t.does = 'wait', t.indrelid, t.indexrelid, s.place;
END;

COMMENT ON FUNCTION gpuann_migrate() IS 'what replaces the hnsw and ivfflat indexes that the caller owns: for each the next statements, for \gexec';

-- Indexes with lists (method = ivfpq).

CREATE FUNCTION gpuann_lists(index regclass,
	OUT lists integer, OUT rows bigint, OUT empty_lists integer,
	OUT least_rows bigint, OUT mean_rows float8, OUT most_rows bigint,
	OUT quantizer text, OUT code_bits integer, OUT code_bytes integer,
	OUT posting_bytes bigint, OUT centroid_bytes bigint,
	OUT added bigint, OUT built_distance float8, OUT added_distance float8, OUT drift float8)
	RETURNS record
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

COMMENT ON FUNCTION gpuann_lists(regclass) IS
	'how the rows of an index with lists are spread over them, and how far rows added since its build are from their centroids';
