-- gpuann_migrate() lists what replaces the indexes of pgvector; \gexec runs it. No statement is listed before what it needs is there.
SET client_min_messages = warning;
CREATE TABLE items (id integer, v vector(3), b bit(8), kind integer);
INSERT INTO items SELECT i, ARRAY[i % 10, i / 10, 0]::vector, (i % 256)::bit(8), i % 5 FROM generate_series(1, 200) i;
CREATE INDEX items_v ON items USING hnsw (v vector_l2_ops) WITH (m = 8, ef_construction = 40);
CREATE INDEX "of the third kind" ON items USING ivfflat (v vector_cosine_ops) WITH (lists = 5) WHERE kind = 3;
CREATE INDEX items_half ON items USING hnsw ((v::halfvec(3)) halfvec_ip_ops);
CREATE INDEX items_b ON items USING hnsw (b bit_hamming_ops);
CREATE INDEX items_kind ON items (kind);
CREATE TABLE sparse (v sparsevec(3));
CREATE INDEX sparse_v ON sparse USING hnsw (v sparsevec_l2_ops);
-- an index that we have already, under another name
CREATE INDEX items_l1 ON items USING hnsw (v vector_l1_ops);
CREATE INDEX mine ON items USING gpuann (v vector_l1_ops);
-- two that one replaces
CREATE INDEX items_first ON items USING hnsw (v vector_ip_ops);
CREATE INDEX items_second ON items USING ivfflat (v vector_ip_ops) WITH (lists = 5);
CREATE INDEX items_bits ON items USING ivfflat (b bit_hamming_ops) WITH (lists = 5) WHERE kind = 2;
CREATE SCHEMA elsewhere;
CREATE TABLE elsewhere.parts (id integer, v vector(3)) PARTITION BY RANGE (id);
CREATE TABLE elsewhere.low PARTITION OF elsewhere.parts FOR VALUES FROM (0) TO (10);
CREATE TABLE elsewhere.high PARTITION OF elsewhere.parts FOR VALUES FROM (10) TO (30) PARTITION BY RANGE (id);
CREATE TABLE elsewhere.higher PARTITION OF elsewhere.high FOR VALUES FROM (20) TO (30);
CREATE INDEX parts_v ON elsewhere.parts USING hnsw (v vector_l2_ops);
ANALYZE;

SELECT index, step, statement, note FROM gpuann_migrate();
SELECT count(*), bool_and(index_bytes > 0), bool_and(new_bytes > 0), bool_and(build_seconds > 0) FROM gpuann_migrate() WHERE step = 'create' AND index::text NOT LIKE 'elsewhere%';

-- A build that failed is in the way of nothing: it goes, and is made anew.
\set VERBOSITY sqlstate
CREATE FUNCTION failing(vector) RETURNS vector LANGUAGE plpgsql IMMUTABLE AS 'BEGIN IF current_setting(''test.fails'', true) = ''on'' THEN RAISE ''no''; END IF; RETURN $1; END';
CREATE TABLE fails (v vector(3));
INSERT INTO fails VALUES ('[1,2,3]');
CREATE INDEX fails_v ON fails USING hnsw ((failing(v)::vector(3)) vector_l2_ops);
SET test.fails = on;
SELECT statement FROM gpuann_migrate() WHERE index = 'fails_v'::regclass \gexec
\set VERBOSITY default
SELECT index, step, statement FROM gpuann_migrate() WHERE index = 'fails_v'::regclass;
SELECT statement FROM gpuann_migrate() WHERE index = 'fails_v'::regclass \gexec
RESET test.fails;
SELECT statement FROM gpuann_migrate() WHERE index = 'fails_v'::regclass \gexec
SELECT index, step, statement FROM gpuann_migrate() WHERE index = 'fails_v'::regclass;
DROP TABLE fails;
DROP FUNCTION failing;

-- All of it, until only what cannot be replaced is left.
SELECT statement FROM gpuann_migrate() \gexec
SELECT index, step, statement, note FROM gpuann_migrate();
SELECT statement FROM gpuann_migrate() \gexec
SELECT index, step, statement, note FROM gpuann_migrate();
SELECT statement FROM gpuann_migrate() \gexec
SELECT index, step, statement, note FROM gpuann_migrate();
SELECT c.oid::regclass AS index, am.amname, i.indisvalid, pg_get_expr(i.indpred, i.indrelid) AS predicate
	FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am am ON am.oid = c.relam
	WHERE i.indrelid::regclass::text ~ '^(items|elsewhere)' ORDER BY c.oid::regclass::text COLLATE "C";
SELECT count(*) FROM (SELECT FROM items ORDER BY v <-> '[1,2,3]' LIMIT 10) s;

-- Only what the caller owns.
CREATE ROLE regress_migrate;
CREATE INDEX items_again ON items USING hnsw (v vector_l2_ops);
SET ROLE regress_migrate;
SELECT index, step, statement, note FROM gpuann_migrate();
RESET ROLE;
-- Names hold wherever the statement is run from, and what shadows them is seen.
CREATE SCHEMA shadow;
CREATE TABLE shadow.items (id integer);
SET search_path = shadow, pg_catalog;
SELECT statement FROM public.gpuann_migrate() WHERE step <> 'none';
RESET search_path;
DROP SCHEMA elsewhere, shadow CASCADE;
DROP TABLE items, sparse;
DROP ROLE regress_migrate;
