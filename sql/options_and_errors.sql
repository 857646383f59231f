-- Options, settings and errors, in pgvector's words.
CREATE TABLE t (id serial PRIMARY KEY, val vector(3), half halfvec(3), bare vector, number integer);

CREATE INDEX ON t USING gpuann (val);
CREATE INDEX ON t USING gpuann (number vector_l2_ops);
CREATE INDEX ON t USING gpuann (half vector_l2_ops);
CREATE INDEX ON t USING gpuann (bare vector_l2_ops);
CREATE INDEX ON t USING gpuann ((bare::halfvec) halfvec_l2_ops);
CREATE TABLE sparse (v sparsevec(3));
CREATE INDEX ON sparse USING gpuann (v sparsevec_l2_ops);
CREATE INDEX ON sparse USING gpuann ((v::vector(3)) vector_l2_ops);
DROP TABLE sparse;
CREATE INDEX ON t USING gpuann (val vector_l2_ops, half halfvec_l2_ops);
CREATE UNIQUE INDEX ON t USING gpuann (val vector_l2_ops);
CREATE INDEX ON t USING gpuann (val vector_l2_ops DESC);

CREATE INDEX ON t USING gpuann (val vector_l2_ops) WITH (m = 1);
CREATE INDEX ON t USING gpuann (val vector_l2_ops) WITH (m = 101);
CREATE INDEX ON t USING gpuann (val vector_l2_ops) WITH (ef_construction = 3);
CREATE INDEX ON t USING gpuann (val vector_l2_ops) WITH (ef_construction = 1001);
CREATE INDEX ON t USING gpuann (val vector_l2_ops) WITH (m = 16, ef_construction = 31);
CREATE INDEX ON t USING gpuann (val vector_l2_ops) WITH (lists = 10);
CREATE INDEX ON t USING gpuann (val vector_l2_ops) WITH (ef_search = 0);
CREATE INDEX ON t USING gpuann (val vector_l2_ops) WITH (ef_search = 10001);
CREATE INDEX ON t USING gpuann (val vector_l2_ops) WITH (ef_search = many);
CREATE INDEX ON t USING gpuann (val vector_l2_ops) WITH (mirror = perhaps);
CREATE INDEX ON t USING gpuann (val vector_l2_ops) WITH (method = ivfpq, ef_construction = 64);
CREATE INDEX ON t USING gpuann (val vector_l2_ops) WITH (method = hnsw);

CREATE INDEX t_most ON t USING gpuann (val vector_l2_ops) WITH (m = 100, ef_construction = 1000);
CREATE INDEX t_least ON t USING gpuann (val vector_l2_ops) WITH (m = 2, ef_construction = 4);
SELECT relname, reloptions FROM pg_class WHERE relname IN ('t_most', 't_least') ORDER BY relname;
ALTER INDEX t_least SET (m = 200);
-- only a build heeds these
ALTER INDEX t_least SET (m = 4, ef_construction = 20);
REINDEX INDEX t_least;
ALTER INDEX t_least SET (m = 4, ef_search = 50);
ALTER INDEX t_least RESET (m);
ALTER INDEX t_least SET (ef_search = 60);
ALTER INDEX t_least SET (lists = 10);
ALTER INDEX t_least SET (ef_search = 10001);
DROP INDEX t_most, t_least;
CREATE INDEX t_all ON t USING gpuann (val vector_l2_ops)
	WITH (m = 8, ef_construction = 32, ef_search = 100, method = graph, mirror = off);
SELECT pg_get_indexdef('t_all'::regclass);
-- what scans do is changed under a lock that lets others read and write
BEGIN;
ALTER INDEX t_all SET (ef_search = 200, mirror = on);
SELECT mode FROM pg_locks WHERE relation = 't_all'::regclass AND pid = pg_backend_pid() ORDER BY mode;
COMMIT;
BEGIN;
ALTER INDEX t_all SET (m = 10);
SELECT mode FROM pg_locks WHERE relation = 't_all'::regclass AND pid = pg_backend_pid() ORDER BY mode;
ROLLBACK;
ALTER INDEX t_all RESET (ef_search, mirror);
SELECT reloptions FROM pg_class WHERE relname = 't_all';
DROP INDEX t_all;

-- dimensions
CREATE INDEX t_val ON t USING gpuann (val vector_l2_ops);
INSERT INTO t (val) VALUES ('[1,2,3]'), ('[4,5,6]');
INSERT INTO t (val) VALUES ('[1,2]');
SET enable_seqscan = off;
SELECT val FROM t ORDER BY val <-> '[1,2]';
SELECT val FROM t ORDER BY val::halfvec <-> '[1,2,3]';
CREATE INDEX ON t USING gpuann ((bare::vector(2)) vector_l2_ops);
INSERT INTO t (bare) VALUES ('[1,2]');
INSERT INTO t (bare) VALUES ('[1,2,3]');

-- settings
SHOW gpuann.ef_search;
SET gpuann.ef_search = -2;
SET gpuann.ef_search = 0;
SET gpuann.ef_search = -1;
SET gpuann.ef_search = 10001;
SET gpuann.ef_search = 10000;
SELECT val FROM t WHERE val IS NOT NULL ORDER BY val <-> '[1,2,3]';
SET gpuann.ef_search = 1;
SELECT val FROM t WHERE val IS NOT NULL ORDER BY val <-> '[1,2,3]';
RESET gpuann.ef_search;
SHOW gpuann.exact;
SHOW gpuann.iterative_scan;
SET gpuann.iterative_scan = sometimes;
SHOW gpuann.max_scan_tuples;
SET gpuann.max_scan_tuples = 0;
SET gpuann.max_scan_tuples = -2;
SET gpuann.max_scan_tuples = 2147483648;
SET gpuann.max_scan_tuples = 1;
RESET gpuann.max_scan_tuples;
SET gpuann.exact = maybe;
SET gpuann.no_such_setting = 1;

-- what the access method can do
SELECT pg_indexam_has_property(oid, 'can_order') AS can_order, pg_indexam_has_property(oid, 'can_unique') AS can_unique,
	pg_indexam_has_property(oid, 'can_multi_col') AS can_multi_col, pg_indexam_has_property(oid, 'can_exclude') AS can_exclude,
	pg_indexam_has_property(oid, 'can_include') AS can_include
	FROM pg_am WHERE amname = 'gpuann';
SELECT pg_index_has_property('t_val', 'clusterable') AS clusterable, pg_index_has_property('t_val', 'index_scan') AS index_scan,
	pg_index_has_property('t_val', 'bitmap_scan') AS bitmap_scan, pg_index_has_property('t_val', 'backward_scan') AS backward_scan;
CLUSTER t USING t_val;

DROP TABLE t;
