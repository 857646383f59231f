-- Indexes on every kind of table, and indexes on a part or an expression.
SET enable_seqscan = off;

-- empty, then filled
CREATE TABLE t (id serial PRIMARY KEY, val vector(3));
CREATE INDEX t_val ON t USING gpuann (val vector_l2_ops);
SELECT id FROM t ORDER BY val <-> '[1,1,1]';
INSERT INTO t (val) SELECT ARRAY[g, g, g] FROM generate_series(1, 100) g;
SELECT array_agg(id) FROM (SELECT id FROM t ORDER BY val <-> '[50.2,50.2,50.2]' LIMIT 5) nearest;
-- updated, deleted
UPDATE t SET val = '[1000,1000,1000]' WHERE id = 50;
DELETE FROM t WHERE id = 51;
SELECT array_agg(id) FROM (SELECT id FROM t ORDER BY val <-> '[50.2,50.2,50.2]' LIMIT 5) nearest;
SELECT id FROM t ORDER BY val <-> '[999,999,999]' LIMIT 1;
-- the key of another index changes, ours does not
UPDATE t SET id = 1050 WHERE id = 52;
SELECT array_agg(id) FROM (SELECT id FROM t ORDER BY val <-> '[50.2,50.2,50.2]' LIMIT 5) nearest;
REINDEX INDEX t_val;
SELECT array_agg(id) FROM (SELECT id FROM t ORDER BY val <-> '[50.2,50.2,50.2]' LIMIT 5) nearest;
REINDEX INDEX CONCURRENTLY t_val;
SELECT array_agg(id) FROM (SELECT id FROM t ORDER BY val <-> '[50.2,50.2,50.2]' LIMIT 5) nearest;
CREATE INDEX CONCURRENTLY t_val2 ON t USING gpuann (val vector_l2_ops) WITH (m = 4, ef_construction = 10);
DROP INDEX t_val;
SELECT array_agg(id) FROM (SELECT id FROM t ORDER BY val <-> '[50.2,50.2,50.2]' LIMIT 5) nearest;
TRUNCATE t;
SELECT id FROM t ORDER BY val <-> '[1,1,1]';
-- made and truncated in one transaction
BEGIN;
CREATE TABLE made (id integer, val vector(3));
INSERT INTO made SELECT g, ARRAY[g, g, g] FROM generate_series(1, 20) g;
CREATE INDEX made_val ON made USING gpuann (val vector_l2_ops);
TRUNCATE made;
SELECT count(*) FROM (SELECT id FROM made ORDER BY val <-> '[1,1,1]') every;
INSERT INTO made VALUES (7, '[7,7,7]');
SELECT id FROM made ORDER BY val <-> '[1,1,1]';
COMMIT;
SELECT id FROM made ORDER BY val <-> '[1,1,1]';
DROP TABLE made, t;

-- unlogged and temporary
CREATE UNLOGGED TABLE t (id integer, val vector(3));
INSERT INTO t SELECT g, ARRAY[g, g, g] FROM generate_series(1, 50) g;
CREATE INDEX t_val ON t USING gpuann (val vector_l2_ops);
INSERT INTO t SELECT g, ARRAY[g, g, g] FROM generate_series(51, 100) g;
SELECT array_agg(id) FROM (SELECT id FROM t ORDER BY val <-> '[50.2,50.2,50.2]' LIMIT 5) nearest;
SELECT pg_relation_size('t_val', 'init') > 0 AS has_init_fork;
ALTER TABLE t SET LOGGED;
SELECT array_agg(id) FROM (SELECT id FROM t ORDER BY val <-> '[50.2,50.2,50.2]' LIMIT 5) nearest;
DROP TABLE t;
CREATE TEMPORARY TABLE t (id integer, val vector(3)) ON COMMIT DELETE ROWS;
CREATE INDEX t_val ON t USING gpuann (val vector_l2_ops);
BEGIN;
INSERT INTO t SELECT g, ARRAY[g, g, g] FROM generate_series(1, 100) g;
SELECT array_agg(id) FROM (SELECT id FROM t ORDER BY val <-> '[50.2,50.2,50.2]' LIMIT 5) nearest;
COMMIT;
SELECT id FROM t ORDER BY val <-> '[1,1,1]';
DROP TABLE t;

-- partial
CREATE TABLE t (id integer, kind integer, val vector(3));
INSERT INTO t SELECT g, g % 3, ARRAY[g, g, g] FROM generate_series(1, 100) g;
CREATE INDEX t_val ON t USING gpuann (val vector_l2_ops) WHERE kind = 1;
INSERT INTO t VALUES (101, 1, '[50.5,50.5,50.5]'), (102, 2, '[50.5,50.5,50.5]');
-- what its predicate implies is not checked again, but of rows that are locked
EXPLAIN (COSTS OFF) SELECT id FROM t WHERE kind = 1 ORDER BY val <-> '[50.2,50.2,50.2]' LIMIT 4;
EXPLAIN (COSTS OFF) SELECT id FROM t WHERE kind = 1 AND id > 0 ORDER BY val <-> '[50.2,50.2,50.2]' LIMIT 4;
EXPLAIN (COSTS OFF) SELECT id FROM t WHERE kind = 1 ORDER BY val <-> '[50.2,50.2,50.2]' LIMIT 4 FOR UPDATE;
SELECT array_agg(id) FROM (SELECT id FROM t WHERE kind = 1 ORDER BY val <-> '[50.2,50.2,50.2]' LIMIT 4) nearest;
SELECT count(*) FROM (SELECT id FROM t WHERE kind = 1 ORDER BY val <-> '[50.2,50.2,50.2]') every;
DROP TABLE t;

-- expressions
CREATE TABLE t (id integer, val vector(3), list real[]);
INSERT INTO t SELECT g, ARRAY[g, g, g], ARRAY[g, -g] FROM generate_series(1, 100) g;
CREATE INDEX t_half ON t USING gpuann ((val::halfvec(3)) halfvec_l2_ops);
CREATE INDEX t_list ON t USING gpuann ((list::vector(2)) vector_cosine_ops);
INSERT INTO t VALUES (101, '[50.5,50.5,50.5]', '{1,1}'), (102, NULL, NULL);
SET gpuann.server = off;	-- which has prices of its own
EXPLAIN (COSTS OFF) SELECT id FROM t ORDER BY val::halfvec(3) <-> '[50.2,50.2,50.2]' LIMIT 4;
RESET gpuann.server;
SELECT array_agg(id) FROM (SELECT id FROM t ORDER BY val::halfvec(3) <-> '[50.2,50.2,50.2]' LIMIT 4) nearest;
SELECT id FROM t ORDER BY list::vector(2) <=> '[1,1]' LIMIT 1;
DROP TABLE t;

-- partitions
CREATE TABLE t (id integer, val vector(3)) PARTITION BY RANGE (id);
CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (1) TO (51);
CREATE TABLE t2 PARTITION OF t FOR VALUES FROM (51) TO (201);
INSERT INTO t SELECT g, ARRAY[g, g, g] FROM generate_series(1, 100) g;
ANALYZE t;
CREATE INDEX t_val ON t USING gpuann (val vector_l2_ops);
EXPLAIN (COSTS OFF) SELECT id FROM t ORDER BY val <-> '[50.2,50.2,50.2]' LIMIT 5;
SELECT array_agg(id) FROM (SELECT id FROM t ORDER BY val <-> '[50.2,50.2,50.2]' LIMIT 5) nearest;
SELECT count(*) FROM (SELECT id FROM t ORDER BY val <-> '[50.2,50.2,50.2]') every;
DROP TABLE t;

-- a query for every row of another table: the scan begins again
CREATE TABLE t (id integer, val vector(3));
INSERT INTO t SELECT g, ARRAY[g, g, g] FROM generate_series(1, 5000) g;
CREATE INDEX t_val ON t USING gpuann (val vector_l2_ops);
EXPLAIN (COSTS OFF) SELECT q.id, n.id FROM (SELECT g AS id, ARRAY[g, g, g]::vector(3) AS val FROM generate_series(10, 50, 10) g) q,
	LATERAL (SELECT t.id FROM t ORDER BY t.val <-> q.val LIMIT 3) n;
SELECT q.id, array_agg(n.id ORDER BY n.id) FROM (SELECT g AS id, ARRAY[g, g, g]::vector(3) AS val FROM generate_series(10, 50, 10) g) q,
	LATERAL (SELECT t.id FROM t ORDER BY t.val <-> q.val LIMIT 3) n GROUP BY q.id ORDER BY q.id;
-- with NULL among the queries
SELECT q.id, count(n.id) FROM (VALUES (1, '[1,1,1]'::vector), (2, NULL), (3, '[3,3,3]')) q(id, val),
	LATERAL (SELECT t.id FROM t ORDER BY t.val <-> q.val) n GROUP BY q.id ORDER BY q.id;
-- prepared
PREPARE nearest(vector) AS SELECT id FROM t ORDER BY val <-> $1 LIMIT 1;
EXECUTE nearest('[5,5,5]');
EXECUTE nearest('[6,6,6]');
SET plan_cache_mode = force_generic_plan;
EXECUTE nearest('[7,7,7]');
RESET plan_cache_mode;
DEALLOCATE nearest;
DROP TABLE t;

-- duplicates: all of them come, and they hide nobody
CREATE TABLE t (id integer, val vector(3));
INSERT INTO t SELECT g, CASE WHEN g % 2 = 0 THEN '[5,5,5]'::vector ELSE ARRAY[g, g, g]::vector END FROM generate_series(1, 2000) g;
CREATE INDEX t_val ON t USING gpuann (val vector_l2_ops);
INSERT INTO t SELECT g, '[5,5,5]' FROM generate_series(2001, 2100) g;
SELECT count(*), count(DISTINCT id), count(*) FILTER (WHERE val = '[5,5,5]') > 1000 AS mostly_equal FROM (SELECT * FROM t ORDER BY val <-> '[5,5,5]' LIMIT 1101) nearest;
SELECT id FROM t ORDER BY val <-> '[1501,1501,1501]' LIMIT 1;
SELECT count(*), count(DISTINCT id) FROM (SELECT * FROM t ORDER BY val <-> '[5,5,5]') every;
DROP TABLE t;

-- more rows than maintenance_work_mem holds
CREATE TABLE t (id integer, val vector(64));
INSERT INTO t SELECT g, array_agg(sin(g * 12.9898 + d * 78.233) ORDER BY d)::vector(64)
	FROM generate_series(1, 3000) g, generate_series(1, 64) d GROUP BY g;
SET maintenance_work_mem = '1MB';
SET client_min_messages = warning;
CREATE INDEX t_val ON t USING gpuann (val vector_l2_ops);
RESET client_min_messages;
RESET maintenance_work_mem;
SELECT count(*), count(DISTINCT id) FROM (SELECT id FROM t ORDER BY val <-> (SELECT val FROM t WHERE id = 2900)) every;
SELECT id FROM t ORDER BY val <-> (SELECT val FROM t WHERE id = 2900) LIMIT 1;
DROP TABLE t;
