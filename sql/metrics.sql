-- Every type and metric on 1,500 rows: exact answers come in the order of the operator's values, every row once; the graph finds what it
-- should; rows inserted after the build are as good as those before.
SET enable_seqscan = off;

-- Numbers between -1 and 1, around one of 20 centres, the same on every machine. Compiled at each call, it would take minutes (tools/check, jit).
CREATE FUNCTION noise(a integer, b integer) RETURNS float8 LANGUAGE sql IMMUTABLE SET jit = off AS
	$$ SELECT (('x' || substr(md5(a || ' ' || b), 1, 7))::bit(28)::integer / 134217728.0 - 1)::float8 $$;
CREATE TABLE source (id integer PRIMARY KEY, val vector(48));
INSERT INTO source SELECT g, (SELECT array_agg((0.7 * noise(-1 - g % 20, d) + 0.3 * noise(g, d))::real ORDER BY d) FROM generate_series(1, 48) d)
	FROM generate_series(1, 1500) g;

-- Compare the index of one class with the table, for some queries: whether it is used, rows that came, whether each once, whether in order, recall@10.
CREATE FUNCTION compare(class text, type text, operator text, dims integer, OUT by_index boolean, OUT rows bigint, OUT once boolean, OUT in_order boolean, OUT recall float8)
LANGUAGE plpgsql AS $$
DECLARE
	element text := CASE type WHEN 'vector' THEN '%s' WHEN 'halfvec' THEN '%s::halfvec' ELSE format('binary_quantize(%%s)::bit(%s)', dims) END;
	asked record;
	found record;
	bound float8;
	farthest float8;
	hits integer := 0;
	line text;
	batch int4range;
BEGIN
	EXECUTE format('CREATE TABLE t (id integer, val %s(%s))', type, dims);
	EXECUTE format('INSERT INTO t SELECT id, ' || element || ' FROM source WHERE id <= 1000', format('subvector(val, 1, %s)', dims));
	EXECUTE format('CREATE INDEX ON t USING gpuann (val %s)', class);
	-- a few at a time are linked over pages, more in memory, the last ones not at all
	FOREACH batch IN ARRAY ARRAY['(1000,1040]', '(1040,1090]', '(1090,1150]', '(1150,1400]', '(1400,1500]']::int4range[] LOOP
		EXECUTE format('INSERT INTO t SELECT id, ' || element || ' FROM source WHERE id <@ %L::int4range', format('subvector(val, 1, %s)', dims), batch);
		PERFORM gpuann_link('t_val_idx') WHERE NOT batch @> 1500;
	END LOOP;
	by_index := false;
	rows := 0;
	once := true;
	in_order := true;
	FOR asked IN EXECUTE format('SELECT ' || element || '::text AS q FROM source WHERE id %% 100 = 7', format('subvector(val, 1, %s)', dims)) LOOP
		-- all rows, exactly
		SET LOCAL gpuann.exact = on;
		SET LOCAL enable_sort = off;
		farthest := '-infinity';
		FOR line IN EXECUTE format('EXPLAIN SELECT id FROM t ORDER BY val %s %L', operator, asked.q) LOOP
			by_index := by_index OR line ~ '^ *Index: t_val_idx$';
		END LOOP;
		EXECUTE format('CREATE TEMP TABLE answer AS SELECT row_number() OVER () AS place, * FROM
			(SELECT id, val %s %L AS distance FROM t ORDER BY val %s %L) x', operator, asked.q, operator, asked.q);
		FOR found IN SELECT * FROM answer ORDER BY place LOOP
			IF found.distance < farthest THEN
				in_order := false;
			END IF;
			farthest := greatest(farthest, found.distance);
			rows := rows + 1;
		END LOOP;
		once := once AND (SELECT count(DISTINCT id) = count(*) FROM answer);
		DROP TABLE answer;
		-- by graph: answers no farther than the tenth
		SET LOCAL enable_sort = on;
		SET LOCAL enable_indexscan = off;
		EXECUTE format('SELECT max(distance) FROM (SELECT val %s %L AS distance FROM t ORDER BY 1 LIMIT 10) x', operator, asked.q) INTO bound;
		SET LOCAL enable_indexscan = on;
		SET LOCAL enable_sort = off;
		SET LOCAL gpuann.exact = off;
		EXECUTE format('SELECT %s + count(*) FROM (SELECT val %s %L AS distance FROM t ORDER BY val %s %L LIMIT 10) x WHERE distance <= %L::float8 * (1 + 1e-6 * sign(%L::float8))',
			hits, operator, asked.q, operator, asked.q, bound, bound) INTO hits;
	END LOOP;
	recall := hits / 150.0;
	PERFORM gpuann_check((SELECT indexrelid FROM pg_index WHERE indrelid = 't'::regclass));
	DROP TABLE t;
END
$$;

SELECT class, by_index, rows, once, in_order, recall >= 0.98 AS enough, CASE WHEN recall < 0.98 THEN recall END AS too_little
	FROM (VALUES
		(1, 'vector_l2_ops', 'vector', '<->', 48), (2, 'vector_ip_ops', 'vector', '<#>', 48),
		(3, 'vector_cosine_ops', 'vector', '<=>', 48), (4, 'vector_l1_ops', 'vector', '<+>', 48),
		(5, 'halfvec_l2_ops', 'halfvec', '<->', 48), (6, 'halfvec_ip_ops', 'halfvec', '<#>', 48),
		(7, 'halfvec_cosine_ops', 'halfvec', '<=>', 48), (8, 'halfvec_l1_ops', 'halfvec', '<+>', 48),
		(9, 'bit_hamming_ops', 'bit', '<~>', 48), (10, 'bit_jaccard_ops', 'bit', '<%>', 48),
		(11, 'vector_l1_ops', 'vector', '<+>', 5), (12, 'bit_hamming_ops', 'bit', '<~>', 21), (13, 'bit_jaccard_ops', 'bit', '<%>', 43)
	) class(place, class, type, operator, dims), LATERAL compare(class, type, operator, dims) ORDER BY place;

DROP TABLE source;
DROP FUNCTION compare, noise;
