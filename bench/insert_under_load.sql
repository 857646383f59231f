-- insert_under_load.sql
--		Tables and functions of insert_under_load. Variable: rows, how many of the loaded ones are there at first.

-- The rows to come move from items to fresh.
CREATE TABLE fresh (id integer PRIMARY KEY, v vector);
WITH moved AS (DELETE FROM items WHERE id >= :rows RETURNING *) INSERT INTO fresh SELECT * FROM moved;
CREATE SEQUENCE next_row MINVALUE 0 START :rows;
ALTER TABLE items ADD PRIMARY KEY (id);
VACUUM ANALYZE items;
VACUUM ANALYZE fresh;

-- One row per check.
CREATE TABLE checks (
	path text NOT NULL,			-- that was to answer
	answered text NOT NULL,		-- that did
	item integer NOT NULL,
	kind text NOT NULL,			-- own: by the session that wrote it; last: the newest of any session; again: at the end
	found boolean NOT NULL,
	lost boolean NOT NULL,		-- not even an exact search found it
	scan text					-- what a search did that did not find the row
);

-- One row per path: searches per second before and during the inserts, and how long those took.
CREATE TABLE runs (place integer GENERATED ALWAYS AS IDENTITY, path text, qps_before float8, seconds float8, qps_during float8);

-- Searches per second without inserts, with inserts into another table and without them before that, with inserts; and the inserts that there were.
CREATE TABLE paced (path text, qps_without float8, qps_elsewhere float8, qps_before_elsewhere float8, qps_with float8, inserts float8);

-- A table without the index, for rows that cost what they cost without it.
CREATE TABLE elsewhere (id integer PRIMARY KEY, v vector);
CREATE SEQUENCE next_elsewhere MINVALUE 0;

-- Processors at work in each measurement, by who they work for.
CREATE TABLE processors (path text, rate integer, who text, cores float8);

-- What searches say of themselves meanwhile: milliseconds of the node, microseconds of queue and engine.
CREATE TABLE samples (path text, rate integer, total float8, queue float8, engine float8, batch float8, visited float8, pending float8);

-- Search as those do whose rate is measured, and keep what EXPLAIN says.
CREATE FUNCTION sample_search(query integer, rate integer) RETURNS void AS $$
DECLARE
	explained json;
BEGIN
	EXECUTE format('EXPLAIN (ANALYZE, FORMAT JSON)
		SELECT id FROM items ORDER BY v <-> (SELECT v FROM queries WHERE id = %s) LIMIT 10', query) INTO explained;
	explained := explained -> 0 -> 'Plan' -> 'Plans' -> 1;
	INSERT INTO samples VALUES (current_setting('bench.path'), rate, (explained ->> 'Actual Total Time')::float8,
		(explained ->> 'Gpuann Queue Time')::float8, (explained ->> 'Gpuann Engine Time')::float8,
		(explained ->> 'Gpuann Batch')::float8, (explained ->> 'Gpuann Visited')::float8, (explained ->> 'Gpuann Pending')::float8);
END
$$ LANGUAGE plpgsql;

-- Who a process of this name is.
CREATE FUNCTION who_is(process integer, name text) RETURNS text AS $$
	SELECT CASE WHEN name = 'idle' THEN 'idle'
		WHEN name = 'gpuann-server' THEN 'server'
		WHEN name = 'pgbench' THEN 'pgbench'
		ELSE coalesce((SELECT CASE WHEN application_name = 'searches' THEN 'search'
			WHEN application_name = 'inserts' THEN 'insert'
			WHEN application_name = 'gpuann mirror worker' THEN 'workers' END FROM pg_stat_activity WHERE pid = process), 'others') END
$$ LANGUAGE sql;

-- Search for a row's vector and keep whether the row came, at distance 0. A row that is not committed yet is left out.
--
-- The row is looked up first, in a snapshot older than the search's: what that one saw, the search must find.
CREATE FUNCTION check_row(item integer, kind text) RETURNS void AS $$
DECLARE
	wanted vector;
	was_found boolean;
	is_lost boolean := false;
	answered text;
	scan text;
BEGIN
	SELECT v INTO wanted FROM items WHERE id = item;
	IF NOT FOUND THEN
		RETURN;
	END IF;
	was_found := is_nearest(item, wanted);
	answered := last_path();
	IF NOT was_found THEN
		SELECT to_json(last_scan) INTO scan FROM gpuann_last_scan() last_scan;
		PERFORM set_config('gpuann.exact', 'on', true);
		is_lost := NOT is_nearest(item, wanted);
		PERFORM set_config('gpuann.exact', 'off', true);
	END IF;
	INSERT INTO checks VALUES (current_setting('bench.path'), answered, item, kind, was_found, is_lost, scan);
END
$$ LANGUAGE plpgsql;

-- Whether a search for a row's vector finds the row first, at distance 0.
CREATE FUNCTION is_nearest(item integer, wanted vector) RETURNS boolean AS $$
DECLARE
	nearest integer;
	distance float8;
BEGIN
	SELECT id, v <-> wanted INTO nearest, distance FROM items ORDER BY v <-> wanted LIMIT 1;
	RETURN nearest IS NOT DISTINCT FROM item AND distance = 0;
END
$$ LANGUAGE plpgsql;

-- Check the rows inserted so far, or every so many of them, so that there are at most that many (0: all).
CREATE FUNCTION check_again(most integer) RETURNS void AS $$
DECLARE
	each integer := 1;
	inserted integer;
BEGIN
	IF most > 0 THEN
		each := (SELECT 1 + count(*) / most FROM fresh JOIN items USING (id));
	END IF;
	FOR inserted IN SELECT id FROM fresh WHERE id IN (SELECT id FROM items) AND id % each = 0 ORDER BY id LOOP
		PERFORM check_row(inserted, 'again');
	END LOOP;
END
$$ LANGUAGE plpgsql;

-- Searches of the index so far, all sessions together but for the checks. What a session did in its last second may lack.
CREATE FUNCTION searches_so_far() RETURNS bigint AS $$
	SELECT idx_scan - (SELECT count(*) FROM checks) FROM pg_stat_user_indexes WHERE indexrelname = 'items_v'
$$ LANGUAGE sql;

-- What must not happen, a line each. Just committed, a row is on the pending list, which is searched exactly. At the end it is in
-- the graph, where a search may miss it, though seldom: a thousandth is allowed.
CREATE VIEW broken AS
	SELECT format('%s: %s rows were not found just after their commit', path, count(*)) AS line
	FROM checks WHERE NOT found AND kind <> 'again' GROUP BY path
	UNION ALL
	SELECT format('%s: %s rows are lost: not even an exact search finds them', path, count(*))
	FROM checks WHERE lost GROUP BY path
	UNION ALL
	SELECT format('%s: %s of %s rows were not found at the end', path, count(*) FILTER (WHERE NOT found), count(*))
	FROM checks WHERE kind = 'again' GROUP BY path HAVING count(*) FILTER (WHERE NOT found) > 0.001 * count(*)
	UNION ALL
	SELECT format('%s: never answered', path) FROM checks GROUP BY path HAVING count(*) FILTER (WHERE answered = path) = 0;

-- Lines of the report.
CREATE VIEW report AS
	SELECT format('| %s | %s | %s | %s | %s | %s | %s | %s | %s |', runs.path, to_char(round(qps_before), 'FM999,999,999'),
		to_char(round(qps_during), 'FM999,999,999'), round(written / seconds), total, answers, missed, missed_later, lost)
	FROM runs JOIN (
		SELECT path, count(*) AS total, count(*) FILTER (WHERE NOT found AND kind <> 'again') AS missed,
			count(*) FILTER (WHERE NOT found AND kind = 'again') AS missed_later,
			count(*) FILTER (WHERE lost) AS lost, count(*) FILTER (WHERE kind = 'own') AS written
		FROM checks GROUP BY path) checked USING (path)
	JOIN (
		SELECT path, string_agg(format('%s %s', answered, count), ', ' ORDER BY count DESC) AS answers
		FROM (SELECT path, answered, count(*) FROM checks GROUP BY path, answered) counted GROUP BY path) by_path USING (path)
	ORDER BY place;

-- Medians of the paced measurements; the change is the median of the turns' own.
CREATE VIEW paced_report AS
	SELECT format('| %s | %s | %s | %s %% | %s %% | %s |', path,
		to_char(percentile_cont(0.5) WITHIN GROUP (ORDER BY qps_without), 'FM999,999,999'),
		to_char(percentile_cont(0.5) WITHIN GROUP (ORDER BY qps_with), 'FM999,999,999'),
		to_char(percentile_cont(0.5) WITHIN GROUP (ORDER BY 100 * (qps_with / qps_without - 1)), 'SFM990.0'),
		to_char(percentile_cont(0.5) WITHIN GROUP (ORDER BY 100 * (qps_elsewhere / qps_before_elsewhere - 1)), 'SFM990.0'),
		to_char(percentile_cont(0.5) WITHIN GROUP (ORDER BY inserts), 'FM999,999,999'))
	FROM paced GROUP BY path;

-- Medians of the processors at work, of each path without and with inserts.
CREATE VIEW processors_report AS
	SELECT '| ' || path || ' | ' || rate || ' | ' || string_agg(coalesce(round(cores::numeric, 1)::text, '0.0'), ' | ' ORDER BY place) || ' |'
	FROM (SELECT DISTINCT path, rate FROM processors) measured
	CROSS JOIN unnest(ARRAY['search', 'insert', 'server', 'workers', 'pgbench', 'others', 'idle']) WITH ORDINALITY AS column_of (who, place)
	LEFT JOIN (SELECT path, rate, who, percentile_cont(0.5) WITHIN GROUP (ORDER BY cores) AS cores
		FROM processors GROUP BY path, rate, who) medians USING (path, rate, who)
	GROUP BY path, rate ORDER BY path, rate;

-- Medians of what searches said of themselves, of each path without and with inserts.
CREATE VIEW samples_report AS
	SELECT format('| %s | %s | %s | %s | %s | %s | %s | %s |', path, rate, round((1000 * percentile_cont(0.5) WITHIN GROUP (ORDER BY total))::numeric), round(percentile_cont(0.5) WITHIN GROUP (ORDER BY queue)::numeric),
		round(percentile_cont(0.5) WITHIN GROUP (ORDER BY engine)::numeric), round(avg(batch)::numeric, 1), round(avg(visited)::numeric), round(avg(pending)::numeric))
	FROM samples GROUP BY path, rate ORDER BY path, rate;
