-- How far a scan goes: the index's ef_search, the session's, gpuann.max_scan_tuples; and an index that is kept out of the server.
CREATE TABLE t (id integer PRIMARY KEY, val vector(8));
INSERT INTO t SELECT g, array_agg(sin(g * 12.9898 + d * 78.233) ORDER BY d)::vector(8)
	FROM generate_series(1, 5000) g, generate_series(1, 8) d GROUP BY g;
CREATE INDEX t_val ON t USING gpuann (val vector_l2_ops) WITH (m = 8);
ANALYZE t;
SET enable_seqscan = off;
SET enable_sort = off;

CREATE FUNCTION rows_found(most integer DEFAULT 1000000) RETURNS bigint LANGUAGE sql AS
	$$ SELECT count(*) FROM (SELECT id FROM t ORDER BY val <-> '[0,0.1,0.2,0.3,0,0.1,0.2,0.3]' LIMIT most) found $$;

-- without continuation a scan gives as many rows as it searches broadly: the default, the index's option, the session's setting
SET gpuann.iterative_scan = off;
SELECT rows_found();
ALTER INDEX t_val SET (ef_search = 70);
SELECT rows_found();
SET gpuann.ef_search = 90;
SELECT rows_found();
SET gpuann.ef_search = -1;
SELECT rows_found();
ALTER INDEX t_val RESET (ef_search);
SELECT rows_found();
RESET gpuann.ef_search;
RESET gpuann.iterative_scan;

-- a limit on the rows visited ends a scan early, in every mode; it does not touch the first answer, and what that visited is given
CREATE FUNCTION limited(most integer, mode text) RETURNS TABLE(gives_more boolean, keeps_limit boolean, ends_early boolean, twice bigint)
LANGUAGE plpgsql AS $$
DECLARE
	first_visited bigint;
	distinct_rows bigint;
	found bigint;
BEGIN
	SET LOCAL gpuann.iterative_scan = off;
	PERFORM rows_found();
	SELECT visited INTO first_visited FROM gpuann_last_scan();
	PERFORM set_config('gpuann.iterative_scan', mode, true);
	PERFORM set_config('gpuann.max_scan_tuples', most::text, true);
	SELECT count(*), count(DISTINCT id) INTO found, distinct_rows
		FROM (SELECT id FROM t ORDER BY val <-> '[0,0.1,0.2,0.3,0,0.1,0.2,0.3]' LIMIT 1000000) x;
	RETURN QUERY SELECT found > 40, visited <= greatest(most, first_visited) * 1.5, found < 4900, found - distinct_rows FROM gpuann_last_scan();
	SET LOCAL gpuann.max_scan_tuples = -1;
END
$$;
SELECT mode, most, l.* FROM unnest('{complete,strict_order,relaxed_order,off}'::text[]) mode, unnest('{1,4000,1000000}'::integer[]) most,
	limited(most, mode) l;
SET gpuann.exact = on;
SELECT rows_found();
SET gpuann.max_scan_tuples = 1;
SELECT rows_found();
RESET gpuann.exact;
-- a NULL query has a first answer too
SELECT count(*) BETWEEN 1 AND 4999 FROM (SELECT id FROM t ORDER BY val <-> (SELECT NULL::vector) LIMIT 1000000) every;
-- where no LIMIT is, no setting ends a scan
SET gpuann.iterative_scan = off;
SELECT count(*) FROM (SELECT id FROM t ORDER BY val <-> '[0,0.1,0.2,0.3,0,0.1,0.2,0.3]' OFFSET 0) every;
SELECT count(*) FROM (SELECT id FROM t ORDER BY val <-> (SELECT NULL::vector) OFFSET 0) every;
RESET gpuann.iterative_scan;
RESET gpuann.max_scan_tuples;

-- mirror = off keeps an index out of the server, whatever the session says
CREATE FUNCTION mirror_becomes(wanted text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	found text;
BEGIN
	FOR i IN 1..3600 LOOP
		PERFORM rows_found(10);
		SELECT CASE WHEN fallback_reason IS NULL THEN path ELSE fallback_reason END INTO found FROM gpuann_last_scan();
		-- with the session's server off there is nothing to wait for
		EXIT WHEN found = wanted OR current_setting('gpuann.server') = 'off';
		PERFORM pg_sleep(0.05);
	END LOOP;
	IF current_setting('gpuann.server') = 'off' THEN
		RETURN found = 'off';
	END IF;
	RETURN found = wanted;
END
$$;
SELECT mirror_becomes('server');
-- the planner knows who answers
CREATE FUNCTION price(server boolean) RETURNS float8 LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	PERFORM set_config('gpuann.server', (server AND current_setting('gpuann.server')::boolean)::text, true);
	EXECUTE 'EXPLAIN (FORMAT JSON) SELECT id FROM t ORDER BY val <-> ''[1,1,1,1,1,1,1,1]'' LIMIT 10' INTO plan;
	RETURN plan -> 0 -> 'Plan' -> 'Plans' -> 0 ->> 'Startup Cost';
END
$$;
SELECT price(true) < price(false) OR current_setting('gpuann.server') = 'off' AS server_is_cheaper;
ALTER INDEX t_val SET (mirror = off);
SELECT price(true) = price(false) AS pages_answer;
SELECT rows_found();
SELECT rows_found(10);
SELECT path, fallback_reason FROM gpuann_last_scan();
-- the server lets go of it
DO $$
BEGIN
	FOR i IN 1..3600 LOOP
		EXIT WHEN EXISTS (SELECT FROM pg_stat_gpuann WHERE indexrelname = 't_val' AND state NOT IN ('ready', 'loading', 'wanted'));
		PERFORM rows_found();
		PERFORM pg_sleep(0.05);
	END LOOP;
END
$$;
SELECT state, mirror_bytes FROM pg_stat_gpuann WHERE indexrelname = 't_val';
INSERT INTO t SELECT 5000 + id, val FROM t WHERE id <= 10;
SELECT rows_found();
ALTER INDEX t_val RESET (mirror);
SELECT mirror_becomes('server');

DROP FUNCTION limited, rows_found(integer), mirror_becomes, price;
DROP TABLE t;
