-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION gpuann" to load this file. \quit

-- access method

CREATE FUNCTION gpuannhandler(internal) RETURNS index_am_handler
	AS 'MODULE_PATHNAME' LANGUAGE C;

CREATE ACCESS METHOD gpuann TYPE INDEX HANDLER gpuannhandler;

COMMENT ON ACCESS METHOD gpuann IS 'graph index of vectors, answered from the GPU or from its pages';

-- support functions

CREATE FUNCTION gpuann_vector_l2_support(internal) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C;

CREATE FUNCTION gpuann_vector_ip_support(internal) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C;

CREATE FUNCTION gpuann_vector_cosine_support(internal) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C;

CREATE FUNCTION gpuann_vector_l1_support(internal) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C;

CREATE FUNCTION gpuann_halfvec_l2_support(internal) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C;

CREATE FUNCTION gpuann_halfvec_ip_support(internal) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C;

CREATE FUNCTION gpuann_halfvec_cosine_support(internal) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C;

CREATE FUNCTION gpuann_halfvec_l1_support(internal) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C;

CREATE FUNCTION gpuann_bit_hamming_support(internal) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C;

CREATE FUNCTION gpuann_bit_jaccard_support(internal) RETURNS internal
	AS 'MODULE_PATHNAME' LANGUAGE C;

-- operator classes: pgvector's names, operators and distances

CREATE OPERATOR CLASS vector_l2_ops
	FOR TYPE vector USING gpuann AS
	OPERATOR 1 <-> (vector, vector) FOR ORDER BY float_ops,
	FUNCTION 1 vector_l2_squared_distance(vector, vector),
	FUNCTION 2 gpuann_vector_l2_support(internal);

CREATE OPERATOR CLASS vector_ip_ops
	FOR TYPE vector USING gpuann AS
	OPERATOR 1 <#> (vector, vector) FOR ORDER BY float_ops,
	FUNCTION 1 vector_negative_inner_product(vector, vector),
	FUNCTION 2 gpuann_vector_ip_support(internal);

CREATE OPERATOR CLASS vector_cosine_ops
	FOR TYPE vector USING gpuann AS
	OPERATOR 1 <=> (vector, vector) FOR ORDER BY float_ops,
	FUNCTION 1 cosine_distance(vector, vector),
	FUNCTION 2 gpuann_vector_cosine_support(internal);

CREATE OPERATOR CLASS vector_l1_ops
	FOR TYPE vector USING gpuann AS
	OPERATOR 1 <+> (vector, vector) FOR ORDER BY float_ops,
	FUNCTION 1 l1_distance(vector, vector),
	FUNCTION 2 gpuann_vector_l1_support(internal);

CREATE OPERATOR CLASS halfvec_l2_ops
	FOR TYPE halfvec USING gpuann AS
	OPERATOR 1 <-> (halfvec, halfvec) FOR ORDER BY float_ops,
	FUNCTION 1 halfvec_l2_squared_distance(halfvec, halfvec),
	FUNCTION 2 gpuann_halfvec_l2_support(internal);

CREATE OPERATOR CLASS halfvec_ip_ops
	FOR TYPE halfvec USING gpuann AS
	OPERATOR 1 <#> (halfvec, halfvec) FOR ORDER BY float_ops,
	FUNCTION 1 halfvec_negative_inner_product(halfvec, halfvec),
	FUNCTION 2 gpuann_halfvec_ip_support(internal);

CREATE OPERATOR CLASS halfvec_cosine_ops
	FOR TYPE halfvec USING gpuann AS
	OPERATOR 1 <=> (halfvec, halfvec) FOR ORDER BY float_ops,
	FUNCTION 1 cosine_distance(halfvec, halfvec),
	FUNCTION 2 gpuann_halfvec_cosine_support(internal);

CREATE OPERATOR CLASS halfvec_l1_ops
	FOR TYPE halfvec USING gpuann AS
	OPERATOR 1 <+> (halfvec, halfvec) FOR ORDER BY float_ops,
	FUNCTION 1 l1_distance(halfvec, halfvec),
	FUNCTION 2 gpuann_halfvec_l1_support(internal);

CREATE OPERATOR CLASS bit_hamming_ops
	FOR TYPE bit USING gpuann AS
	OPERATOR 1 <~> (bit, bit) FOR ORDER BY float_ops,
	FUNCTION 1 hamming_distance(bit, bit),
	FUNCTION 2 gpuann_bit_hamming_support(internal);

CREATE OPERATOR CLASS bit_jaccard_ops
	FOR TYPE bit USING gpuann AS
	OPERATOR 1 <%> (bit, bit) FOR ORDER BY float_ops,
	FUNCTION 1 jaccard_distance(bit, bit),
	FUNCTION 2 gpuann_bit_jaccard_support(internal);

-- what a scan did

CREATE FUNCTION gpuann_last_scan(
	OUT path text, OUT engine text, OUT visited bigint, OUT pending bigint,
	OUT proposed bigint, OUT dropped bigint, OUT continuations integer, OUT fallback_reason text)
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION gpuann_last_scan() IS
	'what this session''s last scan of a gpuann index did; nulls if there was none';

-- linking and checking

CREATE FUNCTION gpuann_link(index regclass) RETURNS bigint
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;

COMMENT ON FUNCTION gpuann_link(regclass) IS
	'link the pending rows of a gpuann index into its graph; returns how many they were';

CREATE FUNCTION gpuann_check(index regclass, heapallindexed boolean DEFAULT false) RETURNS void
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

COMMENT ON FUNCTION gpuann_check(regclass, boolean) IS
	'error out if a gpuann index breaks a rule of its format, or disagrees with its table';

CREATE FUNCTION gpuann_stats(index regclass,
	OUT live_slots bigint, OUT dead_slots bigint, OUT detached_slots bigint, OUT free_slots bigint, OUT absent_slots bigint,
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
	'what a gpuann index holds: slots by state, pending list, graph, bytes by part, format';

CREATE FUNCTION gpuann_recall(index regclass, samples integer DEFAULT 100, k integer DEFAULT 10, ef integer DEFAULT NULL,
	OUT samples_asked integer, OUT recall float8, OUT worst_recall float8, OUT visited float8,
	OUT mean_time float8, OUT mean_exact_time float8, OUT server_share float8)
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION gpuann_recall(regclass, integer, integer, integer) IS
	'how many of the k true nearest rows a gpuann index finds, asked about rows of its table; times in milliseconds';

CREATE FUNCTION gpuann_estimate(rows bigint, dims integer, type regtype DEFAULT 'vector', options text[] DEFAULT '{}',
	metric text DEFAULT 'l2',
	OUT index_bytes bigint, OUT mirror_bytes bigint, OUT build_memory bigint, OUT build_seconds float8, OUT build_threads integer)
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL SAFE;

COMMENT ON FUNCTION gpuann_estimate(bigint, integer, regtype, text[], text) IS
	'what a gpuann index would take: bytes in the file, in a mirror, of maintenance_work_mem to build it in memory; seconds to build it';

-- mirrors

CREATE FUNCTION gpuann_prewarm(index regclass) RETURNS bigint
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

COMMENT ON FUNCTION gpuann_prewarm(regclass) IS
	'load the mirror of a gpuann index and wait for it; returns its bytes';

CREATE FUNCTION gpuann_evict(index regclass) RETURNS boolean
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

COMMENT ON FUNCTION gpuann_evict(regclass) IS
	'give up the mirror of a gpuann index until a scan asks for it again; returns whether there was one';

-- the server and what it answered

CREATE FUNCTION gpuann_server_status(
	OUT state text, OUT pid integer, OUT epoch bigint, OUT restarts bigint, OUT started timestamptz,
	OUT engine text, OUT device text, OUT shared_bytes bigint,
	OUT memory_limit bigint, OUT memory_used bigint, OUT memory_context bigint,
	OUT host_rows_limit bigint, OUT host_rows_used bigint,
	OUT mirrors_ready integer, OUT mirrors_loading integer,
	OUT requests bigint, OUT batches bigint, OUT last_error text)
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL SAFE;

CREATE VIEW gpuann_server_status AS
	SELECT s.*, date_trunc('second', clock_timestamp() - s.started) AS uptime
	FROM gpuann_server_status() s;

COMMENT ON VIEW gpuann_server_status IS 'whether gpuann-server runs, on what, and what it has done';

CREATE FUNCTION gpuann_stat_indexes(
	OUT indexrelid oid, OUT relfilenode oid, OUT state text, OUT reason text,
	OUT scans bigint, OUT server_answers bigint, OUT page_answers bigint,
	OUT fallback_off bigint, OUT fallback_no_server bigint, OUT fallback_not_loaded bigint,
	OUT fallback_refused bigint, OUT fallback_behind bigint, OUT fallback_timeout bigint,
	OUT fallback_server_died bigint, OUT fallback_engine_error bigint, OUT fallback_invalid_answer bigint,
	OUT fallback_slot_busy bigint, OUT fallback_too_large bigint,
	OUT proposed bigint, OUT dropped bigint, OUT pending_searched bigint, OUT continuations bigint,
	OUT batches bigint, OUT batched_queries bigint, OUT queue_time float8, OUT engine_time float8,
	OUT evictions bigint, OUT stats_reset timestamptz,
	OUT mirror_rows bigint, OUT mirror_bytes bigint, OUT mirror_host_bytes bigint, OUT mirror_position bigint, OUT mirror_lag bigint,
	OUT mirror_changes bigint, OUT mirror_change_lag bigint, OUT worker_pid integer)
	RETURNS SETOF record
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION gpuann_stat_indexes() IS 'what pg_stat_gpuann shows, without names';

CREATE VIEW pg_stat_gpuann AS
	SELECT i.indrelid AS relid, s.indexrelid, n.nspname AS schemaname, t.relname, c.relname AS indexrelname,
		s.state, s.reason, s.scans, s.server_answers, s.page_answers,
		s.fallback_off, s.fallback_no_server, s.fallback_not_loaded, s.fallback_refused, s.fallback_behind,
		s.fallback_timeout, s.fallback_server_died, s.fallback_engine_error, s.fallback_invalid_answer,
		s.fallback_slot_busy, s.fallback_too_large,
		s.proposed, s.dropped, s.pending_searched, s.continuations,
		s.batches, s.batched_queries, s.batched_queries::float8 / nullif(s.batches, 0) AS mean_batch,
		s.queue_time, s.engine_time,
		s.mirror_rows, s.mirror_bytes, s.mirror_host_bytes, s.mirror_position, s.mirror_lag, s.mirror_changes, s.mirror_change_lag, s.worker_pid, s.evictions, s.stats_reset
	FROM gpuann_stat_indexes() s
		JOIN pg_class c ON c.oid = s.indexrelid AND pg_relation_filenode(c.oid) = s.relfilenode
		JOIN pg_index i ON i.indexrelid = c.oid
		JOIN pg_class t ON t.oid = i.indrelid
		JOIN pg_namespace n ON n.oid = t.relnamespace;

COMMENT ON VIEW pg_stat_gpuann IS
	'per index: its mirror, scans, answers by path, fallbacks by reason; times in milliseconds';

CREATE FUNCTION gpuann_stat_reset() RETURNS void
	AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL RESTRICTED;

COMMENT ON FUNCTION gpuann_stat_reset() IS 'begin the counters of pg_stat_gpuann anew for this database';

CREATE FUNCTION gpuann_stat_reset(index regclass) RETURNS void
	AS 'MODULE_PATHNAME', 'gpuann_stat_reset_index' LANGUAGE C VOLATILE STRICT PARALLEL RESTRICTED;

COMMENT ON FUNCTION gpuann_stat_reset(regclass) IS 'begin the counters of pg_stat_gpuann anew for one index';

REVOKE ALL ON FUNCTION gpuann_stat_reset(), gpuann_stat_reset(regclass) FROM PUBLIC;

GRANT SELECT ON gpuann_server_status, pg_stat_gpuann TO PUBLIC;
