-- From one dimension to the most a type has, also where a vector crosses pages.
SET enable_seqscan = off;

CREATE FUNCTION made(g integer, dims integer) RETURNS real[] LANGUAGE sql IMMUTABLE AS
	$$ SELECT array_agg(sin(g * 12.9898 + d * 78.233) ORDER BY d)::real[] FROM generate_series(1, dims) d $$;

-- Build on half the rows, insert the others, and compare with the table: rows, and whether all come in the same order.
CREATE FUNCTION try(type text, dims integer, rows integer) RETURNS TABLE(found bigint, same boolean) LANGUAGE plpgsql AS $$
DECLARE
	by_index integer[];
	by_table integer[];
	query text := made(17, dims)::text;
BEGIN
	query := translate(query, '{}', '[]');
	EXECUTE format('CREATE TABLE d (id integer, val %s(%s))', type, dims);
	EXECUTE format('INSERT INTO d SELECT g, made(g, %s) FROM generate_series(1, %s) g', dims, rows / 2);
	EXECUTE format('CREATE INDEX ON d USING gpuann (val %s_l2_ops)', type);
	EXECUTE format('INSERT INTO d SELECT g, made(g, %s) FROM generate_series(%s, %s) g', dims, rows / 2 + 1, rows);
	SET LOCAL gpuann.exact = on;
	SET LOCAL enable_sort = off;
	EXECUTE format('SELECT array_agg(id) FROM (SELECT id FROM d ORDER BY val <-> %L::%s) x', query, type) INTO by_index;
	SET LOCAL enable_sort = on;
	SET LOCAL enable_seqscan = on;
	SET LOCAL enable_indexscan = off;
	EXECUTE format('SELECT array_agg(id) FROM (SELECT id FROM d ORDER BY val <-> %L::%s, id) x', query, type) INTO by_table;
	SET LOCAL enable_indexscan = on;
	EXECUTE 'DROP TABLE d';
	RETURN QUERY SELECT cardinality(by_index)::bigint, by_index = by_table;
END
$$;

SELECT * FROM try('vector', 1, 100);
SELECT * FROM try('vector', 7, 5000);
SELECT * FROM try('vector', 2000, 40);
SELECT * FROM try('vector', 2001, 40);
SELECT * FROM try('vector', 3072, 30);
SELECT * FROM try('vector', 16000, 50);
SELECT * FROM try('halfvec', 1, 100);
SELECT * FROM try('halfvec', 3, 5000);
SELECT * FROM try('halfvec', 4001, 40);
SELECT * FROM try('halfvec', 16000, 40);

-- the graph finds them too
CREATE TABLE d (id integer, val vector(3000));
INSERT INTO d SELECT g, made(g, 3000) FROM generate_series(1, 60) g;
CREATE INDEX ON d USING gpuann (val vector_l2_ops);
SELECT count(*) FROM (SELECT q.id AS wanted, n.id FROM d q, LATERAL (SELECT id FROM d ORDER BY val <-> q.val LIMIT 1) n) found WHERE wanted = id;
DROP TABLE d;

-- beyond
CREATE TABLE d (val vector(16001));
DROP FUNCTION try, made;
