-- Queries that are no vectors of the index: NULL, without direction, of other dimensions, not finite; and what is not indexed.
SET enable_seqscan = off;
SET enable_sort = off;

CREATE TABLE t (id serial, val vector(3), half halfvec(3));
INSERT INTO t (val, half) VALUES ('[0,0,0]', '[0,0,0]'), ('[1,2,3]', '[1,2,3]'), ('[1,1,1]', '[1,1,1]'), (NULL, NULL), ('[-1,-2,-4]', '[-1,-2,-4]');
CREATE INDEX t_l2 ON t USING gpuann (val vector_l2_ops);
CREATE INDEX t_cosine ON t USING gpuann (val vector_cosine_ops);
CREATE INDEX t_ip ON t USING gpuann (val vector_ip_ops);
CREATE INDEX t_half ON t USING gpuann (half halfvec_cosine_ops);
INSERT INTO t (val, half) VALUES (NULL, NULL), ('[0,-0,0]', '[0,-0,0]'), ('[3,2,1]', '[3,2,1]');

-- NULL: every row that is indexed, in any order; the planner folds a constant one away, so it comes from a query
SELECT array_agg(id ORDER BY id) FROM (SELECT id FROM t ORDER BY val <-> (SELECT NULL::vector)) every;
SELECT array_agg(id ORDER BY id) FROM (SELECT id FROM t ORDER BY val <=> (SELECT NULL::vector)) every;
SELECT array_agg(id ORDER BY id) FROM (SELECT id FROM t ORDER BY val <#> (SELECT NULL::vector)) every;
SELECT array_agg(id ORDER BY id) FROM (SELECT id FROM t ORDER BY half <=> (SELECT NULL::halfvec)) every;
SELECT count(*) FROM (SELECT id FROM t ORDER BY val <-> (SELECT NULL::vector) LIMIT 2) two;
SET gpuann.exact = on;
SELECT array_agg(id ORDER BY id) FROM (SELECT id FROM t ORDER BY val <-> (SELECT NULL::vector)) every;
RESET gpuann.exact;
PREPARE p(vector) AS SELECT count(*) FROM (SELECT id FROM t ORDER BY val <-> $1) every;
SET plan_cache_mode = force_generic_plan;
EXECUTE p(NULL);
EXECUTE p('[1,1,1]');
RESET plan_cache_mode;

-- without direction: no order by cosine, an order by the others
SELECT array_agg(id ORDER BY id) FROM (SELECT id FROM t ORDER BY val <=> '[0,0,0]') every;
SELECT array_agg(id ORDER BY id) FROM (SELECT id FROM t ORDER BY half <=> '[0,-0,0]') every;
SELECT array_agg(id) FROM (SELECT id FROM t WHERE id IN (2, 3, 5) ORDER BY val <-> '[0,0,0]') nearest;
SELECT array_agg(id ORDER BY id) FROM (SELECT id FROM t ORDER BY val <#> '[0,0,0]') every;

-- of other dimensions
SELECT id FROM t ORDER BY val <-> '[1,2]';
SELECT id FROM t ORDER BY val <=> '[1,2,3,4]';
SELECT id FROM t ORDER BY val <#> '[1]';
SELECT id FROM t ORDER BY half <=> '[1,2]';
EXECUTE p('[1,2]');
INSERT INTO t (val) VALUES ('[1,2]');
INSERT INTO t (half) VALUES ('[1,2,3,4]');
-- even a NULL, a zero one
SELECT id FROM t ORDER BY val <=> '[0,0]';
-- an index on an expression cannot rely on the column
CREATE TABLE bare (id serial, val vector);
CREATE INDEX ON bare USING gpuann ((val::vector(3)) vector_l2_ops);
INSERT INTO bare (val) VALUES ('[1,2,3]');
INSERT INTO bare (val) VALUES ('[1,2]');
SELECT id FROM bare ORDER BY val::vector(3) <-> '[1,2,3]';
SELECT id FROM bare ORDER BY val::vector(3) <-> '[1,2]';
DROP TABLE bare;

-- not finite
SELECT id FROM t ORDER BY val <-> '[NaN,1,1]';
SELECT id FROM t ORDER BY val <-> '[Infinity,1,1]';
SELECT id FROM t ORDER BY val <-> '[1,-Infinity,1]';
SELECT id FROM t ORDER BY half <=> '[70000,1,1]';
SELECT id FROM t ORDER BY val <-> ARRAY['NaN'::real, 1, 1]::vector;
SELECT id FROM t ORDER BY val <-> ARRAY['Infinity'::real, 1, 1]::vector;
INSERT INTO t (val) VALUES ('[NaN,1,1]');
INSERT INTO t (half) VALUES ('[1,Infinity,1]');
-- but as large and as small as they get
INSERT INTO t (val) VALUES ('[3e38,3e38,3e38]'), ('[-3e38,-3e38,-3e38]'), ('[1e-45,1e-45,1e-45]');
SELECT array_agg(id) FROM (SELECT id FROM t ORDER BY val <-> '[3e38,3e38,2e38]' LIMIT 1) nearest;
SELECT id - (SELECT max(id) FROM t) AS from_last FROM t ORDER BY val <-> '[-3e38,-3e38,-2e38]' LIMIT 1;
SELECT count(*) FROM (SELECT id FROM t ORDER BY val <-> '[1e-45,0,0]') every;
SELECT count(*) FROM (SELECT id FROM t ORDER BY val <#> '[3e38,3e38,3e38]') every;

DEALLOCATE p;
DROP TABLE t;
