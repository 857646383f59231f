-- CREATE INDEX: cancelled, in little memory, of nothing, of equals; and how much of the nearest its graph finds.
CREATE TABLE t (id integer, val vector(48));
INSERT INTO t SELECT g, array_agg(sin(g * 12.9898 + d * 78.233) + sin(g % 50 * 3.1 + d) ORDER BY d)::vector(48)
	FROM generate_series(1, 8000) g, generate_series(1, 48) d GROUP BY g;

-- cancelled in the middle, of a build here, since a device may be done by then: nothing is left, and it can be built again
SET gpuann.server = off;
SET statement_timeout = '500ms';
CREATE INDEX t_val ON t USING gpuann (val vector_l2_ops) WITH (m = 100, ef_construction = 1000);
RESET statement_timeout;
RESET gpuann.server;
SELECT count(*) FROM pg_class WHERE relname = 't_val';

-- in a subtransaction that is given up
BEGIN;
SAVEPOINT s;
CREATE INDEX t_val ON t USING gpuann (val vector_l2_ops) WITH (m = 4, ef_construction = 8);
ROLLBACK TO s;
COMMIT;
SELECT count(*) FROM pg_class WHERE relname = 't_val';

-- recall@10 of the index for rows of the table as queries
CREATE FUNCTION recall() RETURNS float8 LANGUAGE plpgsql AS $$
DECLARE
	query vector;
	exact integer[];
	found integer[];
	hits integer := 0;
BEGIN
	SET LOCAL enable_seqscan = off;
	SET LOCAL enable_sort = off;
	FOR query IN SELECT val FROM t WHERE id % 160 = 1 LOOP
		SET LOCAL gpuann.exact = on;
		SELECT array_agg(id) INTO exact FROM (SELECT id FROM t ORDER BY val <-> query LIMIT 10) nearest;
		SET LOCAL gpuann.exact = off;
		SELECT array_agg(id) INTO found FROM (SELECT id FROM t ORDER BY val <-> query LIMIT 10) nearest;
		hits := hits + (SELECT count(*) FROM unnest(found) id WHERE id = ANY (exact));
	END LOOP;
	RETURN hits / 500.0;
END
$$;

CREATE INDEX t_val ON t USING gpuann (val vector_l2_ops);
SELECT recall() >= 0.95 AS enough;
SET gpuann.ef_search = 200;
SELECT recall() >= 0.99 AS enough;
RESET gpuann.ef_search;
DROP INDEX t_val;

-- in one thread, in too little memory: a part is linked over pages
SET max_parallel_maintenance_workers = 0;
SET maintenance_work_mem = '3MB';
SET client_min_messages = warning;
CREATE INDEX t_val ON t USING gpuann (val vector_l2_ops);
RESET client_min_messages;
RESET maintenance_work_mem;
RESET max_parallel_maintenance_workers;
SELECT recall() >= 0.95 AS enough;
SELECT gpuann_check('t_val');
DROP TABLE t;

-- of nothing but NULLs
CREATE TABLE t (id integer, val vector(48));
INSERT INTO t SELECT g, NULL FROM generate_series(1, 1000) g;
CREATE INDEX t_val ON t USING gpuann (val vector_l2_ops);
SET enable_seqscan = off;
SELECT count(*) FROM (SELECT id FROM t ORDER BY val <-> array_fill(1, ARRAY[48])::vector) every;
SELECT gpuann_check('t_val');
DROP TABLE t;

-- of equals: half of the rows are one vector, which hurts nobody else
CREATE TABLE t (id integer, val vector(48));
INSERT INTO t SELECT g, CASE WHEN g % 2 = 0 THEN array_fill(1, ARRAY[48])::vector ELSE
	array_agg(sin(g * 12.9898 + d * 78.233) + sin(g % 50 * 3.1 + d) ORDER BY d)::vector(48) END
	FROM generate_series(1, 8000) g, generate_series(1, 48) d GROUP BY g;
CREATE INDEX t_val ON t USING gpuann (val vector_l2_ops);
SELECT recall() >= 0.95 AS enough;
SELECT gpuann_check('t_val');
DROP TABLE t;
DROP FUNCTION recall;
