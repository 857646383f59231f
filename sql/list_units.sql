-- Lists on several units, and codes of items that occur together.

SET client_min_messages = warning;
CREATE TABLE units_t (id int, v vector(16));
INSERT INTO units_t
	SELECT i, array_agg(sin(i * j) ORDER BY j)::vector(16)
	FROM generate_series(1, 2000) i, generate_series(1, 16) j GROUP BY i;
ANALYZE units_t;
CREATE INDEX units_graph ON units_t USING gpuann (v vector_l2_ops);
CREATE INDEX units_lists ON units_t USING gpuann (v vector_l2_ops) WITH (method = ivfpq, lists = 30);
RESET client_min_messages;

-- Every list is somewhere, with all of its rows, and loads are even.
SELECT count(*), sum(lists), sum(copied_lists) AS copied, sum(rows) AS rows, sum(bytes) > 2000 * 10 AS bytes,
		max(load) <= 1.5 AS even, max(scattered_load) >= max(load) AS gains, round(avg(load)::numeric, 6) AS mean
	FROM gpuann_list_placement('units_lists', 4);
-- A list of half of all probes is on half of the units; spare room takes everything.
SELECT max(lists), sum(lists), sum(copied_lists) AS copied
	FROM gpuann_list_placement('units_lists', 8, 'one', probes => array_fill(1::float8, ARRAY[30]));
SELECT sum(copied_lists) >= 4 AS copied
	FROM gpuann_list_placement('units_lists', 8, 'work', probes => ARRAY[1e6] || array_fill(1::float8, ARRAY[29]));
SELECT count(*), min(lists), min(rows), round(max(load)::numeric, 6) AS most FROM gpuann_list_placement('units_lists', 8, 'spare');
SELECT max(bytes) <= 60000 AS within, sum(lists) > 30 AS copied FROM gpuann_list_placement('units_lists', 2, 'spare', 60000);
-- Lists that fit as they are probed, but not if they were placed by rows: two of 300 rows and three of 200 on two units with room for 600.
SET client_min_messages = warning;
CREATE TABLE tight_t (v vector(8));
INSERT INTO tight_t SELECT array_agg(CASE WHEN j = k THEN 1000 ELSE sin(i * j) / 10 END ORDER BY j)::vector(8)
	FROM generate_series(1, 5) k, generate_series(1, 300) i, generate_series(1, 8) j WHERE i <= 200 OR k IN (1, 5) GROUP BY k, i;
CREATE INDEX tight_lists ON tight_t USING gpuann (v vector_l2_ops) WITH (method = ivfpq, lists = 5);
-- Seeds are drawn from a sample, which seldom lacks one of the five groups.
DO $$ BEGIN
	WHILE (SELECT max(rows) <> 300 FROM gpuann_list_stats('tight_lists')) LOOP
		REINDEX INDEX tight_lists;
	END LOOP;
END $$;
RESET client_min_messages;
CREATE TABLE tight AS SELECT list, rows, CASE WHEN rows = 200 THEN 1 WHEN list = min(list) FILTER (WHERE rows = 300) OVER () THEN 2.46 ELSE 0 END AS probes,
	600 * (bytes / rows) AS capacity FROM gpuann_list_stats('tight_lists');
SELECT array_agg(rows ORDER BY rows) FROM tight;
SELECT unit, rows, round(load::numeric, 2) AS load, load_by_rows
	FROM (SELECT array_agg(probes::float8 ORDER BY list) AS probes, max(capacity) AS capacity FROM tight) t, gpuann_list_placement('tight_lists', 2, 'one', capacity, probes);
SELECT unit, rows, round(load_by_rows::numeric, 2) > 0 AS by_rows
	FROM (SELECT array_agg(probes::float8 ORDER BY list) AS probes FROM tight) t, gpuann_list_placement('tight_lists', 2, 'one', NULL, probes);
DROP TABLE tight_t, tight;

-- What is refused.
SELECT * FROM gpuann_list_placement('units_graph', 4);
SELECT * FROM gpuann_list_placement('units_lists', 0);
SELECT * FROM gpuann_list_placement('units_lists', 1025);
SELECT * FROM gpuann_list_placement('units_lists', 4, 'two');
SELECT * FROM gpuann_list_placement('units_lists', 4, capacity => 0);
SELECT * FROM gpuann_list_placement('units_lists', 4, NULL);
SELECT * FROM gpuann_list_placement('units_lists', 4, probes => '{1,2}');
SELECT * FROM gpuann_list_placement('units_lists', 4, probes => ARRAY[-1] || array_fill(1::float8, ARRAY[29]));
SELECT * FROM gpuann_list_placement('units_lists', 4, probes => ARRAY['NaN'::float8] || array_fill(1::float8, ARRAY[29]));
DO $$ BEGIN
	PERFORM gpuann_list_placement('units_lists', 4, capacity => 1);
EXCEPTION WHEN insufficient_resources THEN
	RAISE NOTICE '%', regexp_replace(SQLERRM, 'list \d+ of \d+', 'list N of N');
END $$;

-- The option cooc.
CREATE INDEX ON units_t USING gpuann (v vector_l2_ops) WITH (method = ivfpq, cooc = on);
CREATE INDEX ON units_t USING gpuann (v vector_l2_ops) WITH (method = ivfpq, quantizer = pq, code_bits = 4, cooc = on);
CREATE INDEX ON units_t USING gpuann (v vector_l2_ops) WITH (method = ivfpq, quantizer = pq, cooc = maybe);
CREATE INDEX ON units_t USING gpuann (v vector_l2_ops) WITH (cooc = on);
CREATE INDEX units_pq ON units_t USING gpuann (v vector_l2_ops)
	WITH (method = ivfpq, quantizer = pq, pq_m = 16, lists = 2, cooc = on);
SET enable_seqscan = off;
SELECT id FROM units_t ORDER BY v <-> (SELECT v FROM units_t WHERE id = 77) LIMIT 1;
ALTER INDEX units_pq SET (cooc = off);
SELECT id FROM units_t ORDER BY v <-> (SELECT v FROM units_t WHERE id = 77) LIMIT 1;
DROP TABLE units_t;
