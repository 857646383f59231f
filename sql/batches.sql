-- gpuann_search, gpuann_knn_graph: the answers of queries one by one, of the rows that the snapshot sees; who may ask
SET client_min_messages = warning;
CREATE TABLE batched (id int, kind int, v vector(8)) WITH (autovacuum_enabled = off);
SELECT setseed(0.5);
INSERT INTO batched SELECT i, i % 3, ARRAY(SELECT random() FROM generate_series(1, 8) WHERE i > 0)::vector FROM generate_series(1, 400) i;
CREATE INDEX batched_v ON batched USING gpuann (v vector_l2_ops);
-- dead rows, updated ones in place and moved, rows that are not linked yet, equal rows, one that is not indexed
DELETE FROM batched WHERE id % 7 = 0;
UPDATE batched SET kind = kind + 1 WHERE id % 11 = 0;
UPDATE batched SET v = ARRAY(SELECT random() FROM generate_series(1, 8) WHERE id > 0)::vector WHERE id % 13 = 0;
INSERT INTO batched SELECT i, i % 3, ARRAY(SELECT random() FROM generate_series(1, 8) WHERE i > 0)::vector FROM generate_series(401, 430) i;
INSERT INTO batched SELECT 500 + i, 0, v FROM batched, generate_series(1, 5) i WHERE id = 1;
INSERT INTO batched VALUES (0, 0, NULL);
CREATE TABLE asked AS SELECT i AS query, ARRAY(SELECT random() FROM generate_series(1, 8) WHERE i > 0)::vector(8) AS v FROM generate_series(1, 40) i;

-- breadth enough to be exact: distances by rank are those of a sequential scan, and each row has its own
CREATE FUNCTION exact_ones(k int) RETURNS TABLE (query int, rank bigint, distance float8) LANGUAGE sql SET enable_indexscan = off AS
	$$ SELECT q.query, row_number() OVER (PARTITION BY q.query ORDER BY n.distance), n.distance
		FROM asked q, LATERAL (SELECT b.v <-> q.v AS distance FROM batched b WHERE b.v IS NOT NULL ORDER BY 1 LIMIT k) n $$;
CREATE FUNCTION differences(k int) RETURNS TABLE (rows bigint, ranks bigint, own bigint, twice bigint) LANGUAGE sql AS $$
	WITH found AS MATERIALIZED (SELECT * FROM gpuann_search('batched_v', (SELECT array_agg(v ORDER BY query) FROM asked), k, 1000)),
		exact AS MATERIALIZED (SELECT * FROM exact_ones(k))
	SELECT (SELECT count(*) FROM found), (SELECT count(*) FROM found FULL JOIN exact USING (query, rank) WHERE found.distance IS DISTINCT FROM exact.distance),
		(SELECT count(*) FROM found JOIN asked USING (query) JOIN batched b ON b.ctid = found.tid WHERE b.v <-> asked.v = found.distance),
		(SELECT count(*) - count(DISTINCT (query, tid)) FROM found) $$;
SELECT * FROM differences(5);
SELECT * FROM differences(1);
SELECT * FROM differences(2000);
SET work_mem = '64kB';
SELECT * FROM differences(5);
SET gpuann.exact = on;
SELECT * FROM differences(5);
RESET gpuann.exact;
RESET work_mem;
SET gpuann.server = off;
SELECT * FROM differences(5);
RESET gpuann.server;
SET gpuann.iterative_scan = strict_order;
SELECT * FROM differences(5);
RESET gpuann.iterative_scan;
VACUUM batched;
SELECT * FROM differences(10);

-- the snapshot's rows: a cursor sees what was there when it was opened
BEGIN;
DECLARE before CURSOR FOR SELECT count(*), count(b.id) FROM gpuann_search('batched_v', (SELECT array_agg(v) FROM asked WHERE query <= 3), 4) s JOIN batched b ON b.ctid = s.tid;
DELETE FROM batched;
SELECT count(*) FROM gpuann_search('batched_v', (SELECT array_agg(v) FROM asked), 4);
FETCH before;
ROLLBACK;

-- the graph of nearest neighbours: of every row, none its own, but for the row that is not indexed
CREATE FUNCTION graph_differences(k int, exact boolean) RETURNS TABLE (rows bigint, wrong bigint, own bigint) LANGUAGE sql AS $$
	WITH found AS MATERIALIZED (SELECT * FROM gpuann_knn_graph('batched_v', k, 1000, exact)),
		ranked AS (SELECT tid, array_agg(distance ORDER BY distance) AS distances FROM found GROUP BY tid),
		exact AS (SELECT a.ctid AS tid, ARRAY(SELECT a.v <-> b.v FROM batched b WHERE b.ctid <> a.ctid AND b.v IS NOT NULL ORDER BY 1 LIMIT k) AS distances
			FROM batched a WHERE a.v IS NOT NULL)
	SELECT (SELECT count(*) FROM found), (SELECT count(*) FROM ranked FULL JOIN exact USING (tid) WHERE ranked.distances IS DISTINCT FROM exact.distances),
		(SELECT count(*) FROM found WHERE tid = neighbour) $$;
SET enable_indexscan = off;
SELECT * FROM graph_differences(3, false);
SELECT * FROM graph_differences(1, true);
RESET enable_indexscan;
SHOW gpuann.exact;

-- other types, metrics and lists: each vector's nearest row is itself
CREATE INDEX batched_cosine ON batched USING gpuann ((v::halfvec(8)) halfvec_cosine_ops) WHERE kind = 0;
SELECT count(*), count(*) FILTER (WHERE s.distance < 1e-3) AS itself
FROM gpuann_search('batched_cosine', (SELECT array_agg(v::halfvec(8)) FROM batched WHERE kind = 0 AND v IS NOT NULL), 1, 400) s;
SELECT query, count(*) FROM gpuann_search('batched_cosine', ARRAY['[0,0,0,0,0,0,0,0]', NULL, '[1,0,0,0,0,0,0,0]']::halfvec[], 2) GROUP BY query;
CREATE TABLE bits AS SELECT i AS id, i::bit(16) AS b FROM generate_series(1, 300) i;
CREATE INDEX bits_b ON bits USING gpuann (b bit_hamming_ops);
SELECT query, rank, b, distance FROM gpuann_search('bits_b', ARRAY[B'0000000000000001', B'0000000011111111'], 1, 400) s JOIN bits ON bits.ctid = s.tid ORDER BY 1;
CREATE INDEX batched_lists ON batched USING gpuann (v vector_l2_ops) WITH (method = ivfpq, lists = 4);
SET gpuann.probes = 4;
SET gpuann.rerank = 1000;
SELECT count(*), count(*) FILTER (WHERE s.distance = 0) AS itself
FROM gpuann_search('batched_lists', (SELECT array_agg(v) FROM batched WHERE id BETWEEN 1 AND 100), 1) s;
RESET gpuann.probes;
RESET gpuann.rerank;

-- nothing to find, nothing to ask
CREATE TABLE nothing (v vector(8));
CREATE INDEX nothing_v ON nothing USING gpuann (v vector_l2_ops);
SELECT * FROM gpuann_search('nothing_v', (SELECT array_agg(v) FROM asked));
SELECT * FROM gpuann_knn_graph('nothing_v');
SELECT * FROM gpuann_search('batched_v', '{}'::vector[]);
SELECT * FROM gpuann_search('batched_v', ARRAY[NULL, NULL]::vector[]);

-- errors
SELECT * FROM gpuann_search('batched_v', ARRAY['[1,2]']::vector[]);
SELECT * FROM gpuann_search('batched_v', ARRAY['[1,2,3,4,5,6,7,8]']::halfvec[]);
SELECT * FROM gpuann_search('batched_v', NULL::vector[]);
SELECT * FROM gpuann_search('batched_v', '{}'::vector[], 0);
SELECT * FROM gpuann_search('batched_v', '{}'::vector[], 10, 0);
SELECT * FROM gpuann_search('batched', '{}'::vector[]);
SELECT * FROM gpuann_knn_graph('batched_v', 10000);
SELECT * FROM gpuann_knn_graph('batched_v', exact => NULL);

-- who may: roles that may read what is indexed and to whom no row-level security applies, not even an owner under force
CREATE ROLE regress_batch_stranger;
CREATE ROLE regress_batch_reader;
CREATE ROLE regress_batch_owner;
GRANT SELECT (v) ON batched TO regress_batch_reader;
ALTER TABLE batched OWNER TO regress_batch_owner;
SET ROLE regress_batch_stranger;
SELECT * FROM gpuann_search('batched_v', '{}'::vector[]);
SELECT * FROM gpuann_knn_graph('batched_v');
SET ROLE regress_batch_reader;
SELECT count(*) FROM gpuann_search('batched_v', ARRAY['[1,2,3,4,5,6,7,8]']::vector[], 3);
SELECT * FROM gpuann_search('batched_cosine', '{}'::halfvec[]);
RESET ROLE;
ALTER TABLE batched ENABLE ROW LEVEL SECURITY;
CREATE POLICY few ON batched USING (kind = 1);
SET ROLE regress_batch_reader;
SELECT * FROM gpuann_search('batched_v', '{}'::vector[]);
SELECT * FROM gpuann_knn_graph('batched_v');
SET ROLE regress_batch_owner;
SELECT count(*) FROM gpuann_search('batched_v', ARRAY['[1,2,3,4,5,6,7,8]']::vector[], 3);
ALTER TABLE batched FORCE ROW LEVEL SECURITY;
SELECT * FROM gpuann_search('batched_v', '{}'::vector[]);
RESET ROLE;
DROP TABLE batched, asked, bits, nothing CASCADE;
DROP FUNCTION exact_ones, differences, graph_differences;
DROP ROLE regress_batch_stranger, regress_batch_reader, regress_batch_owner;
