-- Never fewer rows than exist, and in order: filters, large limits, no limit, cursors; each row once.
CREATE TABLE t (id integer PRIMARY KEY, kind integer, val vector(8));
INSERT INTO t SELECT g, g % 1000, array_agg(sin(g * 12.9898 + d * 78.233) ORDER BY d)::vector(8)
	FROM generate_series(1, 5000) g, generate_series(1, 8) d GROUP BY g;
INSERT INTO t VALUES (5001, 1, NULL), (5002, 2, NULL);
CREATE INDEX t_val ON t USING gpuann (val vector_l2_ops);
-- rows that are only on the pending list
INSERT INTO t SELECT g, g % 1000, array_agg(sin(g * 12.9898 + d * 78.233) ORDER BY d)::vector(8)
	FROM generate_series(5003, 5500) g, generate_series(1, 8) d GROUP BY g;
ANALYZE t;

CREATE TABLE answers (id integer, place bigint, distance float8);
CREATE FUNCTION ask(condition text, wanted integer, by_index boolean) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('enable_seqscan', CASE WHEN by_index THEN 'off' ELSE 'on' END, true);
	PERFORM set_config('enable_sort', CASE WHEN by_index THEN 'off' ELSE 'on' END, true);
	PERFORM set_config('enable_indexscan', CASE WHEN by_index THEN 'on' ELSE 'off' END, true);
	PERFORM set_config('enable_bitmapscan', 'off', true);
	DELETE FROM answers WHERE (place > 0) = by_index;
	EXECUTE 'INSERT INTO answers SELECT id, CASE WHEN $2 THEN 1 ELSE -1 END * row_number() OVER (), distance FROM (
		SELECT id, val <-> ''[0.1,0.2,0.3,-0.1,-0.2,-0.3,0.4,-0.4]'' AS distance FROM t WHERE ' || condition || '
		ORDER BY val <-> ''[0.1,0.2,0.3,-0.1,-0.2,-0.3,0.4,-0.4]'' LIMIT $1) nearest' USING wanted, by_index;
END
$$;

-- What the index answered, compared with the table: rows, rows twice, share of the nearest, steps back, and
-- whether places are equal, but for rows of equal distance.
CREATE FUNCTION compare(condition text, wanted integer) RETURNS TABLE(rows bigint, expected bigint, twice bigint, enough_recall boolean, back bigint, same boolean)
LANGUAGE plpgsql AS $$
BEGIN
	PERFORM ask(condition, wanted, true);
	PERFORM ask(condition, wanted, false);
	RETURN QUERY SELECT
		(SELECT count(*) FROM answers WHERE place > 0),
		(SELECT count(*) FROM answers WHERE place < 0 AND distance IS NOT NULL),
		(SELECT count(*) - count(DISTINCT id) FROM answers WHERE place > 0),
		(SELECT count(*) FROM answers a JOIN answers b USING (id) WHERE a.place > 0 AND b.place < 0) >=
			0.9 * (SELECT count(*) FROM answers WHERE place < 0 AND distance IS NOT NULL),
		(SELECT count(*) FROM (SELECT distance < lag(distance) OVER (ORDER BY place) AS back
			FROM answers WHERE place > 0) steps WHERE steps.back),
		(SELECT count(*) FROM answers a JOIN answers b USING (id) WHERE a.place = -b.place AND a.place > 0) >=
			0.99 * (SELECT count(*) FROM answers WHERE place > 0);
END
$$;

-- complete, the default
SET gpuann.iterative_scan = complete;
SELECT rows, expected, twice, enough_recall, back FROM compare('true', 10);
SELECT rows, expected, twice, enough_recall, back FROM compare('true', 500);
SELECT rows, expected, twice, enough_recall, back FROM compare('val IS NOT NULL', 100000);
SELECT rows, expected, twice, enough_recall, back FROM compare('kind = 7', 10);
SELECT rows, expected, twice, enough_recall, back FROM compare('kind = 7', 100000);
SELECT rows, expected, twice, enough_recall, back FROM compare('kind < 100', 200);
SELECT rows, expected, twice, enough_recall, back FROM compare('id > 5002', 100000);
SELECT rows, expected, twice, enough_recall, back FROM compare('false', 10);

SET gpuann.iterative_scan = relaxed_order;
SELECT rows, expected, twice, enough_recall FROM compare('val IS NOT NULL', 100000);
SELECT rows, expected, twice, enough_recall FROM compare('kind = 7', 10);

-- what is found too late is dropped, so only the first rows are sure to be as many
SET gpuann.iterative_scan = strict_order;
SELECT rows <= expected AND rows > 5000 AS nearly_all, twice, back FROM compare('val IS NOT NULL', 100000);
SELECT twice, enough_recall, back FROM compare('kind < 100', 200);

SET gpuann.iterative_scan = off;
SELECT rows, twice, back FROM compare('val IS NOT NULL', 100000);
SET gpuann.ef_search = 100;
SELECT rows, twice, back FROM compare('val IS NOT NULL', 100000);
RESET gpuann.ef_search;
RESET gpuann.iterative_scan;

-- exactly
SET gpuann.exact = on;
SELECT * FROM compare('val IS NOT NULL', 100000);
SELECT * FROM compare('kind % 2 = 0', 2500);
SET gpuann.iterative_scan = off;
SELECT rows FROM compare('true', 5000);
RESET gpuann.iterative_scan;
SELECT path, dropped FROM gpuann_last_scan();
RESET gpuann.exact;

-- little memory: more rounds, the same rows
SET work_mem = '64kB';
SELECT rows, expected, twice, enough_recall, back FROM compare('val IS NOT NULL', 100000);
SET gpuann.exact = on;
SELECT * FROM compare('val IS NOT NULL', 100000);
RESET gpuann.exact;
RESET work_mem;

-- a NULL query: every row, in any order
SET enable_seqscan = off;
SELECT count(*), count(DISTINCT id) FROM (SELECT id FROM t ORDER BY val <-> (SELECT NULL::vector)) every;

-- a cursor, held across changes of the same table, sees what it saw at first
BEGIN;
DECLARE c CURSOR FOR SELECT id FROM t ORDER BY val <-> '[1,-1,1,-1,1,-1,1,-1]';
FETCH 0 FROM c;
MOVE 100 IN c;
DELETE FROM t WHERE id % 2 = 0;
INSERT INTO t SELECT 10000 + g, 0, '[1,-1,1,-1,1,-1,1,-1]' FROM generate_series(1, 10) g;
MOVE FORWARD ALL IN c;
CLOSE c;
SELECT count(*) FROM (SELECT id FROM t ORDER BY val <-> '[1,-1,1,-1,1,-1,1,-1]') every;
SELECT count(*) FROM (SELECT id FROM t ORDER BY val <-> '[1,-1,1,-1,1,-1,1,-1]' LIMIT 10) nearest WHERE id > 10000;
ROLLBACK;
BEGIN;
DECLARE h SCROLL CURSOR WITH HOLD FOR SELECT id FROM t ORDER BY val <-> '[1,-1,1,-1,1,-1,1,-1]' LIMIT 300;
COMMIT;
MOVE 200 IN h;
MOVE BACKWARD 100 IN h;
MOVE FORWARD ALL IN h;
CLOSE h;

-- subtransactions: what was rolled back is not seen
BEGIN;
SAVEPOINT s;
INSERT INTO t VALUES (20000, 0, '[9,9,9,9,9,9,9,9]');
SELECT id FROM t ORDER BY val <-> '[9,9,9,9,9,9,9,9]' LIMIT 1;
ROLLBACK TO s;
SELECT id <> 20000 AS gone FROM t ORDER BY val <-> '[9,9,9,9,9,9,9,9]' LIMIT 1;
COMMIT;

DROP FUNCTION compare, ask;
DROP TABLE answers, t;
