-- When the planner takes the index, and when not. Plans as for the pages: those for a mirror depend on whether it is there.
SET gpuann.server = off;
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
-- ... even if all else is disabled
CREATE FUNCTION plan_has(query text, wanted text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	plan text;
BEGIN
	EXECUTE 'EXPLAIN (COSTS OFF, FORMAT JSON) ' || query INTO plan;
	RETURN plan LIKE '%' || wanted || '%';
END
$$;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET enable_indexonlyscan = off;
DROP INDEX t_kind;
SELECT plan_has('SELECT count(*) FROM t', 't_val'), plan_has('SELECT id FROM t ORDER BY val <=> NULL', 't_val');
SET enable_sort = off;
SELECT plan_has('SELECT id FROM t ORDER BY val <-> array_fill(1, ARRAY[32])::vector DESC', 't_val'),
	plan_has('SELECT id FROM t ORDER BY val <-> array_fill(1, ARRAY[32])::vector NULLS FIRST', 't_val');
RESET enable_seqscan;
RESET enable_bitmapscan;
RESET enable_indexonlyscan;
RESET enable_sort;
CREATE INDEX t_kind ON t (kind);
ANALYZE t;
SET gpuann.exact = on;
EXPLAIN (COSTS OFF) SELECT id FROM t ORDER BY val <-> :query LIMIT 10;
RESET gpuann.exact;

-- how many rows are wanted
EXPLAIN (COSTS OFF) SELECT id FROM t ORDER BY val <-> :query LIMIT 100;
EXPLAIN (COSTS OFF) SELECT id FROM t ORDER BY val <-> :query LIMIT 9000;
EXPLAIN (COSTS OFF) SELECT id FROM t ORDER BY val <-> :query LIMIT 10 OFFSET 9000;
EXPLAIN (COSTS OFF) SELECT id FROM t WHERE kind < 2500 ORDER BY val <-> :query LIMIT 10;
EXPLAIN (COSTS OFF) SELECT id FROM t WHERE kind < 2500 ORDER BY val <-> :query LIMIT 4000;
SET gpuann.exact = on;
EXPLAIN (COSTS OFF) SELECT id FROM t ORDER BY val <-> :query LIMIT 9000;
RESET gpuann.exact;
-- a scan that ends early is not taken for a way to read everything
SET gpuann.iterative_scan = off;
EXPLAIN (COSTS OFF) SELECT id FROM t ORDER BY val <-> :query;
RESET gpuann.iterative_scan;
-- a breadth that visits everything
SET gpuann.ef_search = 10000;
EXPLAIN (COSTS OFF) SELECT id FROM t ORDER BY val <-> :query LIMIT 10;
RESET gpuann.ef_search;
-- an aggregate wants all rows
SELECT plan_has('SELECT array_agg(id ORDER BY val <-> array_fill(1, ARRAY[32])::vector) FROM t', 't_val');
-- a prepared statement, planned once
PREPARE nearest(vector) AS SELECT id FROM t ORDER BY val <-> $1 LIMIT 10;
SET plan_cache_mode = force_generic_plan;
EXPLAIN (COSTS OFF) EXECUTE nearest(:query);
RESET plan_cache_mode;
DEALLOCATE nearest;
-- how many are wanted is not known: few, probably
PREPARE nearest_few(vector, integer) AS SELECT id FROM t ORDER BY val <-> $1 LIMIT $2;
SET plan_cache_mode = force_generic_plan;
EXPLAIN (COSTS OFF) EXECUTE nearest_few(:query, 5);
RESET plan_cache_mode;
DEALLOCATE nearest_few;
EXPLAIN (COSTS OFF) DECLARE c CURSOR FOR SELECT id FROM t ORDER BY val <-> :query;

-- one row of each distance
EXPLAIN (COSTS OFF) SELECT DISTINCT ON (val <-> :query) id FROM t ORDER BY val <-> :query LIMIT 10;
-- in joins: the outer side, the inner one, and where the order does not help
SELECT plan_has('SELECT a.id, b.kind FROM t a JOIN t b ON b.id = a.kind + 1 ORDER BY a.val <-> array_fill(1, ARRAY[32])::vector LIMIT 10', 't_val');
EXPLAIN (COSTS OFF) SELECT q.id, n.id FROM t q, LATERAL (SELECT id FROM t ORDER BY t.val <-> q.val LIMIT 3) n WHERE q.kind < 10;
SELECT plan_has('SELECT a.id FROM t a JOIN t b ON b.id = a.kind + 1 WHERE b.kind = 7 ORDER BY a.val <-> array_fill(1, ARRAY[32])::vector LIMIT 10', 't_val');

-- a tiny table is read, a small one is not
CREATE TABLE tiny (id integer, val vector(32));
INSERT INTO tiny SELECT id, val FROM t WHERE id <= 50;
CREATE INDEX tiny_val ON tiny USING gpuann (val vector_l2_ops);
ANALYZE tiny;
EXPLAIN (COSTS OFF) SELECT id FROM tiny ORDER BY val <-> :query LIMIT 5;
INSERT INTO tiny SELECT id, val FROM t WHERE id BETWEEN 51 AND 2000;
VACUUM ANALYZE tiny;
EXPLAIN (COSTS OFF) SELECT id FROM tiny ORDER BY val <-> :query LIMIT 5;

-- vectors out of line: the table looks small
CREATE TABLE wide (id integer, val vector(1000));
INSERT INTO wide SELECT g, array_fill(g::real, ARRAY[1000])::vector FROM generate_series(1, 2000) g;
CREATE INDEX wide_val ON wide USING gpuann (val vector_l2_ops) WITH (m = 4, ef_construction = 8);
ANALYZE wide;
SELECT plan_has('SELECT id FROM wide ORDER BY val <-> array_fill(1, ARRAY[1000])::vector LIMIT 5', 'wide_val'),
	plan_has('SELECT id FROM wide ORDER BY val <-> array_fill(1, ARRAY[1000])::vector', 'wide_val');
-- ... and what other plans would have to fetch from there counts
CREATE INDEX ON wide (id);
ANALYZE wide;
SELECT plan_has('SELECT id FROM wide WHERE id < 500 ORDER BY val <-> array_fill(1, ARRAY[1000])::vector LIMIT 1', 'wide_val') AS many_pass,
	plan_has('SELECT id FROM wide WHERE id < 5 ORDER BY val <-> array_fill(1, ARRAY[1000])::vector LIMIT 1', 'wide_val') AS few_pass;

-- of two indexes that would do, the smaller one
CREATE INDEX t_part ON t USING gpuann (val vector_l2_ops) WHERE kind < 500;
ANALYZE t;
EXPLAIN (COSTS OFF) SELECT id FROM t WHERE kind < 500 ORDER BY val <-> :query LIMIT 10;
EXPLAIN (COSTS OFF) SELECT id FROM t WHERE kind < 600 ORDER BY val <-> :query LIMIT 10;

-- partitions: each gives its nearest
CREATE TABLE parts (id integer, val vector(32)) PARTITION BY RANGE (id);
CREATE TABLE parts1 PARTITION OF parts FOR VALUES FROM (1) TO (5000);
CREATE TABLE parts2 PARTITION OF parts FOR VALUES FROM (5000) TO (10001);
INSERT INTO parts SELECT id, val FROM t;
CREATE INDEX parts_val ON parts USING gpuann (val vector_l2_ops) WITH (m = 8);
ANALYZE parts;
EXPLAIN (COSTS OFF) SELECT id FROM parts ORDER BY val <-> :query LIMIT 10;
EXPLAIN (COSTS OFF) SELECT id FROM parts ORDER BY val <-> :query;
EXPLAIN (COSTS OFF) SELECT id FROM parts WHERE id < 100 ORDER BY val <-> :query LIMIT 10;

DROP TABLE t, tiny, wide, parts;
DROP FUNCTION plan_has;
