-- When the planner takes the index, and when not.
CREATE TABLE t (id integer PRIMARY KEY, kind integer, val vector(32));
INSERT INTO t SELECT g, g % 5000, array_agg(sin(g * 12.9898 + d * 78.233) ORDER BY d)::vector(32)
	FROM generate_series(1, 10000) g, generate_series(1, 32) d GROUP BY g;
CREATE INDEX t_val ON t USING gpuann (val vector_l2_ops);
CREATE INDEX t_kind ON t (kind);
ANALYZE t;

\set query '\'[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32]\''

-- the nearest few
EXPLAIN (COSTS OFF) SELECT id FROM t ORDER BY val <-> :query LIMIT 10;
-- a filter that most rows pass
EXPLAIN (COSTS OFF) SELECT id FROM t WHERE kind > 100 ORDER BY val <-> :query LIMIT 10;
-- a filter that few rows pass
EXPLAIN (COSTS OFF) SELECT id FROM t WHERE kind = 7 ORDER BY val <-> :query LIMIT 10;
-- all rows
EXPLAIN (COSTS OFF) SELECT id FROM t ORDER BY val <-> :query;
-- no order, another order, the other way
EXPLAIN (COSTS OFF) SELECT count(*) FROM t;
EXPLAIN (COSTS OFF) SELECT id FROM t ORDER BY val <=> :query LIMIT 10;
EXPLAIN (COSTS OFF) SELECT id FROM t ORDER BY val <-> :query DESC LIMIT 10;
EXPLAIN (COSTS OFF) SELECT id FROM t WHERE val <-> :query < 1;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
EXPLAIN (COSTS OFF) SELECT count(*) FROM t;
RESET enable_seqscan;
RESET enable_bitmapscan;
SET gpuann.exact = on;
EXPLAIN (COSTS OFF) SELECT id FROM t ORDER BY val <-> :query LIMIT 10;
RESET gpuann.exact;

-- a tiny table is read
CREATE TABLE tiny (id integer, val vector(32));
INSERT INTO tiny SELECT id, val FROM t WHERE id <= 50;
CREATE INDEX tiny_val ON tiny USING gpuann (val vector_l2_ops);
ANALYZE tiny;
EXPLAIN (COSTS OFF) SELECT id FROM tiny ORDER BY val <-> :query LIMIT 5;

DROP TABLE t, tiny;
