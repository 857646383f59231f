-- gpuann_parts_query: the LIMIT in each part, and the rows of the query that is not written part by part
SET client_min_messages = warning;
CREATE TABLE parted (id int, "odd Name" int, v vector(4)) PARTITION BY RANGE (id);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (100);
CREATE TABLE parted_2 PARTITION OF parted FOR VALUES FROM (100) TO (200) PARTITION BY RANGE (id);
-- columns in another order
CREATE TABLE parted_3 (v vector(4), gone int, id int, "odd Name" int);
ALTER TABLE parted_3 DROP COLUMN gone;
ALTER TABLE parted_2 ATTACH PARTITION parted_3 FOR VALUES FROM (100) TO (200);
INSERT INTO parted SELECT i, i % 5, ARRAY[i % 17, i % 29, i, 1]::vector FROM generate_series(0, 199) i;
CREATE INDEX ON parted USING gpuann (v vector_l2_ops);
SELECT gpuann_parts_query('parted', $$v <-> '[1,2,3,4]'$$);
SELECT gpuann_parts_query('parted', $$v <-> $1$$, 3, 'id', 'id > 7 OR "odd Name" = 1');
SELECT gpuann_parts_query('parted', $$v <-> '[5,6,97,1]'$$, 4, 'id', '"odd Name" < 3') \gexec
SELECT id, v <-> '[5,6,97,1]' AS distance FROM parted WHERE "odd Name" < 3 ORDER BY distance LIMIT 4;
SELECT gpuann_parts_query('parted_1', $$v <-> '[5,6,97,1]'$$, 2, 'id') \gexec

-- parts on servers that are left out
CREATE FOREIGN DATA WRAPPER regress_nowhere;
CREATE SERVER regress_lost FOREIGN DATA WRAPPER regress_nowhere;
CREATE FOREIGN TABLE parted_4 PARTITION OF parted FOR VALUES FROM (200) TO (300) SERVER regress_lost;
SELECT q LIKE '%public.parted_4 %' AS asked FROM gpuann_parts_query('parted', 'v <-> v') q;
SELECT q LIKE '%public.parted_4 %' AS asked FROM gpuann_parts_query('parted', 'v <-> v', without => '{regress_lost}') q;
SELECT gpuann_parts_query('parted', 'v <-> v', without => '{regress_unknown}');
SELECT gpuann_parts_query('parted_4', 'v <-> v', without => '{regress_lost}');

-- errors
SELECT gpuann_parts_query('parted', 'v <-> v', 0);
SELECT gpuann_parts_query('parted', NULL);
SELECT gpuann_parts_query('pg_tables', 'v <-> v');
SELECT gpuann_parts_query('parted_1_v_idx', 'v <-> v');
CREATE TABLE empty (v vector(4)) PARTITION BY LIST (v);
SELECT gpuann_parts_query('empty', 'v <-> v');
CREATE TABLE far (id int, distance float8, v vector(4));
SELECT gpuann_parts_query('far', 'v <-> v');
SELECT gpuann_parts_query('far', 'v <-> v', columns => 'id, distance AS apart');
-- policies of the table are not those of its parts
CREATE ROLE regress_parts_reader;
GRANT SELECT ON parted TO regress_parts_reader;
ALTER TABLE parted ENABLE ROW LEVEL SECURITY;
SET ROLE regress_parts_reader;
SELECT gpuann_parts_query('parted', 'v <-> v');
RESET ROLE;
DROP TABLE parted, empty, far;
DROP SERVER regress_lost;
DROP FOREIGN DATA WRAPPER regress_nowhere;
DROP ROLE regress_parts_reader;
