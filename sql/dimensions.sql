-- From one dimension to the most a type has, also where a vector crosses pages.
SET enable_seqscan = off;

-- Executed anew for each row: compiled as often they would take minutes (tools/check, jit).
CREATE FUNCTION made(g integer, dims integer) RETURNS real[] LANGUAGE sql IMMUTABLE SET jit = off AS
	$$ SELECT array_agg(sin(g * 12.9898 + d * 78.233) ORDER BY d)::real[] FROM generate_series(1, dims) d $$;
CREATE FUNCTION made_bits(g integer, dims integer) RETURNS text LANGUAGE sql IMMUTABLE SET jit = off AS
	$$ SELECT left(string_agg(('x' || md5(g || ' ' || d))::bit(128)::text, ''), dims) FROM generate_series(0, dims / 128) d $$;
CREATE FUNCTION made_as(type text, g integer, dims integer) RETURNS text LANGUAGE sql IMMUTABLE SET jit = off AS
	$$ SELECT CASE type WHEN 'bit' THEN made_bits(g, dims) ELSE translate(made(g, dims)::text, '{}', '[]') END $$;

-- Build on half the rows, insert the others, and compare with the table: rows, and whether all come in the same order.
CREATE FUNCTION try(class text, operator text, dims integer, rows integer) RETURNS TABLE(found bigint, same boolean) LANGUAGE plpgsql AS $$
DECLARE
	type text := split_part(class, '_', 1);
	by_index integer[];
	by_table integer[];
	query text := made_as(type, 17, dims);
BEGIN
	EXECUTE format('CREATE TABLE d (id integer, val %s(%s))', type, dims);
	EXECUTE format('INSERT INTO d SELECT g, made_as(%L, g, %s)::%s(%s) FROM generate_series(1, %s) g', type, dims, type, dims, rows / 2);
	EXECUTE format('CREATE INDEX ON d USING gpuann (val %s)', class);
	EXECUTE format('INSERT INTO d SELECT g, made_as(%L, g, %s)::%s(%s) FROM generate_series(%s, %s) g', type, dims, type, dims, rows / 2 + 1, rows);
	SET LOCAL gpuann.exact = on;
	SET LOCAL enable_sort = off;
	EXECUTE format('SELECT array_agg(id) FROM (SELECT id FROM d ORDER BY val %s %L::%s(%s)) x', operator, query, type, dims) INTO by_index;
	SET LOCAL enable_sort = on;
	SET LOCAL enable_seqscan = on;
	SET LOCAL enable_indexscan = off;
	EXECUTE format('SELECT array_agg(id) FROM (SELECT id FROM d ORDER BY val %s %L::%s(%s), id) x', operator, query, type, dims) INTO by_table;
	SET LOCAL enable_indexscan = on;
	PERFORM gpuann_check((SELECT indexrelid FROM pg_index WHERE indrelid = 'd'::regclass));
	EXECUTE 'DROP TABLE d';
	RETURN QUERY SELECT cardinality(by_index)::bigint, by_index = by_table;
END
$$;

SELECT * FROM try('vector_l2_ops', '<->', 1, 100);
SELECT * FROM try('vector_l2_ops', '<->', 7, 5000);
SELECT * FROM try('vector_l2_ops', '<->', 2000, 40);
SELECT * FROM try('vector_l2_ops', '<->', 2001, 40);
SELECT * FROM try('vector_l2_ops', '<->', 3072, 30);
SELECT * FROM try('vector_l2_ops', '<->', 16000, 50);
SELECT * FROM try('vector_l1_ops', '<+>', 1, 100);
SELECT * FROM try('vector_l1_ops', '<+>', 2001, 40);
SELECT * FROM try('vector_l1_ops', '<+>', 16000, 30);
SELECT * FROM try('halfvec_l2_ops', '<->', 1, 100);
SELECT * FROM try('halfvec_l2_ops', '<->', 3, 5000);
SELECT * FROM try('halfvec_l2_ops', '<->', 4001, 40);
SELECT * FROM try('halfvec_l2_ops', '<->', 16000, 40);
SELECT * FROM try('halfvec_l1_ops', '<+>', 1, 100);
SELECT * FROM try('halfvec_l1_ops', '<+>', 3072, 40);
SELECT * FROM try('halfvec_l1_ops', '<+>', 16000, 30);

-- bits, in numbers that fill no byte, a byte, a page, several pages
SELECT dims, t.* FROM unnest(ARRAY[1, 2, 7, 8, 9, 63, 64, 65, 1000]) dims, LATERAL try('bit_hamming_ops', '<~>', dims, 300) t;
SELECT dims, t.* FROM unnest(ARRAY[1, 2, 7, 8, 9, 63, 64, 65, 1000]) dims, LATERAL try('bit_jaccard_ops', '<%>', dims, 300) t;
SELECT dims, t.* FROM unnest(ARRAY[2000, 2001, 3072, 16000, 64000]) dims, LATERAL try('bit_hamming_ops', '<~>', dims, 60) t;
SELECT dims, t.* FROM unnest(ARRAY[2001, 64000]) dims, LATERAL try('bit_jaccard_ops', '<%>', dims, 60) t;

-- the graph finds them too
CREATE TABLE d (id integer, val vector(3000));
INSERT INTO d SELECT g, made(g, 3000) FROM generate_series(1, 60) g;
CREATE INDEX ON d USING gpuann (val vector_l2_ops);
SELECT count(*) FROM (SELECT q.id AS wanted, n.id FROM d q, LATERAL (SELECT id FROM d ORDER BY val <-> q.val LIMIT 1) n) found WHERE wanted = id;
DROP TABLE d;
CREATE TABLE d (id integer, val bit(64000));
INSERT INTO d SELECT g, made_bits(g, 64000)::bit(64000) FROM generate_series(1, 60) g;
CREATE INDEX ON d USING gpuann (val bit_jaccard_ops);
SELECT count(*) FROM (SELECT q.id AS wanted, n.id FROM d q, LATERAL (SELECT id FROM d ORDER BY val <%> q.val LIMIT 1) n) found WHERE wanted = id;
DROP TABLE d;

-- beyond, and none: vectors say so themselves, for bits the index does
CREATE TABLE d (val vector(16001));
CREATE TABLE d (val halfvec(16001));
CREATE TABLE d (val bit(64001), bare vector, half halfvec, varying bit varying(10));
CREATE INDEX ON d USING gpuann (val bit_hamming_ops);
CREATE INDEX ON d USING gpuann (val bit_jaccard_ops);
CREATE INDEX ON d USING gpuann (bare vector_l1_ops);
CREATE INDEX ON d USING gpuann (half halfvec_l1_ops);
CREATE INDEX ON d USING gpuann (varying bit_hamming_ops);
CREATE INDEX ON d USING gpuann ((varying::bit(10)) bit_hamming_ops);
INSERT INTO d (varying) VALUES (B'1'), (B'1111111111');
SELECT varying FROM d ORDER BY varying::bit(10) <~> B'1111111110';
DROP TABLE d;
DROP FUNCTION try, made, made_bits, made_as;
