-- gpuann.debug_unpinned_distances turns off a shortcut of the page path: answers, and the graph that is linked, are the same with and without it.
SET enable_seqscan = off;
SET gpuann.server = off;
SET max_parallel_maintenance_workers = 0;
CREATE TABLE shortcuts (id int, v vector(6), w vector(1100), h halfvec(6), b bit(64));
CREATE FUNCTION shortcut_rows(first int, last int) RETURNS void LANGUAGE sql AS $$
	INSERT INTO shortcuts
	SELECT i, ARRAY(SELECT sin(i * 1.7 + j * i) FROM generate_series(1, 6) j)::real[]::vector,
		ARRAY(SELECT cos(i * 0.3 + j % 7) FROM generate_series(1, 1100) j)::real[]::vector,
		ARRAY(SELECT sin(i * 0.9 + j * j) FROM generate_series(1, 6) j)::real[]::vector::halfvec,
		(hashint8(i)::bit(32) || hashint8(i * 7)::bit(32))::bit(64)
	FROM generate_series(first, last) i
$$;
SELECT shortcut_rows(1, 300);
CREATE INDEX shortcuts_l2 ON shortcuts USING gpuann (v vector_l2_ops) WITH (mirror = off);
CREATE INDEX shortcuts_cosine ON shortcuts USING gpuann (v vector_cosine_ops) WITH (mirror = off);
CREATE INDEX shortcuts_ip ON shortcuts USING gpuann (h halfvec_ip_ops) WITH (mirror = off);
CREATE INDEX shortcuts_wide ON shortcuts USING gpuann (w vector_l1_ops) WITH (mirror = off);
CREATE INDEX shortcuts_bits ON shortcuts USING gpuann (b bit_hamming_ops) WITH (mirror = off);

-- What 10 queries of each index find, their rows in order.
CREATE FUNCTION shortcut_answers() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	answers text := '';
	query shortcuts%ROWTYPE;
	rows int[];
	operator text;
BEGIN
	FOREACH operator IN ARRAY ARRAY['v <-> $1.v', 'v <=> $1.v', 'h <#> $1.h', 'w <+> $1.w', 'b <~> $1.b'] LOOP
		FOR query IN SELECT * FROM shortcuts WHERE id % 31 = 0 ORDER BY id LIMIT 10 LOOP
			EXECUTE format('SELECT array_agg(id) FROM (SELECT id FROM shortcuts ORDER BY %s LIMIT 25) s', operator) INTO rows USING query;
			answers := answers || rows::text;
		END LOOP;
	END LOOP;
	RETURN answers;
END
$$;
-- Rows linked over pages, and some that are not; searched twice, so that this session knows where the blocks are.
SELECT shortcut_rows(301, 400);
SELECT sum(gpuann_link(c.oid)) FROM pg_class c WHERE relname ~ '^shortcuts_';
SELECT shortcut_rows(401, 420);
SELECT count(shortcut_answers()) FROM generate_series(1, 2);
SELECT shortcut_answers() AS answers \gset
SET gpuann.debug_unpinned_distances = off;
SELECT shortcut_answers() = :'answers' AS "pinned distances";

-- Linked without the shortcut, and searched with it.
SET gpuann.debug_unpinned_distances = off;
SELECT sum(gpuann_link(c.oid)) FROM pg_class c WHERE relname ~ '^shortcuts_';
SELECT shortcut_answers() AS answers \gset
RESET gpuann.debug_unpinned_distances;
SELECT shortcut_answers() = :'answers' AS "unpinned distances";
SELECT gpuann_check(c.oid) FROM pg_class c WHERE relname ~ '^shortcuts_';

-- It is a superuser's.
CREATE ROLE shortcuts_user;
SET ROLE shortcuts_user;
SET gpuann.debug_unpinned_distances = off;
RESET ROLE;
DROP ROLE shortcuts_user;
DROP TABLE shortcuts;
DROP FUNCTION shortcut_rows, shortcut_answers;
