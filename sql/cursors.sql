-- Scans that stop and go on: a cursor gives what its snapshot saw, once, whatever happens meanwhile; a scan begins again as often as wanted.
CREATE TABLE t (id integer PRIMARY KEY, kind integer, val vector(4));
INSERT INTO t SELECT g, g % 10, ARRAY[g % 100, g / 100, g % 7, 0]::vector FROM generate_series(1, 3000) g;
CREATE INDEX t_val ON t USING gpuann (val vector_l2_ops) WITH (m = 8);
INSERT INTO t SELECT g, g % 10, ARRAY[g % 100, g / 100, g % 7, 0]::vector FROM generate_series(3001, 3100) g;
ANALYZE t;
SET enable_seqscan = off;
SET enable_sort = off;
SET enable_bitmapscan = off;

-- The rest of a cursor: rows, distinct ones, and the sum of their ids.
CREATE FUNCTION drain(name refcursor) RETURNS TABLE(rows bigint, different bigint, ids bigint) LANGUAGE plpgsql AS $$
DECLARE
	had integer[] := '{}';
	one integer;
BEGIN
	LOOP
		FETCH name INTO one;
		EXIT WHEN NOT FOUND;
		had := had || one;
	END LOOP;
	RETURN QUERY SELECT count(*), count(DISTINCT x), sum(x) FROM unnest(had) x;
END
$$;
SELECT count(*), sum(id) FROM t;

-- across inserts, updates, deletes, a link; of rows before and behind the place where the scan stands
BEGIN;
DECLARE c CURSOR FOR SELECT id FROM t ORDER BY val <-> '[50,15,3,0]';
SELECT * FROM drain('c');
CLOSE c;
DECLARE c CURSOR FOR SELECT id FROM t ORDER BY val <-> '[50,15,3,0]';
FETCH 0 FROM c;
DELETE FROM t WHERE id % 3 = 0;
UPDATE t SET val = '[50,15,3,1]' WHERE id % 3 = 1;
INSERT INTO t SELECT g, 0, '[50,15,3,0]' FROM generate_series(10000, 10300) g;
SELECT gpuann_link('t_val') >= 0 AS linked;
SELECT * FROM drain('c');
SELECT count(*) FROM (SELECT id FROM t ORDER BY val <-> '[50,15,3,0]') every;
ROLLBACK;

-- across subtransactions that are rolled back: the cursor's own rows stay, and what it has read is not read again
BEGIN;
DECLARE c CURSOR FOR SELECT id FROM t ORDER BY val <-> '[50,15,3,0]';
CREATE TEMPORARY TABLE had (id integer) ON COMMIT DROP;
DO $$
DECLARE
	c refcursor := 'c';
	one integer;
BEGIN
	FOR i IN 1..30 LOOP
		BEGIN
			FOR j IN 1..i LOOP
				FETCH c INTO one;
				IF i % 2 = 0 THEN
					INSERT INTO had VALUES (one);
				END IF;
			END LOOP;
			INSERT INTO t VALUES (20000 + i, 0, '[50,15,3,0]');
			IF i % 2 = 1 THEN
				RAISE EXCEPTION 'given up';
			END IF;
		EXCEPTION WHEN raise_exception THEN
			NULL;
		END;
	END LOOP;
END
$$;
-- of each subtransaction that was given up the cursor's rows are gone, for a cursor does not step back
SELECT count(*), count(DISTINCT id) FROM had;
SELECT rows + 465 AS rows, rows = different AS once FROM drain('c');
ROLLBACK;

-- a cursor of a subtransaction ends with it
BEGIN;
SAVEPOINT s;
DECLARE c CURSOR FOR SELECT id FROM t ORDER BY val <-> '[50,15,3,0]';
MOVE 10 IN c;
ROLLBACK TO s;
FETCH c;
ROLLBACK;

-- held beyond the transaction; scrolled; several at once on one index
BEGIN;
DECLARE h CURSOR WITH HOLD FOR SELECT id FROM t ORDER BY val <-> '[50,15,3,0]';
MOVE 100 IN h;
COMMIT;
DELETE FROM t WHERE id > 3000;
SELECT * FROM drain('h');
CLOSE h;
BEGIN;
DECLARE s SCROLL CURSOR FOR SELECT id FROM t ORDER BY val <-> '[0.1,0.2,0,0]';
FETCH 3 FROM s;
FETCH BACKWARD 2 FROM s;
FETCH ABSOLUTE 2 FROM s;
MOVE LAST FROM s;
FETCH RELATIVE -2999 FROM s;
DECLARE n NO SCROLL CURSOR FOR SELECT id FROM t ORDER BY val <-> '[0.1,0.2,0,0]';
FETCH FROM n;
FETCH BACKWARD FROM n;
ROLLBACK;
BEGIN;
DECLARE a CURSOR FOR SELECT id FROM t ORDER BY val <-> '[0.1,0.2,0,0]';
DECLARE b CURSOR FOR SELECT id FROM t ORDER BY val <-> '[99.1,20.2,6,0]';
FETCH 2 FROM a;
FETCH 2 FROM b;
FETCH 2 FROM a;
SELECT rows, different FROM drain('b');
SELECT rows, different FROM drain('a');
COMMIT;
-- rows of a cursor can be changed
BEGIN;
DECLARE c CURSOR FOR SELECT id FROM t ORDER BY val <-> '[0.1,0.2,0,0]' FOR UPDATE;
FETCH FROM c;
UPDATE t SET val = '[500,500,500,500]' WHERE CURRENT OF c;
FETCH FROM c;
DELETE FROM t WHERE CURRENT OF c;
SELECT rows, different FROM drain('c');
SELECT id FROM t ORDER BY val <-> '[499,499,499,499]' LIMIT 1;
ROLLBACK;

-- work_mem bounds what a scan remembers; the first answer may take more, as broad as it is asked to be
CREATE TABLE big AS SELECT g AS id, ARRAY[g % 211, g / 211]::vector(2) AS val FROM generate_series(1, 60000) g;
CREATE INDEX big_val ON big USING gpuann (val vector_l2_ops) WITH (m = 4, ef_construction = 16);
CREATE FUNCTION most_memory(mode text) RETURNS TABLE(rows bigint, within_work_mem boolean) LANGUAGE plpgsql AS $$
DECLARE
	c refcursor;
	taken bigint;
	most bigint := 0;
	one integer;
BEGIN
	PERFORM set_config('gpuann.iterative_scan', mode, true);
	rows := 0;
	OPEN c NO SCROLL FOR SELECT id FROM big ORDER BY val <-> '[100,100]';
	LOOP
		FETCH c INTO one;
		EXIT WHEN NOT FOUND;
		rows := rows + 1;
		IF rows % 1000 = 1 THEN
			SELECT sum(total_bytes) INTO taken FROM pg_backend_memory_contexts WHERE name = 'gpuann scan';
			most := greatest(most, taken);
		END IF;
	END LOOP;
	CLOSE c;
	within_work_mem := most BETWEEN 1 AND (SELECT setting::bigint * 1024 FROM pg_settings WHERE name = 'work_mem');
	RETURN NEXT;
END
$$;
SET work_mem = '256kB';
SELECT mode, m.* FROM unnest('{complete,relaxed_order}'::text[]) mode, most_memory(mode) m;
SET gpuann.exact = on;
SELECT * FROM most_memory('complete');
RESET gpuann.exact;
RESET work_mem;
DROP TABLE big;
DROP FUNCTION most_memory;

-- begun again and again: with a parameter, with NULL, after stopping early
SELECT q.id, (SELECT array_agg(n.id) FROM (SELECT t.id FROM t ORDER BY t.val <-> q.val, t.id LIMIT 2) n)
	FROM (VALUES (1, '[5,0,5,0]'::vector), (2, NULL), (3, '[77,12,5,0]')) q(id, val) WHERE q.val IS NOT NULL;
SELECT q.id, n.count FROM (VALUES (1, '[5,0,5,0]'::vector), (2, NULL), (3, '[77,12,5,0]')) q(id, val),
	LATERAL (SELECT count(*) FROM (SELECT t.id FROM t WHERE kind = q.id ORDER BY t.val <-> q.val) x) n;
SELECT count(*) FROM t q WHERE q.id <= 300 AND q.id = (SELECT t.id FROM t ORDER BY t.val <-> q.val LIMIT 1);
PREPARE nearest(vector, integer) AS SELECT id FROM t ORDER BY val <-> $1 LIMIT $2;
SET plan_cache_mode = force_generic_plan;
EXECUTE nearest('[5,0,5,0]', 1);
EXECUTE nearest('[7,0,0,0]', 2);
EXECUTE nearest(NULL, 0);
ALTER INDEX t_val SET (ef_search = 200);
EXECUTE nearest('[5,0,5,0]', 1);
RESET plan_cache_mode;
DEALLOCATE nearest;

-- more than one order: rows of the same distance are sorted; one of each distance
SELECT id, val <-> '[5,0,5,0]' AS distance FROM t ORDER BY val <-> '[5,0,5,0]', id DESC LIMIT 5;
SELECT DISTINCT ON (val <-> '[5,0,5,0]') round((val <-> '[5,0,5,0]')::numeric, 4) FROM t ORDER BY val <-> '[5,0,5,0]' LIMIT 3;
-- in a union, a window, a common table expression, a lock
(SELECT id FROM t ORDER BY val <-> '[5,0,5,0]' LIMIT 1) UNION ALL (SELECT id FROM t ORDER BY val <-> '[7,0,0,0]' LIMIT 1);
SELECT id, row_number() OVER (ORDER BY val <-> '[5.1,0.2,5,0]') FROM t LIMIT 2;
WITH near AS MATERIALIZED (SELECT id, kind FROM t ORDER BY val <-> '[5,0,5,0]' LIMIT 50) SELECT count(*), count(DISTINCT id) FROM near;
SELECT id FROM t ORDER BY val <-> '[5,0,5,0]' LIMIT 1 FOR UPDATE SKIP LOCKED;

-- beside parallel workers, and in one
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SET max_parallel_workers_per_gather = 2;
SET enable_seqscan = on;
SET enable_indexonlyscan = off;
SELECT sum((SELECT t.kind FROM t ORDER BY t.val <-> '[5,0,5,0]' LIMIT 1)) FROM t q;
SELECT count(*) FROM t a, (SELECT id FROM t ORDER BY val <-> '[5,0,5,0]' LIMIT 100) near WHERE a.id = near.id;
SET gpuann.exact = on;
SELECT count(*) FROM (SELECT q.id, (SELECT t.id FROM t ORDER BY t.val <-> q.val LIMIT 1) AS near FROM t q WHERE q.kind = 1) x WHERE id = near;
RESET gpuann.exact;
SELECT set_config(CASE WHEN current_setting('server_version_num')::integer < 160000 THEN 'force_parallel_mode' ELSE 'debug_parallel_query' END, 'on', false);
SELECT id FROM t ORDER BY val <-> '[5,0,5,0]' LIMIT 1;
SELECT count(*), count(DISTINCT id) FROM (SELECT id FROM t ORDER BY val <-> '[5,0,5,0]') every;

DROP FUNCTION drain;
DROP TABLE t;
