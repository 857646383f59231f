-- EXPLAIN (ANALYZE) says how a scan was answered, from PostgreSQL 18 on (explain.out); before, nothing is added (explain_1.out).
SET enable_seqscan = off;
SET gpuann.server = off;

CREATE TABLE explained (id int, v vector(3));
INSERT INTO explained SELECT i, ARRAY[i, i % 7, i % 11]::vector FROM generate_series(1, 500) i;
CREATE INDEX explained_v ON explained USING gpuann (v vector_l2_ops);

CREATE FUNCTION gpuann_lines(query text, options text DEFAULT 'ANALYZE, COSTS off, TIMING off, SUMMARY off') RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	line text;
BEGIN
	FOR line IN EXECUTE format('EXPLAIN (%s) %s', options, query) LOOP
		IF line ~ 'Gpuann' THEN
			RETURN NEXT regexp_replace(trim(line), 'visited=\d+', 'visited=N');
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
-- other scans say nothing
SELECT * FROM gpuann_lines('SELECT id FROM explained WHERE id = 1');
-- for a program
DO $$
DECLARE
	plan json;
BEGIN
	EXECUTE 'EXPLAIN (ANALYZE, FORMAT json) SELECT id FROM explained ORDER BY v <-> ''[1,2,3]'' LIMIT 5' INTO plan;
	RAISE NOTICE '%', plan #>> '{0,Plan,Plans,0,Gpuann Path}';
END
$$;

DROP FUNCTION gpuann_lines;
DROP TABLE explained;
