-- When the planner takes the index, and when not. Plans as for the pages: those for a mirror depend on whether it is there.
SET gpuann.server = off;
CREATE TABLE t (id integer PRIMARY KEY, kind integer, val vector(32));
INSERT INTO t SELECT g, g % 5000, array_agg(sin(g * 12.9898 + d * 78.233) ORDER BY d)::vector(32)
	FROM generate_series(1, 10000) g, generate_series(1, 32) d GROUP BY g;
CREATE INDEX t_val ON t USING gpuann (val vector_l2_ops);
CREATE INDEX t_kind ON t (kind);
ANALYZE t;

-- By which of its indexes a plan reads its tables; "table" if by none. $1 stands for a vector.
CREATE FUNCTION reads(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	plan text;
BEGIN
	EXECUTE 'EXPLAIN (COSTS OFF, FORMAT JSON) ' || replace(query, '$1', format('%L::vector', (SELECT array_agg(i)::vector FROM generate_series(1, 32) i)))
		INTO plan;
	RETURN coalesce((SELECT string_agg(name[1], ' ' ORDER BY name[1])
		FROM regexp_matches(plan, '"Index(?: Name)?": "([^"]*)"', 'g') name), 'table');
END
$$;

-- the nearest few
SELECT reads('SELECT id FROM t ORDER BY val <-> $1 LIMIT 10');
-- a filter that most rows pass
SELECT reads('SELECT id FROM t WHERE kind > 100 ORDER BY val <-> $1 LIMIT 10');
-- a filter that few rows pass
SELECT reads('SELECT id FROM t WHERE kind = 7 ORDER BY val <-> $1 LIMIT 10');
-- the server's processor time counts too, where its engine is the CPU's: filters that few rows pass, in order and not
DO $$ BEGIN PERFORM gpuann_prewarm('t_val'); EXCEPTION WHEN OTHERS THEN NULL; END $$;
RESET gpuann.server;
SELECT reads('SELECT id FROM t WHERE kind < 50 ORDER BY val <-> $1 LIMIT 1') AS nearest,
	reads('SELECT id FROM t WHERE kind < 200 AND val <-> $1 < 100') AS within;
SET gpuann.server = off;
-- all rows
SELECT reads('SELECT id FROM t ORDER BY val <-> $1');
-- no order, another order, the other way
SELECT reads('SELECT count(*) FROM t');
SELECT reads('SELECT id FROM t ORDER BY val <=> $1 LIMIT 10');
SELECT reads('SELECT id FROM t ORDER BY val <-> $1 DESC LIMIT 10');
-- ... even if all else is disabled
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET enable_indexonlyscan = off;
DROP INDEX t_kind;
SELECT reads('SELECT count(*) FROM t'), reads('SELECT id FROM t ORDER BY val <=> NULL');
SET enable_sort = off;
SELECT reads('SELECT id FROM t ORDER BY val <-> $1 DESC'),
	reads('SELECT id FROM t ORDER BY val <-> $1 NULLS FIRST');
RESET enable_seqscan;
RESET enable_bitmapscan;
RESET enable_indexonlyscan;
RESET enable_sort;
CREATE INDEX t_kind ON t (kind);
ANALYZE t;
SET gpuann.exact = on;
SELECT reads('SELECT id FROM t ORDER BY val <-> $1 LIMIT 10');
RESET gpuann.exact;

-- beside a dearer index of another access method
CREATE INDEX t_hnsw ON t USING hnsw (val vector_l2_ops);
SET hnsw.ef_search = 1000;
SELECT reads('SELECT id FROM t ORDER BY val <-> $1 LIMIT 10');
RESET hnsw.ef_search;
DROP INDEX t_hnsw;

-- how many rows are wanted
SELECT reads('SELECT id FROM t ORDER BY val <-> $1 LIMIT 100');
SELECT reads('SELECT id FROM t ORDER BY val <-> $1 LIMIT 9000');
SELECT reads('SELECT id FROM t ORDER BY val <-> $1 LIMIT 10 OFFSET 9000');
SELECT reads('SELECT id FROM t WHERE kind < 2500 ORDER BY val <-> $1 LIMIT 10');
SELECT reads('SELECT id FROM t WHERE kind < 2500 ORDER BY val <-> $1 LIMIT 4000');
SET gpuann.exact = on;
SELECT reads('SELECT id FROM t ORDER BY val <-> $1 LIMIT 9000');
RESET gpuann.exact;
-- a scan that ends early is not taken for a way to read everything
SET gpuann.iterative_scan = off;
SELECT reads('SELECT id FROM t ORDER BY val <-> $1');
RESET gpuann.iterative_scan;
-- a breadth that visits everything: exactly, then
SET gpuann.ef_search = 10000;
SELECT reads('SELECT id FROM t ORDER BY val <-> $1 LIMIT 10');
RESET gpuann.ef_search;
-- an aggregate wants all rows
SELECT reads('SELECT array_agg(id ORDER BY val <-> $1) FROM t');
-- a prepared statement, planned once
PREPARE nearest(vector) AS SELECT id FROM t ORDER BY val <-> $1 LIMIT 10;
SET plan_cache_mode = force_generic_plan;
SELECT reads('EXECUTE nearest($1)');
RESET plan_cache_mode;
DEALLOCATE nearest;
-- how many are wanted is not known: few, probably
PREPARE nearest_few(vector, integer) AS SELECT id FROM t ORDER BY val <-> $1 LIMIT $2;
SET plan_cache_mode = force_generic_plan;
SELECT reads('EXECUTE nearest_few($1, 5)');
RESET plan_cache_mode;
DEALLOCATE nearest_few;

-- one row of each distance
SELECT reads('SELECT DISTINCT ON (val <-> $1) id FROM t ORDER BY val <-> $1 LIMIT 10');
-- in joins: the outer side, the inner one, and where the order does not help
SELECT reads('SELECT a.id, b.kind FROM t a JOIN t b ON b.id = a.kind + 1 ORDER BY a.val <-> $1 LIMIT 10');
SELECT reads('SELECT q.id, n.id FROM t q, LATERAL (SELECT id FROM t ORDER BY t.val <-> q.val LIMIT 3) n WHERE q.kind < 10');
SELECT reads('SELECT a.id FROM t a JOIN t b ON b.id = a.kind + 1 WHERE b.kind = 7 ORDER BY a.val <-> $1 LIMIT 10');

-- a tiny table is read, a small one is not
CREATE TABLE tiny (id integer, val vector(32));
INSERT INTO tiny SELECT id, val FROM t WHERE id <= 50;
CREATE INDEX tiny_val ON tiny USING gpuann (val vector_l2_ops);
ANALYZE tiny;
SELECT reads('SELECT id FROM tiny ORDER BY val <-> $1 LIMIT 5');
INSERT INTO tiny SELECT id, val FROM t WHERE id BETWEEN 51 AND 2000;
VACUUM ANALYZE tiny;
SELECT reads('SELECT id FROM tiny ORDER BY val <-> $1 LIMIT 5');

-- vectors out of line: the table looks small
CREATE TABLE wide (id integer, val vector(1000));
INSERT INTO wide SELECT g, array_fill(g::real, ARRAY[1000])::vector FROM generate_series(1, 2000) g;
CREATE INDEX wide_val ON wide USING gpuann (val vector_l2_ops) WITH (m = 4, ef_construction = 8);
ANALYZE wide;
SELECT reads('SELECT id FROM wide ORDER BY val <-> array_fill(1, ARRAY[1000])::vector LIMIT 5');
-- ... and what other plans would have to fetch from there counts
CREATE INDEX ON wide (id);
ANALYZE wide;
SELECT reads('SELECT id FROM wide WHERE id < 500 ORDER BY val <-> array_fill(1, ARRAY[1000])::vector LIMIT 1') AS many_pass,
	reads('SELECT id FROM wide WHERE id < 5 ORDER BY val <-> array_fill(1, ARRAY[1000])::vector LIMIT 1') AS few_pass;

-- of two indexes that would do, the smaller one
CREATE INDEX t_part ON t USING gpuann (val vector_l2_ops) WHERE kind < 500;
ANALYZE t;
SELECT reads('SELECT id FROM t WHERE kind < 500 ORDER BY val <-> $1 LIMIT 10');
SELECT reads('SELECT id FROM t WHERE kind < 600 ORDER BY val <-> $1 LIMIT 10');

-- partitions: each gives its nearest
CREATE TABLE parts (id integer, val vector(32)) PARTITION BY RANGE (id);
CREATE TABLE parts1 PARTITION OF parts FOR VALUES FROM (1) TO (5000);
CREATE TABLE parts2 PARTITION OF parts FOR VALUES FROM (5000) TO (10001);
INSERT INTO parts SELECT id, val FROM t;
CREATE INDEX parts_val ON parts USING gpuann (val vector_l2_ops) WITH (m = 8);
ANALYZE parts;
SELECT reads('SELECT id FROM parts ORDER BY val <-> $1 LIMIT 10');
SELECT reads('SELECT id FROM parts ORDER BY val <-> $1');
SELECT reads('SELECT id FROM parts WHERE id < 100 ORDER BY val <-> $1 LIMIT 10');

-- a vector of an outer query is not known to parallel workers: they get no scan ordered by it
CREATE TABLE parent (id integer, val vector(3), kind integer);
CREATE TABLE child () INHERITS (parent);
INSERT INTO parent SELECT i, ARRAY[i, i % 7, i % 3], i % 10 FROM generate_series(1, 300) i;
INSERT INTO child SELECT i, ARRAY[i, i % 7, i % 3], i % 10 FROM generate_series(301, 600) i;
CREATE INDEX parent_val ON parent USING gpuann (val vector_l2_ops);
CREATE INDEX child_val ON child USING gpuann (val vector_l2_ops);
CREATE TABLE outers AS SELECT n, ARRAY[n * 200, 1, 1]::vector AS val FROM generate_series(1, 2) n;
ANALYZE parent, child, outers;
SET enable_seqscan = off;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SET min_parallel_index_scan_size = 0;
SET parallel_leader_participation = off;
PREPARE beside AS SELECT o.n, count(*), min(s.id), max(s.id)
	FROM outers o, LATERAL (SELECT id FROM parent WHERE kind = 7 ORDER BY val <-> o.val LIMIT 50) s GROUP BY o.n ORDER BY o.n;
EXECUTE beside;
SET gpuann.plan_node = off;
EXECUTE beside;
RESET ALL;
DEALLOCATE beside;

-- each part of a table is sampled, for their rows may be unlike each other
CREATE FUNCTION rows_planned(query text) RETURNS float8 LANGUAGE plpgsql AS $$
DECLARE plan json;
BEGIN
	EXECUTE 'EXPLAIN (FORMAT json) ' || query INTO plan;
	RETURN plan -> 0 -> 'Plan' ->> 'Plan Rows';
END $$;
CREATE TABLE unlike (id integer, val vector(3)) PARTITION BY RANGE (id);
CREATE TABLE unlike_far PARTITION OF unlike FOR VALUES FROM (0) TO (1000);
CREATE TABLE unlike_near PARTITION OF unlike FOR VALUES FROM (1000) TO (2000);
INSERT INTO unlike SELECT i, ARRAY[CASE WHEN i < 1000 THEN 1000 ELSE 0 END + i % 7, i % 11, i % 13] FROM generate_series(0, 1999) i;
CREATE INDEX ON unlike USING gpuann (val vector_l2_ops);
ANALYZE unlike;
SET enable_seqscan = off;
SELECT rows_planned($$SELECT id FROM unlike WHERE val <-> '[0,0,0]' < 50$$) BETWEEN 500 AND 1500 AS planned;
RESET ALL;

DROP TABLE t, tiny, wide, parts, parent, child, outers, unlike;
DROP FUNCTION reads, rows_planned;
