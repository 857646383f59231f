-- What lists hold, how often they are probed, and what codes of items that occur together would save.

SET client_min_messages = warning;
CREATE TABLE stats_t (id int, v vector(16));
INSERT INTO stats_t
	SELECT i, array_agg(sin(i * j) ORDER BY j)::vector(16)
	FROM generate_series(1, 2000) i, generate_series(1, 16) j GROUP BY i;
ANALYZE stats_t;
CREATE INDEX stats_graph ON stats_t USING gpuann (v vector_l2_ops);
CREATE INDEX stats_lists ON stats_t USING gpuann (v vector_l2_ops) WITH (method = ivfpq, lists = 30);
RESET client_min_messages;

-- A row for each list, with all entries. Nothing was searched yet.
SELECT count(*), min(list), max(list), sum(rows) AS rows, sum(bytes) = sum(rows) * (8 + (SELECT code_bytes FROM gpuann_lists('stats_lists'))) AS bytes,
		coalesce(sum(probes), 0) AS probes, count(share) AS shares
	FROM gpuann_list_stats('stats_lists');
-- Without counts lists are placed by their rows.
SELECT bool_and(load = load_by_rows) AS by_rows FROM gpuann_list_placement('stats_lists', 4);
-- Probes that the caller gives: how uneven the work would be where lists were placed by rows.
SELECT max(load) < 1.2 AS even, max(load_by_rows) > 3 AS drifted
	FROM gpuann_list_placement('stats_lists', 4, probes => ARRAY[1000] || array_fill(1::float8, ARRAY[29]));

-- What is refused.
SELECT * FROM gpuann_list_stats('stats_graph');
SELECT * FROM gpuann_list_stats('stats_t');
SELECT * FROM gpuann_list_stats(NULL);
SELECT * FROM gpuann_list_encoding('stats_graph');
SELECT * FROM gpuann_list_encoding('stats_lists');
CREATE INDEX stats_pq4 ON stats_t USING gpuann (v vector_l2_ops) WITH (method = ivfpq, quantizer = pq, code_bits = 4, lists = 3);
SELECT * FROM gpuann_list_encoding('stats_pq4');
CREATE INDEX stats_pq2 ON stats_t USING gpuann (v vector_l2_ops) WITH (method = ivfpq, quantizer = pq, pq_m = 2, lists = 3);
SELECT * FROM gpuann_list_encoding('stats_pq2');
CREATE INDEX stats_pq ON stats_t USING gpuann (v vector_l2_ops) WITH (method = ivfpq, quantizer = pq, pq_m = 4, lists = 3);
CREATE ROLE stats_guest;
SET ROLE stats_guest;
SELECT * FROM gpuann_list_stats('stats_lists');
SELECT * FROM gpuann_list_encoding('stats_pq');
RESET ROLE;
GRANT pg_stat_scan_tables TO stats_guest;
SET ROLE stats_guest;
SELECT count(*) FROM gpuann_list_stats('stats_lists');
SELECT count(*) FROM gpuann_list_encoding('stats_pq');
RESET ROLE;
DROP ROLE stats_guest;
DROP TABLE stats_t;

-- Rows that differ from others in two dimensions, as nine of ten do here, have words in common; others have none. A list of few rows is left alone.
SET client_min_messages = warning;
CREATE TABLE twins_t (v vector(32));
INSERT INTO twins_t
	SELECT array_agg((CASE WHEN i <= 5400 AND j / 2 <> i % 16 THEN sin(i % 40 * j * 1.7) ELSE 2 * random() - 1 END)::real ORDER BY j)::vector(32)
	FROM generate_series(1, 6000) i, generate_series(1, 32) j GROUP BY i ORDER BY i;
CREATE TABLE normal_t (v vector(32));
INSERT INTO normal_t
	SELECT array_agg(sqrt(-2 * ln(1 - random())) * cos(2 * pi() * random()))::vector(32)
	FROM generate_series(1, 6000) i, generate_series(1, 32) j GROUP BY i;
CREATE INDEX twins_auto ON twins_t USING gpuann (v vector_l2_ops) WITH (method = ivfpq, quantizer = pq, pq_m = 16, cooc = auto, lists = 1);
CREATE INDEX normal_auto ON normal_t USING gpuann (v vector_l2_ops) WITH (method = ivfpq, quantizer = pq, pq_m = 16, cooc = auto, lists = 1);
CREATE INDEX few_on ON normal_t USING gpuann (v vector_l2_ops) WITH (method = ivfpq, quantizer = pq, pq_m = 16, cooc = on, lists = 300);
RESET client_min_messages;
SELECT list, rows, sets > 0 AS sets, plain_words, coded_words < 9 AS fewer, plain_bytes, coded_bytes = round(coded_words * rows * 2) AS bytes,
		round(1 - coded_words / 16) = round(saved) AS saved, pays, cooc, encoded FROM gpuann_list_encoding('twins_auto');
SELECT list, rows, plain_words, coded_words > 14 AS as_many, saved < 0.15 AS little, pays, cooc, encoded FROM gpuann_list_encoding('normal_auto');
ALTER INDEX twins_auto SET (cooc = off);
SELECT pays, cooc, encoded FROM gpuann_list_encoding('twins_auto');
SELECT count(*) = (SELECT lists FROM gpuann_lists('few_on')) AS all_lists, sum(rows), bool_or(pays) AS pays, min(cooc) AS cooc,
		bool_and(encoded = (sets > 0)) AS by_option, bool_and(sets = 0) FILTER (WHERE rows < 32) IS NOT FALSE AS few
	FROM gpuann_list_encoding('few_on');
SELECT * FROM gpuann_list_encoding(NULL);
DROP TABLE twins_t, normal_t;
