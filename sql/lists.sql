-- Lists of codes: method = ivfpq.

SET client_min_messages = warning;
CREATE TABLE lists_t (id int, v vector(8), h halfvec(8), b bit(8), wide vector(5000));
INSERT INTO lists_t (id, v, h)
	SELECT i, array_agg(sin(i * j) ORDER BY j)::vector(8), array_agg(sin(i * j) ORDER BY j)::halfvec(8)
	FROM generate_series(1, 2000) i, generate_series(1, 8) j GROUP BY i;
VACUUM ANALYZE lists_t;
RESET client_min_messages;

-- What has no lists.
CREATE INDEX ON lists_t USING gpuann (v vector_l1_ops) WITH (method = ivfpq);
CREATE INDEX ON lists_t USING gpuann (b bit_hamming_ops) WITH (method = ivfpq);
CREATE INDEX ON lists_t USING gpuann (wide vector_l2_ops) WITH (method = ivfpq);

-- Options of the other method, and of other quantizers.
CREATE INDEX ON lists_t USING gpuann (v vector_l2_ops) WITH (method = ivfpq, m = 8);
CREATE INDEX ON lists_t USING gpuann (v vector_l2_ops) WITH (probes = 8);
CREATE INDEX ON lists_t USING gpuann (v vector_l2_ops) WITH (quantizer = int8);
CREATE INDEX ON lists_t USING gpuann (v vector_l2_ops) WITH (method = ivfpq, quantizer = flat);
CREATE INDEX ON lists_t USING gpuann (v vector_l2_ops) WITH (method = ivfpq, quantizer = int8, code_bits = 4);
CREATE INDEX ON lists_t USING gpuann (v vector_l2_ops) WITH (method = ivfpq, quantizer = pq, code_bits = 5);
CREATE INDEX ON lists_t USING gpuann (v vector_l2_ops) WITH (method = ivfpq, pq_m = 4);
CREATE INDEX ON lists_t USING gpuann (v vector_l2_ops) WITH (method = ivfpq, quantizer = pq, pq_m = 9);
CREATE INDEX ON lists_t USING gpuann (v vector_l2_ops) WITH (method = ivfpq, lists = 0);
CREATE INDEX ON lists_t USING gpuann (v vector_l2_ops) WITH (method = ivfpq, lists = 32769);
CREATE INDEX ON lists_t USING gpuann (v vector_l2_ops) WITH (method = ivfpq, code_bits = 9);
SET gpuann.probes = 0;
SET gpuann.rerank = 0;

-- Centroids take a small part of the index.
CREATE INDEX lists_i ON lists_t USING gpuann (v vector_l2_ops) WITH (method = ivfpq, lists = 5000);
DROP INDEX lists_i;

-- Every quantizer, type and metric finds what an exact search finds, if all lists are searched and every row compared.
CREATE FUNCTION lists_differ(type text, class text, operator text, options text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	col text := CASE type WHEN 'vector' THEN 'v' ELSE 'h' END;
	query text := format('SELECT array_agg(id ORDER BY o) FROM (SELECT id, row_number() OVER () AS o FROM
		(SELECT id FROM lists_t ORDER BY %s %s %L::%s LIMIT 10) r) s', col, operator, '[1,2,3,1,-2,1,0,1]', type);
	found int[];
	truth int[];
BEGIN
	EXECUTE format('CREATE INDEX lists_i ON lists_t USING gpuann (%s %s) WITH (method = ivfpq, lists = 20%s)', col, class, options);
	SET LOCAL enable_seqscan = off;
	SET LOCAL gpuann.probes = 1000;
	SET LOCAL gpuann.rerank = 1000;
	EXECUTE query INTO found;
	SET LOCAL gpuann.exact = on;
	EXECUTE query INTO truth;
	SET LOCAL gpuann.exact = off;
	PERFORM gpuann_check('lists_i', true);
	DROP INDEX lists_i;
	RETURN (SELECT count(*) FROM unnest(found) f WHERE f <> ALL (truth)) + abs(10 - cardinality(found));
END $$;

SELECT type, operator, options, lists_differ(type, type || '_' || class || '_ops', operator, options)
FROM (VALUES ('l2', '<->'), ('ip', '<#>'), ('cosine', '<=>')) m (class, operator),
	(VALUES ('vector'), ('halfvec')) t (type),
	(VALUES (''), (', code_bits = 4'), (', quantizer = int8'), (', quantizer = pq'), (', quantizer = pq, code_bits = 4, pq_m = 3')) q (options)
ORDER BY 1, 2, 3;

CREATE FUNCTION plan_of(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
BEGIN
	RETURN QUERY EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) ' || query;
END $$;

-- Built empty there is one list; rows that come later join it, and a rebuild makes more.
CREATE TABLE lists_e (id int, v vector(8));
CREATE INDEX lists_ei ON lists_e USING gpuann (v vector_l2_ops) WITH (method = ivfpq);
INSERT INTO lists_e SELECT id, v FROM lists_t;
SET enable_seqscan = off;
SELECT count(*) FROM (SELECT id FROM lists_e ORDER BY v <-> '[1,1,1,1,1,1,1,1]') s;
SELECT gpuann_link('lists_ei') <= 2000 AS linked; -- or a worker did it
SELECT count(*) FROM (SELECT id FROM lists_e ORDER BY v <-> '[1,1,1,1,1,1,1,1]') s;
SELECT lists, rows, empty_lists, added, quantizer, code_bits, code_bytes FROM gpuann_lists('lists_ei');
SELECT gpuann_check('lists_ei', true);
REINDEX INDEX lists_ei;
SELECT lists > 20 AS many, rows, added, quantizer, code_bits, code_bytes FROM gpuann_lists('lists_ei');
SELECT gpuann_check('lists_ei', true);

-- EXPLAIN says how many lists were searched, and why the server was not asked.
SET gpuann.probes = 9;
SELECT line FROM (SELECT regexp_replace(line, '.*(probes=\d+).*', '\1') AS line FROM
	plan_of($$SELECT id FROM lists_e ORDER BY v <-> '[1,1,1,1,1,1,1,1]' LIMIT 5$$) line) s WHERE line LIKE 'probes%';
RESET gpuann.probes;

-- Filters, rows that come and go.
DELETE FROM lists_e WHERE id % 2 = 0;
INSERT INTO lists_e SELECT id + 10000, v FROM lists_t WHERE id % 2 = 0;
SELECT count(*) FROM (SELECT id FROM lists_e WHERE id > 10000 ORDER BY v <-> '[1,1,1,1,1,1,1,1]' LIMIT 700) s;
VACUUM lists_e;
SELECT count(*) FROM (SELECT id FROM lists_e WHERE id > 10000 ORDER BY v <-> '[1,1,1,1,1,1,1,1]' LIMIT 700) s;
SELECT rows, added FROM gpuann_lists('lists_ei');
SELECT gpuann_check('lists_ei', true);

-- What is altered is heeded by the next build, but for probes: until then prices and defaults are those of what was built.
CREATE FUNCTION price_of(query text) RETURNS float8 LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO plan;
	RETURN plan -> 0 -> 'Plan' ->> 'Total Cost';
END $$;

SET gpuann.server = off;
CREATE TABLE lists_g (id int, v vector(8));
INSERT INTO lists_g SELECT id, v FROM lists_t;
CREATE INDEX lists_gi ON lists_g USING gpuann (v vector_l2_ops);
ANALYZE lists_g, lists_e;
CREATE TEMP TABLE prices AS SELECT t, price_of(format('SELECT id FROM %s ORDER BY v <-> %L LIMIT 5', t, '[1,1,1,1,1,1,1,1]')) AS price
	FROM (VALUES ('lists_e'), ('lists_g')) tables (t);
ALTER INDEX lists_ei SET (lists = 7);
ALTER INDEX lists_gi SET (method = ivfpq);
SELECT t, price_of(format('SELECT id FROM %s ORDER BY v <-> %L LIMIT 5', t, '[1,1,1,1,1,1,1,1]')) = price AS same FROM prices ORDER BY t;
SELECT substring(line, ' ef=\d+') AS ef FROM plan_of($$SELECT id FROM lists_g ORDER BY v <-> '[1,1,1,1,1,1,1,1]' LIMIT 5$$) line
	WHERE line LIKE '% ef=%';
ALTER INDEX lists_ei RESET (lists);
ALTER INDEX lists_ei SET (method = graph);
SELECT t, price_of(format('SELECT id FROM %s ORDER BY v <-> %L LIMIT 5', t, '[1,1,1,1,1,1,1,1]')) = price AS same FROM prices ORDER BY t;
SELECT substring(line, ' ef=\d+') AS ef FROM plan_of($$SELECT id FROM lists_e ORDER BY v <-> '[1,1,1,1,1,1,1,1]' LIMIT 5$$) line
	WHERE line LIKE '% ef=%';
ALTER INDEX lists_ei SET (method = ivfpq);
ALTER INDEX lists_ei SET (probes = 3);
SELECT price_of(format('SELECT id FROM %s ORDER BY v <-> %L LIMIT 5', t, '[1,1,1,1,1,1,1,1]')) < price AS cheaper FROM prices WHERE t = 'lists_e';
ALTER INDEX lists_ei SET (m = 8);
RESET gpuann.server;

-- Every page is of some part.
SELECT meta_bytes + seed_bytes + list_bytes + node_bytes + vector_bytes + posting_bytes + unused_bytes = pg_relation_size('lists_ei') AS bytes_add_up,
	posting_bytes = (SELECT l.posting_bytes FROM gpuann_lists('lists_ei') l) AS same
FROM gpuann_stats('lists_ei');

-- An unlogged index.
CREATE UNLOGGED TABLE lists_u (id int, v vector(8));
CREATE INDEX lists_ui ON lists_u USING gpuann (v vector_l2_ops) WITH (method = ivfpq);
INSERT INTO lists_u SELECT id, v FROM lists_t;
SELECT gpuann_link('lists_ui') <= 2000 AS linked; -- or a worker did it
SELECT count(*) FROM (SELECT id FROM lists_u ORDER BY v <-> '[1,1,1,1,1,1,1,1]' LIMIT 30) s;
SELECT gpuann_check('lists_ui', true);

DROP TABLE lists_t, lists_e, lists_g, lists_u;
DROP FUNCTION plan_of(text);
DROP FUNCTION price_of(text);
DROP FUNCTION lists_differ(text, text, text, text);
