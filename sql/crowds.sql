-- Crowds of equal vectors, most of them of rows that never came to be, hide nobody: every other row is found by the graph, whether the crowd
-- was linked in memory or over pages. The rows lie on a grid, where many are as near as others.
SET client_min_messages = warning;
SET enable_seqscan = off;
SET gpuann.iterative_scan = off;
SET gpuann.ef_search = 100;
SET gpuann.pending_limit = 1000000;

CREATE FUNCTION grid(i integer) RETURNS vector AS $$
	SELECT format('[%s,%s,%s,%s]', i % 10, i % 7, i % 13, i % 11)::vector
$$ LANGUAGE sql;

CREATE TABLE crowds (id integer, v vector(4));

-- Rows near the crowd that a search for themselves does not find.
CREATE FUNCTION unfound(crowd vector) RETURNS bigint AS $$
	SELECT count(*) FROM crowds o
	WHERE id <= 3000 AND v <-> crowd < 4 AND v <> crowd
		AND (SELECT n.d FROM (SELECT c.v <-> o.v AS d FROM crowds c ORDER BY c.v <-> o.v LIMIT 1) n) IS DISTINCT FROM 0
$$ LANGUAGE sql;

INSERT INTO crowds SELECT i, grid(i) FROM generate_series(1, 3000) i;
CREATE INDEX crowds_v ON crowds USING gpuann (v vector_l2_ops) WITH (m = 8);
SELECT unfound('[1,1,1,1]'), unfound('[7,4,7,3]');

-- one crowd in memory, the other over pages; where there is a server a worker may come first and link some of them its way
BEGIN;
UPDATE crowds SET v = '[1,1,1,1]' WHERE id <= 1000;
ROLLBACK;
INSERT INTO crowds SELECT i, '[1,1,1,1]' FROM generate_series(3001, 3335) i;
SELECT gpuann_link('crowds_v') = 1335 OR current_setting('gpuann.server') = 'on' AS linked;
SELECT unfound('[1,1,1,1]');

SET maintenance_work_mem = '1MB';
BEGIN;
UPDATE crowds SET v = '[7,4,7,3]' WHERE id <= 1000;
ROLLBACK;
INSERT INTO crowds SELECT i, '[7,4,7,3]' FROM generate_series(4001, 4335) i;
SELECT gpuann_link('crowds_v') = 1335 OR current_setting('gpuann.server') = 'on' AS linked;
SELECT unfound('[7,4,7,3]'), unfound('[1,1,1,1]');
SELECT gpuann_check('crowds_v');

-- the crowd itself is found to its last row
RESET gpuann.iterative_scan;
SELECT count(*), count(DISTINCT id) FROM (SELECT id, v FROM crowds ORDER BY v <-> '[1,1,1,1]' LIMIT 335) c WHERE v = '[1,1,1,1]';

-- built with the crowds in place
SET maintenance_work_mem = '64MB';
REINDEX INDEX crowds_v;
SET gpuann.iterative_scan = off;
SELECT unfound('[1,1,1,1]'), unfound('[7,4,7,3]');
DROP TABLE crowds;
DROP FUNCTION grid, unfound;
