-- CREATE INDEX with parallel workers, on every kind of table: the index holds what the table does.
SET min_parallel_table_scan_size = 0;
SET max_parallel_maintenance_workers = 3;
SET gpuann.ef_search = 100;
CREATE TABLE t (id integer, val vector(24));
INSERT INTO t SELECT g, array_agg(sin(g * 12.9898 + d * 78.233) + sin(g % 50 * 3.1 + d) ORDER BY d)::vector(24)
	FROM generate_series(1, 5000) g, generate_series(1, 24) d GROUP BY g;
INSERT INTO t SELECT g, NULL FROM generate_series(5001, 5100) g;
DELETE FROM t WHERE id % 17 = 0;
ANALYZE t;

-- the nearest twenty by the index, searched exactly, are the nearest twenty
CREATE FUNCTION differences(tab text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	by_index integer[];
	by_table integer[];
BEGIN
	SET LOCAL gpuann.exact = on;
	SET LOCAL enable_seqscan = off;
	SET LOCAL enable_sort = off;
	EXECUTE format('SELECT array_agg(id) FROM (SELECT id FROM %I ORDER BY val <-> (SELECT val FROM t WHERE id = 7) LIMIT 20) s', tab) INTO by_index;
	SET LOCAL enable_indexscan = off;
	SET LOCAL enable_seqscan = on;
	SET LOCAL enable_sort = on;
	EXECUTE format('SELECT array_agg(id) FROM (SELECT id FROM %I ORDER BY val <-> (SELECT val FROM t WHERE id = 7) LIMIT 20) s', tab) INTO by_table;
	RETURN (SELECT count(*) FROM unnest(by_index) id WHERE id <> ALL (by_table));
END
$$;

CREATE INDEX t_val ON t USING gpuann (val vector_l2_ops);
SELECT gpuann_check('t_val', true), differences('t');
-- slots that workers left over are used
INSERT INTO t SELECT id + 10000, val FROM t WHERE id < 2000;
SELECT gpuann_check('t_val', true), differences('t');
DELETE FROM t WHERE id > 10000;
VACUUM t;
SELECT gpuann_check('t_val', true), differences('t');
REINDEX INDEX t_val;
REINDEX INDEX CONCURRENTLY t_val;
SELECT gpuann_check('t_val', true), differences('t');
DROP INDEX t_val;
CREATE INDEX CONCURRENTLY t_val ON t USING gpuann (val vector_l2_ops);
SELECT gpuann_check('t_val', true), differences('t');
DROP INDEX t_val;

-- a part of the table, an expression, both; other types
CREATE INDEX t_val ON t USING gpuann (val vector_l2_ops) WHERE id % 3 = 0;
SELECT gpuann_check('t_val', true);
DROP INDEX t_val;
CREATE INDEX t_val ON t USING gpuann ((val::halfvec(24)) halfvec_cosine_ops) WHERE id > 100;
SELECT gpuann_check('t_val', true);
DROP INDEX t_val;
CREATE INDEX t_val ON t USING gpuann ((binary_quantize(val)::bit(24)) bit_hamming_ops);
SELECT gpuann_check('t_val', true);
DROP INDEX t_val;

-- in little memory
SET maintenance_work_mem = '97MB';
CREATE INDEX t_val ON t USING gpuann (val vector_l2_ops);
SELECT gpuann_check('t_val', true), differences('t');
RESET maintenance_work_mem;
DROP INDEX t_val;

-- where there is no parallel scan: temporary tables, SERIALIZABLE, a function that is not for workers
CREATE TEMPORARY TABLE temporary AS SELECT * FROM t;
CREATE INDEX temporary_val ON temporary USING gpuann (val vector_l2_ops);
SELECT gpuann_check('temporary_val', true), differences('temporary');
BEGIN ISOLATION LEVEL SERIALIZABLE;
CREATE INDEX t_val ON t USING gpuann (val vector_l2_ops);
COMMIT;
SELECT gpuann_check('t_val', true), differences('t');
DROP INDEX t_val;
CREATE FUNCTION alone(vector) RETURNS vector LANGUAGE plpgsql IMMUTABLE PARALLEL UNSAFE AS 'BEGIN RETURN $1; END';
CREATE INDEX t_val ON t USING gpuann ((alone(val)::vector(24)) vector_l2_ops);
SELECT gpuann_check('t_val', true);
DROP INDEX t_val;

-- unlogged and partitioned tables; a storage parameter that asks for no workers
CREATE UNLOGGED TABLE unlogged AS SELECT * FROM t;
CREATE INDEX unlogged_val ON unlogged USING gpuann (val vector_l2_ops);
SELECT gpuann_check('unlogged_val', true), differences('unlogged');
CREATE TABLE parted (id integer, val vector(24)) PARTITION BY RANGE (id);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (2000);
CREATE TABLE parted_2 PARTITION OF parted FOR VALUES FROM (2000) TO (10000);
INSERT INTO parted SELECT * FROM t;
ALTER TABLE parted_2 SET (parallel_workers = 0);
CREATE INDEX parted_val ON parted USING gpuann (val vector_l2_ops);
SELECT gpuann_check('parted_1_val_idx', true), gpuann_check('parted_2_val_idx', true), differences('parted');

-- an error in whichever process meets it
CREATE FUNCTION picky(vector, integer) RETURNS vector LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS
	$$ BEGIN IF $2 = 4321 THEN RAISE EXCEPTION 'row % is bad', $2; END IF; RETURN $1; END $$;
\set SHOW_CONTEXT never
CREATE INDEX t_val ON t USING gpuann ((picky(val, id)::vector(24)) vector_l2_ops);
CREATE INDEX t_val ON t USING gpuann ((val::vector(23)) vector_l2_ops);
SELECT count(*) FROM pg_class WHERE relname = 't_val';
DROP TABLE t, unlogged, parted, temporary;
DROP FUNCTION differences, alone, picky;
