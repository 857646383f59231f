-- EXPLAIN says which index is scanned and, with ANALYZE, how it answered: of our node everywhere, of a plain index scan from
-- PostgreSQL 18 on (explain.out; before that explain_1.out).
SET enable_seqscan = off;
SET gpuann.server = off;

CREATE TABLE explained (id int, v vector(3));
INSERT INTO explained SELECT i, ARRAY[i, i % 7, i % 11]::vector FROM generate_series(1, 5000) i;
CREATE INDEX explained_v ON explained USING gpuann (v vector_l2_ops);

CREATE FUNCTION gpuann_lines(query text, options text DEFAULT 'ANALYZE, COSTS off, TIMING off, SUMMARY off') RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	line text;
BEGIN
	FOR line IN EXECUTE format('EXPLAIN (%s) %s', options, query) LOOP
		IF line ~ '(Gpuann|gpuann|Index Scan|Index:|Order By|Filter)' THEN
			RETURN NEXT regexp_replace(regexp_replace(trim(line), '(visited|judged)=\d+', '\1=N', 'g'), '\(actual.*', '');
		END IF;
	END LOOP;
END
$$;

SELECT * FROM gpuann_lines('SELECT id FROM explained ORDER BY v <-> ''[1,2,3]'' LIMIT 5');
BEGIN;
SET LOCAL gpuann.exact = on;
SELECT * FROM gpuann_lines('SELECT id FROM explained ORDER BY v <-> ''[1,2,3]'' LIMIT 5');
COMMIT;
-- without ANALYZE nothing was done
SELECT * FROM gpuann_lines('SELECT id FROM explained ORDER BY v <-> ''[1,2,3]'' LIMIT 5', 'COSTS off');
-- a filter is the node's own, and says what it took away
SELECT * FROM gpuann_lines('SELECT id FROM explained WHERE id > 100 ORDER BY v <-> ''[1,2,3]'' LIMIT 1');
-- a LIMIT that is not the node's bound: of so few rows all are compared; and none
SELECT * FROM gpuann_lines('SELECT id FROM explained ORDER BY v <-> ''[1,2,3]'' LIMIT 5 FOR UPDATE');
SELECT * FROM gpuann_lines('SELECT id FROM explained ORDER BY v <-> ''[1,2,3]''');
-- in what order rows are wanted, and a stream, which is asked for here
BEGIN;
SET LOCAL gpuann.iterative_scan = strict_order;
SELECT * FROM gpuann_lines('SELECT id FROM explained ORDER BY v <-> ''[1,2,3]'' LIMIT 5');
SELECT * FROM gpuann_lines('SELECT id FROM explained ORDER BY v <-> ''[1,2,3]'' LIMIT 5 FOR UPDATE');
COMMIT;
-- one round: as broad as the filter's share needs; and the last row of a first answer waits for no second one
CREATE TABLE halves AS SELECT i AS id, i % 2 AS half, ARRAY[i % 53, i % 59, i % 61]::vector(3) AS v FROM generate_series(1, 3000) i;
CREATE INDEX halves_v ON halves USING gpuann (v vector_l2_ops);
ANALYZE halves;
SELECT substring(line FROM 'ef=\d+ rounds=\d+') FROM gpuann_lines('SELECT id FROM halves WHERE half = 0 ORDER BY v <-> ''[20,20,20]'' LIMIT 20') line WHERE line ~ 'Gpuann';
BEGIN;
SET LOCAL gpuann.iterative_scan = strict_order;
SELECT substring(line FROM 'ef=\d+ rounds=\d+') FROM gpuann_lines('SELECT id FROM halves ORDER BY v <-> ''[20,20,20]'' LIMIT 40') line WHERE line ~ 'Gpuann';
COMMIT;
DROP TABLE halves;
-- other scans say nothing
SELECT * FROM gpuann_lines('SELECT id FROM explained WHERE id = 1');
-- for a program
DO $$
DECLARE
	plan json;
BEGIN
	EXECUTE 'EXPLAIN (ANALYZE, FORMAT json) SELECT id FROM explained ORDER BY v <-> ''[1,2,3]'' LIMIT 5' INTO plan;
	plan := plan #> '{0,Plan,Plans,0}';
	RAISE NOTICE '% % % % %', plan ->> 'Custom Plan Provider', plan ->> 'Index', plan ->> 'Gpuann Path', plan ->> 'Gpuann Bound',
		plan ->> 'Gpuann Wanted';
END
$$;

-- a plain index scan
SET gpuann.plan_node = off;
SELECT * FROM gpuann_lines('SELECT id FROM explained ORDER BY v <-> ''[1,2,3]'' LIMIT 5');
DO $$
DECLARE
	plan json;
BEGIN
	EXECUTE 'EXPLAIN (ANALYZE, FORMAT json) SELECT id FROM explained ORDER BY v <-> ''[1,2,3]'' LIMIT 5' INTO plan;
	RAISE NOTICE '%', plan #>> '{0,Plan,Plans,0,Gpuann Path}';
END
$$;
RESET gpuann.plan_node;

DROP FUNCTION gpuann_lines;
DROP TABLE explained;
