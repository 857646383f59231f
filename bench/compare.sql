-- compare.sql
--		What bench/compare keeps its figures in, and what it reports of them.

CREATE EXTENSION IF NOT EXISTS pg_prewarm;
CREATE EXTENSION IF NOT EXISTS pg_walinspect;

CREATE TABLE builds (method text, seconds float8, bytes bigint, wal numeric);
CREATE TABLE results (place integer GENERATED ALWAYS AS IDENTITY, method text, path text, ef integer, recall float8,
	clients integer, qps float8, p50 float8, p99 float8, batch float8);
CREATE TABLE inserts (method text, path text, sessions integer, row_count integer, insert_seconds float8, link_seconds float8);
CREATE TABLE wal (method text, phase text, row_count integer, records numeric, images numeric, heap numeric, heap_images numeric);
CREATE TABLE exact_times (method text, ms float8);
CREATE SEQUENCE next_row;

-- Distance of the tenth exact answer: a row as near is as good.
CREATE FUNCTION find_tenth() RETURNS void AS $$
BEGIN
	ALTER TABLE truth ADD tenth float8;
	UPDATE truth SET tenth = found.tenth
	FROM (
		SELECT truth.id, max(items.v <-> queries.v) AS tenth
		FROM truth JOIN queries USING (id) CROSS JOIN unnest(truth.nearest[1:10]) one (item) JOIN items ON items.id = item
		GROUP BY truth.id) found
	WHERE truth.id = found.id;
	ANALYZE truth;
END
$$ LANGUAGE plpgsql;

-- Batches of the server, and the queries in them; zeros where there is none.
CREATE FUNCTION batch_counters(OUT batches bigint, OUT queries bigint) AS $$
BEGIN
	SELECT coalesce(sum(s.batches), 0), coalesce(sum(s.batched_queries), 0) INTO batches, queries
	FROM pg_stat_gpuann s WHERE indexrelname = 'items_v';
EXCEPTION WHEN object_not_in_prerequisite_state THEN
	batches := 0;
	queries := 0;
END
$$ LANGUAGE plpgsql;

-- Keep the median time of an exact search over so many queries, each asked twice: the second counts.
CREATE FUNCTION time_exact(label text, how_many integer) RETURNS void AS $$
DECLARE
	query record;
	began timestamptz;
	times float8[] := '{}';
BEGIN
	FOR query IN SELECT v FROM queries ORDER BY id LIMIT how_many LOOP
		PERFORM id FROM items ORDER BY v <-> query.v LIMIT 10;
		began := clock_timestamp();
		PERFORM id FROM items ORDER BY v <-> query.v LIMIT 10;
		times := times || extract(epoch FROM clock_timestamp() - began)::float8 * 1000;
	END LOOP;
	INSERT INTO exact_times SELECT label, percentile_cont(0.5) WITHIN GROUP (ORDER BY t) FROM unnest(times) t;
END
$$ LANGUAGE plpgsql;

-- Figures at a recall, between the last ef below it and the first ef that reaches it: times and ef are interpolated linearly in the
-- logarithm of the share that is missed. Where the smallest ef reaches it already, that ef's figures; none where no ef does.
CREATE FUNCTION at_recall(wanted float8)
RETURNS TABLE (method text, path text, clients integer, ef float8, qps float8, p50 float8, p99 float8, place integer) AS $$
	WITH points AS (
		SELECT *, ln(greatest(1 - recall, 1e-6)) AS missed, lag(recall) OVER same AS recall_before,
			lag(ln(greatest(1 - recall, 1e-6))) OVER same AS missed_before, lag(results.ef) OVER same AS ef_before,
			lag(results.qps) OVER same AS qps_before, lag(results.p50) OVER same AS p50_before, lag(results.p99) OVER same AS p99_before,
			count(*) FILTER (WHERE recall >= wanted) OVER same AS reached
		FROM results WINDOW same AS (PARTITION BY results.method, results.path, results.clients ORDER BY results.ef)
	), weighed AS (
		SELECT *, CASE WHEN recall_before IS NULL THEN 1 ELSE (ln(1 - wanted) - missed_before) / (missed - missed_before) END AS w
		FROM points WHERE reached = 1 AND recall >= wanted
	)
	SELECT w.method, w.path, w.clients, w.ef * w.w + coalesce(ef_before, 0) * (1 - w.w),
		1 / (w.w / w.qps + coalesce((1 - w.w) / qps_before, 0)), w.p50 * w.w + coalesce(p50_before, 0) * (1 - w.w),
		w.p99 * w.w + coalesce(p99_before, 0) * (1 - w.w), w.place
	FROM weighed w
$$ LANGUAGE sql;

-- A row of the table at a recall: against pgvector with as many clients.
CREATE FUNCTION recall_rows(wanted float8) RETURNS SETOF text AS $$
	SELECT format('| %s | %s | %s | %s | %s | %s | %s | %s |', to_char(wanted, 'FM0.00'), m.clients,
		CASE m.method WHEN 'gpuann' THEN 'gpuann, ' || m.path ELSE m.method END,
		coalesce(round(a.ef)::text, 'not reached'), coalesce(to_char(round(a.qps), 'FM999,999,999'), '–'),
		coalesce(to_char(a.qps / p.qps, 'FM9990.00') || 'x', '–'), coalesce(round(a.p50)::text, '–'), coalesce(round(a.p99)::text, '–'))
	FROM (SELECT method, path, clients, min(place) AS place FROM results GROUP BY 1, 2, 3) m
		LEFT JOIN at_recall(wanted) a USING (method, path, clients)
		LEFT JOIN at_recall(wanted) p ON p.method = 'pgvector' AND p.clients = m.clients
	ORDER BY m.clients, m.place
$$ LANGUAGE sql;
