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
		s.batches, s.batched_queries, s.batched_queries::float8 / nullif(s.batches, 0)::float8 AS mean_batch,
		s.queue_time, s.engine_time,
		s.mirror_rows, s.mirror_bytes, s.mirror_host_bytes, s.mirror_position, s.mirror_lag, s.mirror_changes, s.mirror_change_lag, s.worker_pid, s.evictions, s.stats_reset,
		s.fallback_no_gpu, s.index_rows, s.pending_rows
	FROM gpuann_stat_indexes() s
		JOIN pg_class c ON c.oid = s.indexrelid AND pg_catalog.pg_relation_filenode(c.oid::regclass) = s.relfilenode
		JOIN pg_index i ON i.indexrelid = c.oid
		JOIN pg_class t ON t.oid = i.indrelid
		JOIN pg_namespace n ON n.oid = t.relnamespace;

DROP FUNCTION gpuann_stat_indexes_0_1();

-- gpuann_stats counts rows where it counted slots with a row, and posting pages by themselves.

DROP FUNCTION gpuann_stats(regclass);

CREATE FUNCTION gpuann_stats(index regclass,
	OUT live_rows bigint, OUT dead_rows bigint, OUT detached_slots bigint, OUT free_slots bigint, OUT absent_slots bigint,
	OUT linked bigint, OUT pending bigint,
	OUT trimmed_position bigint, OUT linked_position bigint, OUT end_position bigint,
	OUT min_degree integer, OUT avg_degree float8, OUT max_degree integer, OUT degrees integer[],
	OUT reachable float8, OUT seeds bigint,
	OUT meta_bytes bigint, OUT seed_bytes bigint, OUT list_bytes bigint, OUT node_bytes bigint, OUT vector_bytes bigint,
	OUT posting_bytes bigint, OUT unused_bytes bigint,
	OUT format_version integer, OUT m integer, OUT ef_construction integer, OUT dimensions integer,
	OUT type text, OUT metric text, OUT nonce text, OUT changes bigint)
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

COMMENT ON FUNCTION gpuann_stats(regclass) IS
	'what a gpuann index holds: rows by state, pending list, graph, bytes by part, format';

-- What replaces pgvector's indexes. Names are bound here, so no search_path of a caller changes what it means; and every call is qualified, or of just
-- the types of pg_catalog's function or operator, so that nothing that is in the extension's schema already is bound instead.

CREATE FUNCTION gpuann_migrate(OUT index regclass, OUT step text, OUT statement text, OUT index_bytes bigint, OUT new_bytes bigint,
	OUT build_seconds float8, OUT note text)
	RETURNS SETOF record LANGUAGE sql VOLATILE PARALLEL RESTRICTED
BEGIN ATOMIC
	WITH defined AS (
		SELECT x.indexrelid, x.indrelid, c.relname::text AS name, n.nspname, t.relname AS table_name, tn.nspname AS table_schema, c.relkind,
			c.relispartition, am.amname::text AS method, o.opcname, o.opcintype, a.atttypmod AS dims, s.spcname, x.indisvalid AS valid,
			pg_catalog.pg_get_indexdef(x.indexrelid, 1, false) AS key,
			coalesce(pg_catalog.pg_get_expr(x.indpred, x.indrelid), '') AS predicate,
			greatest(c.reltuples, 0::float4)::bigint AS tuples, pg_catalog.pg_has_role(t.relowner, 'USAGE'::text) AS owned,
			CASE am.amname WHEN 'hnsw' THEN coalesce(c.reloptions, '{}') ELSE '{}' END AS options,
			-- pgvector has lists of bits; ours are of vectors
			am.amname = 'ivfflat' AND pg_catalog.left(o.opcname::text, 4) <> 'bit_' AS may_have_lists,
			pg_catalog.substring(pg_catalog.array_to_string(c.reloptions, ','::text), 'lists=[0-9]+'::text) AS lists,
			EXISTS (SELECT FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_database d ON d.oid = l.database
				WHERE d.datname = pg_catalog.current_database() AND l.relation = x.indrelid AND l.mode = 'ShareUpdateExclusiveLock'
					AND l.pid <> pg_catalog.pg_backend_pid()) AS in_work
		FROM pg_catalog.pg_index x
			JOIN pg_catalog.pg_class c ON c.oid = x.indexrelid
			JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
			JOIN pg_catalog.pg_class t ON t.oid = x.indrelid
			JOIN pg_catalog.pg_namespace tn ON tn.oid = t.relnamespace
			JOIN pg_catalog.pg_am am ON am.oid = c.relam AND am.amname IN ('hnsw', 'ivfflat', 'gpuann')
			JOIN pg_catalog.pg_opclass o ON o.oid = x.indclass[0]
			JOIN pg_catalog.pg_attribute a ON a.attrelid = x.indexrelid AND a.attnum = 1::int2
			LEFT JOIN pg_catalog.pg_tablespace s ON s.oid = c.reltablespace
		WHERE NOT pg_catalog.pg_is_other_temp_schema(c.relnamespace)
	), named AS (
		SELECT d.*,
			-- 63 bytes are a name's most
			CASE WHEN pg_catalog.octet_length(d.name) <= 55 THEN d.name || '_gpuann' ELSE 'gpuann_' || d.indexrelid::text END AS new_name,
			CASE WHEN pg_catalog.octet_length(d.name) <= 55 THEN d.name || '_' || d.method ELSE 'pgvector_' || d.indexrelid::text END AS old_name,
			o.m, o.ef, coalesce(o.m, 16) BETWEEN 2 AND 100 AND coalesce(o.ef, 64) BETWEEN 4 AND 1000
				AND coalesce(o.ef, 64) >= 2 * coalesce(o.m, 16) AND NOT o.odd AS keeps_options
		FROM defined d
			CROSS JOIN LATERAL (
				SELECT pg_catalog.max(pg_catalog.substring(e, '^m=([0-9]{1,5})$'::text)::int4) AS m,
					pg_catalog.max(pg_catalog.substring(e, '^ef_construction=([0-9]{1,5})$'::text)::int4) AS ef,
					coalesce(pg_catalog.bool_or(e !~ '^(m|ef_construction)=[0-9]{1,5}$'), false) AS odd
				FROM pg_catalog.unnest(d.options) e) o
		WHERE d.method <> 'gpuann'
	), twins AS (
		SELECT d.*, w.indexrelid AS twin, w.valid AS twin_valid, w.in_work AS twin_in_work, w.relkind AS twin_relkind, w.name AS twin_name,
			w.nspname AS twin_schema,
			pg_catalog.row_number() OVER (PARTITION BY d.indrelid, d.opcintype, d.opcname, d.key, d.predicate ORDER BY d.indexrelid) > 1 AS repeated
		FROM named d
			LEFT JOIN LATERAL (
				SELECT * FROM defined w
				WHERE w.method = 'gpuann' AND w.indrelid = d.indrelid AND w.opcintype = d.opcintype AND w.opcname = d.opcname
					AND w.key = d.key AND w.predicate = d.predicate
				ORDER BY w.valid DESC, w.indexrelid LIMIT 1) w ON true
	), steps AS (
		SELECT t.*, CASE WHEN g.oid IS NOT NULL THEN pg_catalog.format('%I.%I', cn.nspname, g.opcname) END AS class,
			CASE
				WHEN g.oid IS NULL THEN 'none'
				WHEN t.relispartition AND (t.twin_valid OR t.relkind = 'I') THEN 'wait'
				WHEN t.twin_valid THEN 'drop'
				WHEN t.twin IS NOT NULL AND (t.twin_in_work OR t.twin_relkind = 'I') OR t.repeated THEN 'wait'
				WHEN t.twin IS NOT NULL THEN 'drop failed build'
				WHEN EXISTS (SELECT FROM pg_catalog.pg_partition_tree(t.indexrelid::regclass) p JOIN twins l ON l.indexrelid = p.relid::oid
					WHERE t.relkind = 'I' AND l.relkind = 'i' AND l.twin_valid IS NOT TRUE) THEN 'wait'
				ELSE 'create' END AS does
		FROM twins t
			LEFT JOIN pg_catalog.pg_opclass g ON g.opcname = t.opcname AND g.opcintype = t.opcintype
				AND g.opcmethod = (SELECT oid FROM pg_catalog.pg_am WHERE amname = 'gpuann')
			LEFT JOIN pg_catalog.pg_namespace cn ON cn.oid = g.opcnamespace
	)
	SELECT t.indexrelid::regclass, s.step, s.statement, pg_catalog.pg_relation_size(t.indexrelid::regclass), e.index_bytes, e.build_seconds,
		CASE
			WHEN t.does = 'none' THEN pg_catalog.format('gpuann has no operator class %s; an index on a cast may do', t.opcname)
			WHEN t.does = 'wait' AND t.repeated THEN 'waits for another index like it'
			WHEN t.does = 'wait' AND t.relispartition THEN 'replaced with the index of the partitioned table'
			WHEN t.does = 'wait' AND t.twin_in_work THEN pg_catalog.format('index %s is not valid: its build may still run', t.twin::regclass)
			WHEN t.does = 'wait' AND t.twin IS NOT NULL
				THEN pg_catalog.format('index %s is not valid: attach the indexes of its partitions, or drop it', t.twin::regclass)
			WHEN t.does = 'wait' THEN 'waits for the indexes of its partitions'
			WHEN t.does = 'create' AND t.may_have_lists
				THEN pg_catalog.format('a graph; for lists instead: WITH (%s)',
					pg_catalog.concat_ws(', ', 'method = ivfpq', pg_catalog.replace(t.lists, '='::text, ' = '::text)))
			WHEN t.does = 'create' AND NOT t.keeps_options THEN 'gpuann has not the range of its options: defaults are taken'
		END
	FROM steps t
		LEFT JOIN LATERAL gpuann_estimate(
			CASE WHEN t.does = 'create' AND t.relkind = 'i' THEN nullif(t.tuples, 0::bigint) END, t.dims, t.opcintype::regtype,
			CASE WHEN t.keeps_options THEN t.options ELSE '{}' END, pg_catalog.split_part(t.opcname::text, '_'::text, 2)) e ON true
		CROSS JOIN LATERAL (
			SELECT 2 AS place, t.does AS step, CASE t.does
				WHEN 'create' THEN pg_catalog.format('CREATE INDEX %s%I ON %I.%I USING gpuann (%s %s)%s%s%s',
					CASE t.relkind WHEN 'i' THEN 'CONCURRENTLY ' END, t.new_name, t.table_schema, t.table_name, t.key, t.class,
					CASE WHEN t.keeps_options AND (t.m IS NOT NULL OR t.ef IS NOT NULL)
						THEN pg_catalog.format(' WITH (%s)', pg_catalog.concat_ws(', ', 'm = ' || t.m::text, 'ef_construction = ' || t.ef::text)) END,
					' TABLESPACE ' || pg_catalog.quote_ident(t.spcname::text), ' WHERE ' || nullif(t.predicate, ''))
				WHEN 'drop failed build' THEN pg_catalog.format('DROP INDEX CONCURRENTLY %I.%I', t.twin_schema, t.twin_name)
				WHEN 'drop' THEN pg_catalog.format('DROP INDEX %s%I.%I', CASE t.relkind WHEN 'i' THEN 'CONCURRENTLY ' END, t.nspname,
					CASE WHEN t.twin_name = t.new_name THEN t.old_name ELSE t.name END)
				END AS statement
			UNION ALL
			-- one transaction, before the old index goes: whatever comes between, the name is not lost
			SELECT 1, 'rename', pg_catalog.format('ALTER INDEX %I.%I RENAME TO %I; ALTER INDEX %I.%I RENAME TO %I',
				t.nspname, t.name, t.old_name, t.twin_schema, t.twin_name, t.name)
			WHERE t.does = 'drop' AND t.twin_name = t.new_name
		) s
	WHERE t.owned
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

CREATE FUNCTION gpuann_list_stats(index regclass,
	OUT list integer, OUT rows bigint, OUT bytes bigint, OUT probes float8, OUT share float8)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

COMMENT ON FUNCTION gpuann_list_stats(regclass) IS
	'what each list of an index holds, how often the server has probed it lately, and its share of that work';

CREATE FUNCTION gpuann_list_encoding(index regclass,
	OUT list integer, OUT rows bigint, OUT sets integer, OUT plain_words integer, OUT coded_words float8,
	OUT plain_bytes bigint, OUT coded_bytes bigint, OUT saved float8, OUT pays boolean,
	OUT cooc text, OUT encoded boolean)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

COMMENT ON FUNCTION gpuann_list_encoding(regclass) IS
	'what codes of items that occur together would save in each list of an index, and whether mirrors use them';

CREATE FUNCTION gpuann_list_placement(index regclass, units integer,
	copies text DEFAULT 'work', capacity bigint DEFAULT NULL, probes float8[] DEFAULT NULL,
	OUT unit integer, OUT lists bigint, OUT copied_lists bigint, OUT rows bigint, OUT bytes bigint,
	OUT load float8, OUT load_by_rows float8, OUT scattered_load float8)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION gpuann_list_placement(regclass, integer, text, bigint, float8[]) IS
	'how the lists of an index would be placed on several units, and how even their work would be';

CREATE FUNCTION gpuann_list_schedule(index regclass, units integer,
	copies text DEFAULT 'work', capacity bigint DEFAULT NULL, probes float8[] DEFAULT NULL,
	queries integer DEFAULT 1000, lists integer DEFAULT 32, seed integer DEFAULT 1,
	OUT unit integer, OUT pairs bigint, OUT lists_read bigint, OUT codes bigint,
	OUT load float8, OUT scattered_load float8)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION gpuann_list_schedule(regclass, integer, text, bigint, float8[], integer, integer, integer) IS
	'how a batch of queries, drawn by how often lists are probed, would be spread over several units';
