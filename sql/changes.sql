-- Whatever SQL does to a table, its rows and its index: afterwards the index gives the table's rows.
SET enable_seqscan = off;

CREATE TABLE t (id integer PRIMARY KEY, kind integer DEFAULT 0, val vector(3), twice vector(3) GENERATED ALWAYS AS (val + val) STORED);
CREATE INDEX t_val ON t USING gpuann (val vector_l2_ops) WITH (m = 4);
CREATE INDEX t_twice ON t USING gpuann (twice vector_l2_ops) WITH (m = 4);

-- Whether a drained scan gives every row of the table that is not NULL once, in order, and no other.
CREATE FUNCTION agrees(relation text DEFAULT 't', attribute text DEFAULT 'val') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	by_index text;
	by_table text;
	query text := format('SELECT string_agg(id || ''@'' || %1$I::text, '' '' ORDER BY id) FROM (SELECT id, %1$I FROM %2$s WHERE %1$I IS NOT NULL ORDER BY %1$I <-> ''[50,50,50]'') every',
						 attribute, relation);
BEGIN
	EXECUTE query INTO by_index;
	SET LOCAL enable_seqscan = on;
	SET LOCAL enable_indexscan = off;
	EXECUTE query INTO by_table;
	RETURN CASE WHEN by_index IS NOT DISTINCT FROM by_table THEN 'yes' ELSE by_index || ' instead of ' || by_table END;
END
$$;

-- COPY, ON CONFLICT, MERGE, generated columns
COPY t (id, val) FROM stdin;
1	[1,1,1]
2	[2,2,2]
3	\N
4	[4,4,4]
\.
SELECT agrees(), agrees(attribute => 'twice');
INSERT INTO t (id, val) VALUES (1, '[10,10,10]'), (5, '[5,5,5]') ON CONFLICT (id) DO UPDATE SET val = excluded.val;
INSERT INTO t (id, val) VALUES (1, '[20,20,20]'), (6, NULL) ON CONFLICT DO NOTHING;
MERGE INTO t USING (VALUES (2, '[22,22,22]'::vector), (7, '[7,7,7]')) s(id, val) ON t.id = s.id
	WHEN MATCHED THEN UPDATE SET val = s.val WHEN NOT MATCHED THEN INSERT (id, val) VALUES (s.id, s.val);
SELECT agrees(), agrees(attribute => 'twice');
SELECT id FROM t ORDER BY twice <-> '[44,44,44]' LIMIT 1;
INSERT INTO t (id, val) SELECT g, ARRAY[g, g, g] FROM generate_series(11, 100) g;

-- heap-only updates: no index entry is made, and the one that is leads to the new version
BEGIN;
UPDATE t SET kind = 1 WHERE id <= 20;
UPDATE t SET kind = kind + 1 WHERE id <= 20;
SELECT pg_stat_get_xact_tuples_hot_updated('t'::regclass) > 0 AS heap_only;
COMMIT;
SELECT agrees();
SELECT id, kind FROM t ORDER BY val <-> '[14,14,14]' LIMIT 1;
-- to NULL and back; to the same value
UPDATE t SET val = NULL WHERE id BETWEEN 30 AND 40;
SELECT agrees();
UPDATE t SET val = ARRAY[id, id, id]::vector WHERE id BETWEEN 30 AND 45;
SELECT agrees();
DELETE FROM t WHERE id % 5 = 0;
SELECT agrees();
VACUUM t;
SELECT agrees();
VACUUM FULL t;
SELECT agrees(), agrees(attribute => 'twice');
CLUSTER t USING t_pkey;
SELECT agrees();

-- subtransactions, at several depths
BEGIN;
INSERT INTO t (id, val) VALUES (201, '[201,201,201]');
SAVEPOINT a;
INSERT INTO t (id, val) VALUES (202, '[202,202,202]');
DELETE FROM t WHERE id < 10;
SAVEPOINT b;
UPDATE t SET val = '[0,0,1]' WHERE id = 202;
SELECT agrees();
ROLLBACK TO b;
SELECT agrees();
RELEASE a;
SAVEPOINT c;
TRUNCATE t;
SELECT agrees();
INSERT INTO t (id, val) VALUES (1, '[1,1,1]');
SELECT agrees();
ROLLBACK TO c;
SELECT agrees();
DELETE FROM t WHERE id = 201;
COMMIT;
SELECT agrees(), count(*) FROM t;

-- the table and its columns altered
ALTER TABLE t ADD COLUMN more text DEFAULT 'x';
ALTER TABLE t ALTER COLUMN kind TYPE bigint;
SELECT agrees();
ALTER TABLE t RENAME COLUMN val TO v;
ALTER INDEX t_val RENAME TO t_v;
SELECT agrees(attribute => 'v');
ALTER TABLE t DROP COLUMN twice;
ALTER TABLE t ALTER COLUMN v TYPE vector(4) USING (v::real[] || 0::real)::vector;
SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 't_v'::regclass;
SELECT id FROM t ORDER BY v <-> '[12,12,12,0]' LIMIT 1;
-- no operator class of ours for the new type: the index cannot follow
ALTER TABLE t ALTER COLUMN v TYPE halfvec(4);
ALTER TABLE t ALTER COLUMN v TYPE real[];
DROP INDEX t_v;
ALTER TABLE t ALTER COLUMN v TYPE halfvec(4);
CREATE INDEX t_v ON t USING gpuann (v halfvec_l2_ops);
SELECT id FROM t ORDER BY v <-> '[12,12,12,0]' LIMIT 1;
-- a replica identity it is not
ALTER TABLE t REPLICA IDENTITY USING INDEX t_v;
ALTER TABLE t CLUSTER ON t_v;
ALTER TABLE t ADD CONSTRAINT one UNIQUE USING INDEX t_v;
DO $$
BEGIN
	ALTER TABLE t ADD EXCLUDE USING gpuann (v halfvec_l2_ops WITH <->);
EXCEPTION WHEN wrong_object_type THEN
	RAISE NOTICE 'no exclusion constraint';
END
$$;

CREATE TABLE keyless (id integer, val vector(3));
CREATE INDEX ON keyless USING gpuann (val vector_l2_ops);
INSERT INTO keyless VALUES (1, '[1,1,1]');
SET client_min_messages = error;
CREATE PUBLICATION changes FOR TABLE t, keyless;
RESET client_min_messages;
SELECT relname, relreplident FROM pg_class WHERE relname IN ('t', 'keyless') ORDER BY relname;
UPDATE keyless SET val = '[2,2,2]';
UPDATE t SET kind = kind WHERE id = 12;
DROP PUBLICATION changes;
DROP TABLE keyless;

-- moved to another tablespace, alone and with all others
SET allow_in_place_tablespaces = on;
CREATE TABLESPACE gpuann_elsewhere LOCATION '';
ALTER INDEX t_v SET TABLESPACE gpuann_elsewhere;
SELECT id FROM t ORDER BY v <-> '[12,12,12,0]' LIMIT 1;
INSERT INTO t (id, v) VALUES (300, '[30.5,30.5,30.5,0]');
SELECT id FROM t ORDER BY v <-> '[30.5,30.5,30.5,0]' LIMIT 1;
REINDEX (TABLESPACE pg_default) INDEX t_v;
SELECT id FROM t ORDER BY v <-> '[30.5,30.5,30.5,0]' LIMIT 1;
ALTER TABLE t SET TABLESPACE gpuann_elsewhere;
SELECT id FROM t ORDER BY v <-> '[12,12,12,0]' LIMIT 1;
ALTER TABLE t SET TABLESPACE pg_default;
SELECT id FROM t ORDER BY v <-> '[12,12,12,0]' LIMIT 1;
DROP TABLESPACE gpuann_elsewhere;
-- persistent or not
ALTER TABLE t SET UNLOGGED;
INSERT INTO t (id, v) VALUES (301, '[31.5,31.5,31.5,0]');
SELECT id FROM t ORDER BY v <-> '[31.5,31.5,31.5,0]' LIMIT 1;
ALTER TABLE t SET LOGGED;
SELECT id FROM t ORDER BY v <-> '[31.5,31.5,31.5,0]' LIMIT 1;
-- rebuilt in a transaction that is given up; while it is there
BEGIN;
REINDEX INDEX t_v;
INSERT INTO t (id, v) VALUES (302, '[32.4,32.4,32.4,0]');
SELECT id FROM t ORDER BY v <-> '[32.4,32.4,32.4,0]' LIMIT 1;
ROLLBACK;
SELECT id FROM t ORDER BY v <-> '[32.4,32.4,32.4,0]' LIMIT 1;
BEGIN;
DROP INDEX t_v;
ROLLBACK;
SELECT id FROM t ORDER BY v <-> '[32.4,32.4,32.4,0]' LIMIT 1;
SELECT gpuann_check('t_v');
DROP TABLE t;

-- inheritance: each table has its own index, or none
CREATE TABLE parent (id integer, val vector(3));
CREATE TABLE child (extra text) INHERITS (parent);
CREATE TABLE bare () INHERITS (parent);
INSERT INTO parent SELECT g, ARRAY[g, g, g] FROM generate_series(1, 60, 3) g;
INSERT INTO child SELECT g, ARRAY[g, g, g] FROM generate_series(2, 60, 3) g;
INSERT INTO bare SELECT g, ARRAY[g, g, g] FROM generate_series(3, 60, 3) g;
CREATE INDEX parent_val ON parent USING gpuann (val vector_l2_ops);
CREATE INDEX child_val ON child USING gpuann (val vector_l2_ops);
SELECT array_agg(id) FROM (SELECT id FROM parent ORDER BY val <-> '[30.2,30.2,30.2]' LIMIT 4) nearest;
SELECT array_agg(id) FROM (SELECT id FROM ONLY parent ORDER BY val <-> '[30.2,30.2,30.2]' LIMIT 4) nearest;
SELECT agrees('parent'), agrees('child');
DROP TABLE parent CASCADE;

-- partitions come and go; a row moves between them
CREATE TABLE p (id integer, val vector(3)) PARTITION BY RANGE (id);
CREATE INDEX p_val ON p USING gpuann (val vector_l2_ops) WITH (m = 4, ef_search = 50);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (100);
INSERT INTO p SELECT g, ARRAY[g, g, g] FROM generate_series(1, 90) g;
CREATE TABLE p2 (id integer, val vector(3));
INSERT INTO p2 SELECT g, ARRAY[g, g, g] FROM generate_series(100, 150) g;
ALTER TABLE p ATTACH PARTITION p2 FOR VALUES FROM (100) TO (200);
SELECT c.relname, c.reloptions FROM pg_class c WHERE c.relname LIKE 'p%val%' ORDER BY 1;
SELECT agrees('p');
UPDATE p SET id = id + 100 WHERE id = 60;
SELECT agrees('p'), agrees('p1'), agrees('p2');
SELECT id FROM p ORDER BY val <-> '[60,60,60]' LIMIT 1;
CREATE INDEX p2_own ON p2 USING gpuann (val vector_l2_ops);
ALTER TABLE p DETACH PARTITION p1;
SELECT agrees('p'), agrees('p1');
DROP TABLE p, p1;

-- dropped with what it depends on
CREATE TABLE t (id integer, val vector(3));
CREATE INDEX t_val ON t USING gpuann (val vector_l2_ops);
ALTER TABLE t DROP COLUMN val;
SELECT count(*) FROM pg_class WHERE relname = 't_val';
DROP OPERATOR CLASS vector_l2_ops USING gpuann;
DROP TABLE t;
DROP FUNCTION agrees;
