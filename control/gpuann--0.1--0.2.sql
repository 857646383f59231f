/* gpuann--0.1--0.2.sql: what version 0.2 changes. A fresh CREATE EXTENSION runs gpuann--0.1.sql first, which stays as it was published. */
-- complain if script is sourced in psql, rather than via ALTER EXTENSION
\echo Use "ALTER EXTENSION gpuann UPDATE TO '0.2'" to load this file. \quit

-- pg_stat_gpuann counts scans that pages answer because gpuann.engine = auto finds no GPU. The view keeps its columns in their places, with what
-- depends on them: it is given the new function before the old one goes.

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
	OUT mirror_changes bigint, OUT mirror_change_lag bigint, OUT worker_pid integer)
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
		s.fallback_no_gpu
	FROM gpuann_stat_indexes() s
		JOIN pg_class c ON c.oid = s.indexrelid AND pg_relation_filenode(c.oid) = s.relfilenode
		JOIN pg_index i ON i.indexrelid = c.oid
		JOIN pg_class t ON t.oid = i.indrelid
		JOIN pg_namespace n ON n.oid = t.relnamespace;

DROP FUNCTION gpuann_stat_indexes_0_1();

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
