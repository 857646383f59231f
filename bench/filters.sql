/*
 * filters.sql
 *		Queries with a filter or a threshold: the plan that the planner takes, beside each plan by hand.
 *
 * Times as in planner.sql: the backend's processor time, from pages.
 */
CREATE TABLE figures (build text, dims int, filter text, share float8, wanted int, plan text, taken text, us float8);

/* Microseconds of processor time that this backend has had. */
CREATE FUNCTION spent() RETURNS float8 LANGUAGE sql VOLATILE AS
	$$ SELECT split_part(pg_read_file('/proc/self/schedstat'), ' ', 1)::float8 / 1000 $$;

/* What asking itself takes, the vector's input included. */
CREATE TABLE asking (dims int, us float8);

/* Microseconds of the eight prepared queries, taking turns. */
CREATE FUNCTION time_of(dims int) RETURNS float8 LANGUAGE plpgsql AS $$
DECLARE
	vectors text[];
	began float8;
	asked int := 0;
BEGIN
	EXECUTE format('SELECT array_agg(v::text ORDER BY id) FROM queries_%s', dims) INTO vectors;
	/* The first ones plan. */
	FOR i IN 0 .. 7 LOOP
		EXECUTE format('EXECUTE asked_%s(%L)', i, vectors[100 - i]);
	END LOOP;
	began := spent();
	WHILE spent() - began < 60000 AND asked < 1000 OR asked < 8 LOOP
		EXECUTE format('EXECUTE asked_%s(%L)', asked % 8, vectors[asked % 97 + 1]);
		asked := asked + 1;
	END LOOP;
	RETURN greatest((spent() - began) / asked - coalesce((SELECT us FROM asking a WHERE a.dims = time_of.dims), 0), 1);
END $$;

CREATE PROCEDURE measure_asking(dims int) LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 0 .. 7 LOOP
		EXECUTE format('PREPARE asked_%s(vector) AS SELECT 1', i);
	END LOOP;
	INSERT INTO asking VALUES (dims, time_of(dims));
	DEALLOCATE ALL;
END $$;
SET plan_cache_mode = force_generic_plan;
DO $$ DECLARE dims int; BEGIN
	FOR dims IN SELECT substr(relname, 9) FROM pg_class WHERE relname ~ '^queries_\d+$' LOOP
		CALL measure_asking(dims);
	END LOOP;
END $$;
RESET plan_cache_mode;

/* The distance that a share of the rows of all queries lie within. */
CREATE FUNCTION distance_of(dims int, share float8, OUT distance float8) LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE format('SELECT percentile_cont($1) WITHIN GROUP (ORDER BY i.v <-> q.v) FROM items_%1$s i, queries_%1$s q WHERE i.id %% 50 = 0 AND q.id %% 4 = 0', dims)
		INTO distance USING share;
END $$;

/* The condition of a cell: one of eight. */
CREATE FUNCTION condition_of(dims int, filter text, share float8, variant int) RETURNS text LANGUAGE sql AS $$
	SELECT CASE filter WHEN 'distance' THEN format('v <-> $1 < %s', distance_of(dims, share))
		WHEN 'distance, kind' THEN format('v <-> $1 < %s AND kind BETWEEN %s AND %s', distance_of(dims, share), variant * 112, variant * 112 + 99)
		ELSE format('%s BETWEEN %s AND %s', filter, floor(variant * 1000 * (1 - share) / 7), floor(variant * 1000 * (1 - share) / 7) + share * 1000 - 1) END $$;

CREATE FUNCTION forget_queries() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 0 .. 7 LOOP
		EXECUTE format('DEALLOCATE asked_%s', i);
	END LOOP;
END $$;

/* Prepare the queries of a cell; what reads the table in the first one's plan. */
CREATE FUNCTION prepare_queries(conditions text[], dims int, wanted int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	FOR i IN 0 .. 7 LOOP
		EXECUTE format('PREPARE asked_%s(vector) AS SELECT id FROM items_%s WHERE %s ORDER BY v <-> $1 LIMIT %s', i, dims, conditions[i + 1],
			coalesce(wanted::text, 'ALL'));
	END LOOP;
	EXECUTE 'EXPLAIN (FORMAT JSON) EXECUTE asked_0(NULL)' INTO plan;
	RETURN CASE WHEN plan::text LIKE '%"Custom Scan"%' THEN 'node' WHEN plan::text LIKE '%Bitmap Heap%' THEN 'bitmap'
		WHEN plan::text LIKE '%Index Scan%' THEN 'btree' ELSE 'table' END;
END $$;

/* Leave the planner one way to read the table; NULL: all. */
CREATE FUNCTION leave_plan(plan text) RETURNS void LANGUAGE sql AS $$
	SELECT set_config('enable_seqscan', (coalesce(plan, 'table') = 'table')::text, true),
		set_config('enable_bitmapscan', (coalesce(plan, 'bitmap') = 'bitmap')::text, true),
		set_config('enable_indexscan', (coalesce(plan, 'node') = 'node')::text, true),
		set_config('enable_sort', (plan IS DISTINCT FROM 'node')::text, true) $$;

/* Measure one cell: as planned, and each plan by hand, in three turns. */
CREATE FUNCTION measure_cell(build text, dims int, filter text, share float8, wanted int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	conditions text[] := ARRAY(SELECT condition_of(dims, filter, share, variant) FROM generate_series(0, 7) variant);
	by_hand text;
	taken text;
BEGIN
	SET LOCAL plan_cache_mode = force_generic_plan;
	FOR turn IN 1 .. 3 LOOP
		FOREACH by_hand IN ARRAY ARRAY[NULL, 'table', 'bitmap', 'node'] LOOP
			PERFORM leave_plan(by_hand);
			taken := prepare_queries(conditions, dims, wanted);
			IF taken = coalesce(by_hand, taken) THEN
				INSERT INTO figures VALUES (build, dims, filter, share, wanted, coalesce(by_hand, 'taken'), taken, time_of(dims));
			END IF;
			PERFORM forget_queries();
		END LOOP;
	END LOOP;
	PERFORM leave_plan(NULL);
END $$;

/* The cells; what is taken counts as its plan by hand, where that was faster by chance. */
CREATE VIEW cells AS
	WITH medians AS (SELECT build, dims, filter, share, wanted, plan, max(taken) AS taken, percentile_cont(0.5) WITHIN GROUP (ORDER BY us) AS us
		FROM figures GROUP BY build, dims, filter, share, wanted, plan)
	SELECT build, dims, filter, share, wanted, max(taken) FILTER (WHERE plan = 'taken') AS taken, max(us) FILTER (WHERE plan = 'taken') AS us,
		max(us) FILTER (WHERE plan = 'table') AS table_us, max(us) FILTER (WHERE plan = 'bitmap') AS bitmap_us, max(us) FILTER (WHERE plan = 'node') AS node_us
	FROM medians GROUP BY build, dims, filter, share, wanted;

CREATE VIEW losses AS
	SELECT c.*, least(a.us, a.table_us, a.bitmap_us, a.node_us) AS best,
		least(c.us, CASE c.taken WHEN 'table' THEN c.table_us WHEN 'bitmap' THEN c.bitmap_us WHEN 'node' THEN c.node_us END) AS least_us
	FROM cells c JOIN cells a ON (a.build, a.dims, a.filter, a.share) = ('after', c.dims, c.filter, c.share) AND a.wanted IS NOT DISTINCT FROM c.wanted;

CREATE FUNCTION report(before text) RETURNS TABLE (dims int, filter text, share float8, wanted int, report_line text) LANGUAGE sql AS $$
	SELECT a.dims, a.filter, a.share, a.wanted, '| ' || concat_ws(' | ', (SELECT reltuples FROM pg_class WHERE relname = 'items_' || a.dims) || ' x ' || a.dims,
			a.filter, a.share, coalesce(a.wanted::text, 'all'), b.taken, round(b.least_us), coalesce(round(b.node_us)::text, CASE WHEN before > '' THEN ' ' END), round((b.least_us / b.best)::numeric, 2),
			a.taken, round(a.least_us), coalesce(round(a.table_us)::text, ' '), coalesce(round(a.bitmap_us)::text, ' '), coalesce(round(a.node_us)::text, ' '),
			round(a.best), round((a.least_us / a.best)::numeric, 2)) || ' |'
	FROM losses a LEFT JOIN losses b ON (b.build, b.dims, b.filter, b.share) = (before, a.dims, a.filter, a.share) AND b.wanted IS NOT DISTINCT FROM a.wanted
	WHERE a.build = 'after' $$;

CREATE FUNCTION summary(of_build text) RETURNS text LANGUAGE sql AS $$
	SELECT CASE of_build WHEN 'before' THEN 'Before: of ' ELSE 'Of ' END || count(*) || ' queries ' || count(*) FILTER (WHERE least_us <= 1.2 * best)
		|| ' take at most 1.2 times the fastest plan by hand; the worst takes ' || round(max(least_us / best)::numeric, 2) || ' times. All together take '
		|| round((sum(least_us) / sum(best))::numeric, 2) || ' times the sum of the fastest ones.'
	FROM losses WHERE build = of_build $$;
