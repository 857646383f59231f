-- Indexes of expressions: a column in half precision, one bit per dimension with the distance itself afterwards, parts of a vector.
SET enable_seqscan = off;

CREATE FUNCTION made(g integer, dims integer) RETURNS real[] LANGUAGE sql IMMUTABLE AS
	$$ SELECT array_agg(sin(g * 12.9898 * d + g % 7 + d * 78.233)::real ORDER BY d) FROM generate_series(1, dims) d $$;
CREATE FUNCTION plan(query text) RETURNS SETOF text LANGUAGE plpgsql AS
	$$ BEGIN RETURN QUERY EXECUTE 'EXPLAIN (COSTS OFF) ' || query; END $$;

CREATE TABLE items (id serial PRIMARY KEY, embedding vector(3072), loose vector);
INSERT INTO items (embedding, loose) SELECT made(g, 3072), made(g, 8) FROM generate_series(1, 120) g;

-- half precision
CREATE INDEX items_half ON items USING gpuann ((embedding::halfvec(3072)) halfvec_l2_ops);
INSERT INTO items (embedding) SELECT made(g, 3072) FROM generate_series(121, 130) g;
SELECT count(*) FROM plan('SELECT id FROM items ORDER BY embedding::halfvec(3072) <-> (SELECT embedding::halfvec(3072) FROM items WHERE id = 5) LIMIT 3') line
	WHERE line LIKE '%items_half%';
SELECT count(*) FROM items q, LATERAL (SELECT id FROM items ORDER BY embedding::halfvec(3072) <-> q.embedding::halfvec(3072) LIMIT 1) n WHERE n.id = q.id;
-- a halfvec column that the index does not know is not answered by it
SELECT count(*) FROM plan('SELECT id FROM items ORDER BY embedding <-> (SELECT embedding FROM items WHERE id = 5) LIMIT 3') line
	WHERE line LIKE '%items_half%';
DROP INDEX items_half;

-- one bit per dimension, ranked again by the distance itself
CREATE INDEX items_bits ON items USING gpuann ((binary_quantize(embedding)::bit(3072)) bit_hamming_ops);
INSERT INTO items (embedding) SELECT made(g, 3072) FROM generate_series(131, 140) g;
SELECT line FROM plan('SELECT id FROM items ORDER BY binary_quantize(embedding)::bit(3072) <~> binary_quantize(made(5, 3072)::vector) LIMIT 3') line
	WHERE line LIKE '%Custom Scan%';
SELECT count(*) FROM items q, LATERAL (
	SELECT id FROM (SELECT id, embedding FROM items ORDER BY binary_quantize(embedding)::bit(3072) <~> binary_quantize(q.embedding) LIMIT 20) near
	ORDER BY near.embedding <=> q.embedding LIMIT 1) n WHERE n.id = q.id;
SELECT id FROM items ORDER BY binary_quantize(embedding)::bit(3072) <~> binary_quantize('[1,2]'::vector) LIMIT 1;
SELECT gpuann_check('items_bits');
DROP INDEX items_bits;

-- without its length the expression has no dimensions
CREATE INDEX ON items USING gpuann (binary_quantize(embedding) bit_hamming_ops);
-- a part of a vector; a column without dimensions
CREATE INDEX items_part ON items USING gpuann ((subvector(embedding, 1, 10)::vector(10)) vector_cosine_ops);
CREATE INDEX items_loose ON items USING gpuann ((loose::vector(8)) vector_l1_ops);
SELECT id FROM items ORDER BY subvector(embedding, 1, 10)::vector(10) <=> made(33, 10)::vector(10) LIMIT 1;
SELECT id FROM items ORDER BY loose::vector(8) <+> made(44, 8)::vector(8) LIMIT 1;
SELECT count(*) FROM (SELECT id FROM items ORDER BY loose::vector(8) <+> made(44, 8)::vector(8)) x;
-- a value of other dimensions fails in its cast
INSERT INTO items (loose) VALUES ('[1,2,3]');

DROP TABLE items;
DROP FUNCTION made, plan;
