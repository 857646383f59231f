-- Thresholds of the distance: which quals end a scan, in order or without, and which must not.
SET gpuann.server = off;
CREATE TABLE t (id integer PRIMARY KEY, kind integer, r float8, val vector(4));
INSERT INTO t SELECT g, g % 50, g % 7, ARRAY[sin(g), cos(g * 7), sin(g * 3 + 1), 2]::vector(4) FROM generate_series(1, 3000) g;
CREATE INDEX t_l2 ON t USING gpuann (val vector_l2_ops);
CREATE INDEX t_ip ON t USING gpuann (val vector_ip_ops);
CREATE INDEX t_cosine ON t USING gpuann (val vector_cosine_ops);
ANALYZE t;
SET enable_seqscan = off;
SET enable_sort = off;

\set query '\'[1,0,1,2]\''
\set other '\'[0,1,0,2]\''

-- What a plan's scan is bounded by, and how many rows it gives with it and without.
CREATE FUNCTION within(condition text, sorted text DEFAULT NULL) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	query text := 'SELECT id FROM t WHERE ' || condition || coalesce(' ORDER BY ' || sorted, '');
	line text;
	bounds text := 'nothing';
	with_index text;
	without text;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
		IF line LIKE '%Within:%' THEN
			-- a parameter's name depends on PostgreSQL's version
			bounds := regexp_replace(trim(line), '\$0|\(InitPlan 1\).col1', 'a parameter');
		END IF;
	END LOOP;
	EXECUTE 'SELECT count(*) || '' '' || coalesce(sum(id), 0) FROM (' || query || ') q' INTO with_index;
	SET LOCAL gpuann.plan_node = off;
	SET LOCAL enable_indexscan = off;
	EXECUTE 'SELECT count(*) || '' '' || coalesce(sum(id), 0) FROM (' || query || ') q' INTO without;
	SET LOCAL gpuann.plan_node = on;
	SET LOCAL enable_indexscan = on;
	RETURN bounds || CASE WHEN with_index = without THEN '' ELSE ' WRONG: ' || with_index || ', not ' || without END;
END
$$;

-- A plan, without what PostgreSQL 18 adds to it.
CREATE FUNCTION plan(query text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	line text;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
		IF line NOT LIKE '%Disabled: true' THEN
			RETURN NEXT line;
		END IF;
	END LOOP;
END
$$;

-- not folded, for it is stable only
CREATE FUNCTION constant(r float8) RETURNS float8 LANGUAGE plpgsql STABLE AS $$ BEGIN RETURN r; END $$;

-- plans
SELECT plan(replace('SELECT id FROM t WHERE val <-> @ < 0.5 ORDER BY val <-> @ LIMIT 10', '@', quote_literal(:query)));
SELECT plan(replace('SELECT id FROM t WHERE val <-> @ < 0.5', '@', quote_literal(:query)));
SELECT plan(replace('SELECT id FROM t WHERE val <-> @ < 0.5 AND kind = 3 ORDER BY id', '@', quote_literal(:query)));

SET enable_indexscan = off;
SET enable_seqscan = on;
SELECT plan(replace('SELECT id FROM t WHERE val <-> @ < 0.5', '@', quote_literal(:query)));
RESET enable_indexscan;
SET enable_seqscan = off;

-- the forms that are recognised, in order and without
SELECT condition, within(condition, 'val <-> ' || quote_literal(:query)) AS in_order, within(condition) AS alone
	FROM (SELECT replace(c, '@', '(val <-> ' || quote_literal(:query) || ')')
		FROM unnest(ARRAY['@ < 0.5', '@ <= 0.5', '0.5 > @', '0.5 >= @', '@ BETWEEN 0.2 AND 0.5', '1 - @ > 0.5', '0.5 <= 1 - @', '-@ > -0.5',
			'@ * -1 >= -0.5', '-1 * @ > -0.5', 'NOT @ > 0.5', '@ < 2 AND @ < 0.5', '@ < 1::integer', '@ < (SELECT 0.5)',
			'@ < constant(0.5)', '@ < NULL::float8', '@ < ''inf''', '@ < ''-inf''', '@ < ''nan''', '@ < -1', '@ <= 0']) c) f (condition);
SELECT condition, within(condition, 'val <=> ' || quote_literal(:query)) AS in_order, within(condition) AS alone
	FROM (SELECT replace(c, '@', '(val <=> ' || quote_literal(:query) || ')')
		FROM unnest(ARRAY['@ < 0.1', '1 - @ > 0.9', '1 - @ >= 0.9', '0.9 < 1 - @', '-@ > -0.1']) c) f (condition);
SELECT condition, within(condition, 'val <#> ' || quote_literal(:query)) AS in_order, within(condition) AS alone
	FROM (SELECT replace(c, '@', '(val <#> ' || quote_literal(:query) || ')')
		FROM unnest(ARRAY['@ < -5', '-@ > 5', '5 < -@', '@ * -1 > 5', '-1 * @ >= 5']) c) f (condition);
-- the arguments the other way round
SELECT within('val <-> ' || quote_literal(:query) || ' < 0.5', quote_literal(:query) || ' <-> val') AS in_order,
	within(quote_literal(:query) || ' <-> val < 0.5') AS alone;

-- other types and rounding: never tighter than the qual, which decides
SELECT condition, within(condition, 'val <-> ' || quote_literal(:query)) AS in_order, within(condition) AS alone
	FROM (SELECT replace(c, '@', '(val <-> ' || quote_literal(:query) || ')')
		FROM unnest(ARRAY['@ < 0.5::real', '0.5::real >= @', '@::real < 0.5', '@::real <= 0.5::real', '1 - @::real > 0.5', '-1 * @::real > -0.5', '@::real * -1 > -0.5', '-(@::real) >= -0.5::real',
			'@::numeric < 0.5', '0.5 >= @::numeric', '(1 - @)::numeric > 0.5', '1 - @::numeric >= 0.5', '@::numeric * -1 > -0.5', '@::real::numeric < 0.5',
			'@::numeric(6,2) <= 0.5', '@::numeric::float8 < 0.5', 'round(@::numeric, 2) <= 0.5', 'round(@::numeric, 1) < 0.5', 'round(@::numeric) < 1',
			'round((1 - @)::numeric, 1) >= 0.5', '1 - round(@::numeric, 1) >= 0.5', 'round(@) < 1', '@::numeric < 1e400', '@::numeric < ''nan''',
			'@::numeric < (SELECT 0.5)', '(1 - @)::numeric > (SELECT 0.5)']) c) f (condition);

-- what bounds nothing
SELECT condition, within(condition, 'val <-> ' || quote_literal(:query)) AS in_order
	FROM (SELECT replace(c, '@', '(val <-> ' || quote_literal(:query) || ')')
		FROM unnest(ARRAY['@ > 0.5', '0.5 < @', '1 - @ < 0.5', '@ * -2 > -1', '2 - @ > 1.5', '-@ < -0.5', '@ < r', '@ < id', '@ < 0.5 OR kind = 3',
			'@ <> 0.5', 'round(@::numeric, kind) < 0.5', 'trunc(@) < 0.5', '@::text < ''0.5''', '1 - (1 - @) < 0.5', '@::numeric > 0.5', '@ < (SELECT avg(u.r) / 6 FROM t u WHERE u.kind = t.kind)', 'val <-> ''[0,1,0,2]'' < 0.5', 'val <=> ''[1,0,1,2]'' < 0.1']) c) f (condition);
SELECT plan(replace('SELECT id FROM t WHERE val <-> @ < random() ORDER BY val <-> @ LIMIT 10', '@', quote_literal(:query)));
SELECT plan(replace('SELECT id FROM t WHERE val <+> @ < 0.5', '@', quote_literal(:query)));

-- a similarity alone does not do for cosine: zero vectors pass, and are not in the index; beside a qual that excludes them it does
INSERT INTO t VALUES (0, 0, 0, '[0,0,0,0]');
SELECT within('val <=> ' || quote_literal(:query) || ' < 0.1'), within('1 - (val <=> ' || quote_literal(:query) || ') > 0.9');
SELECT within(replace('1 - (val <=> @) > 0.9 AND val <=> @ <= 2', '@', quote_literal(:query)));
DELETE FROM t WHERE id = 0;

-- parameters
PREPARE near(vector, float8) AS SELECT count(*), sum(id) FROM t WHERE val <-> $1 < $2;
SET plan_cache_mode = force_generic_plan;
SELECT plan(replace('EXECUTE near(@, 0.5)', '@', quote_literal(:query)));
EXECUTE near(:query, 0.5);
EXECUTE near(:query, NULL);
EXECUTE near(NULL, 0.5);
EXECUTE near(:query, 'nan');
SET gpuann.plan_node = off;
EXECUTE near(:query, 0.5);
RESET gpuann.plan_node;
RESET plan_cache_mode;

-- one vector bound twice, as drivers do: the threshold holds where both are equal
SELECT within('val <-> (SELECT ' || quote_literal(:query) || '::vector) < 0.5', 'val <-> (SELECT ' || quote_literal(:query) || '::vector)') AS equal,
	within('val <-> (SELECT ' || quote_literal(:other) || '::vector) < 0.5', 'val <-> (SELECT ' || quote_literal(:query) || '::vector)') AS other,
	within('(SELECT NULL::vector) <-> val < 0.5', 'val <-> (SELECT ' || quote_literal(:query) || '::vector)') AS no_vector,
	within('val <-> (SELECT ' || quote_literal(:query) || '::vector) < 0.5', 'val <-> (SELECT NULL::vector)') AS no_order;
PREPARE twice(vector, vector, float8) AS SELECT id FROM t WHERE val <-> $1 < $3 ORDER BY val <-> $2 LIMIT 5;
PREPARE score(vector, vector, numeric) AS SELECT id FROM t WHERE round((1 - (val <=> $1))::numeric, 3) > $3 ORDER BY val <=> $2 LIMIT 5;
SET plan_cache_mode = force_generic_plan;
SELECT plan(replace('EXECUTE twice(@, @, 0.5)', '@', quote_literal(:query)));
EXECUTE twice(:query, :query, 0.5);
EXECUTE twice(:query, :other, 0.5);
EXECUTE twice(:query, '[1,0,1,2,3]', 0.5);
EXECUTE twice(:query, NULL, 0.2);
EXECUTE twice(NULL, :query, 0.5);
EXECUTE twice(:query, :query, NULL);
SELECT plan(replace('EXECUTE score(@, @, 0.9)', '@', quote_literal(:query)));
EXECUTE score(:query, :query, 0.9);
EXECUTE score(:query, :query, 1e400);
-- the scan ends behind the threshold only where the vectors are equal
CREATE FUNCTION judged(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	line text;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) ' || query LOOP
		IF line LIKE '%Gpuann:%' THEN
			RETURN CASE WHEN substring(line, 'judged=([0-9]+)')::integer < 100 THEN 'few' ELSE 'many' END;
		END IF;
	END LOOP;
END
$$;
SELECT judged(replace('EXECUTE twice(@, @, 0.05)', '@', quote_literal(:query))) AS equal,
	judged(format('EXECUTE twice(%L, %L, 0.05)', :query, :other)) AS other;
DROP FUNCTION judged;
RESET plan_cache_mode;

-- joins: query, limit, or both are another relation's
CREATE TABLE asked (n integer, q vector(4), r float8);
INSERT INTO asked VALUES (1, :query, 0.5), (2, :other, 1), (3, NULL, 1), (4, :query, NULL), (5, :other, -1);
ANALYZE asked;
SET enable_material = off;
SELECT plan('SELECT n, count(*) FROM asked, t WHERE val <-> q < asked.r GROUP BY n ORDER BY n');
SELECT n, count(*), sum(id) FROM asked, t WHERE val <-> q < asked.r GROUP BY n ORDER BY n;
SELECT plan('SELECT n, count(id) FROM asked LEFT JOIN t ON 1 - (q <-> val) > 1 - asked.r GROUP BY n ORDER BY n');
SELECT n, count(id), sum(id) FROM asked LEFT JOIN t ON 1 - (q <-> val) > 1 - asked.r GROUP BY n ORDER BY n;
SELECT plan('SELECT n, (SELECT count(*) FROM t WHERE val <-> q < asked.r) FROM asked ORDER BY n');
SELECT n, (SELECT count(*) FROM t WHERE val <-> q < asked.r) FROM asked ORDER BY n;
SELECT n, l.* FROM asked, LATERAL (SELECT id FROM t WHERE val <-> q < asked.r ORDER BY val <-> q LIMIT 2) l ORDER BY n, id;
RESET enable_material;

-- row security and barriers: a leaky threshold waits for the quals before it
CREATE VIEW some_rows WITH (security_barrier) AS SELECT * FROM t WHERE kind = 3;
SELECT plan(replace('SELECT id FROM some_rows WHERE val <-> @ < 0.5 ORDER BY val <-> @ LIMIT 10', '@', quote_literal(:query)));
SELECT plan(replace('SELECT id FROM some_rows WHERE val <-> @ < 0.5', '@', quote_literal(:query)));
CREATE VIEW all_rows AS SELECT * FROM t WHERE kind = 3;
SELECT plan(replace('SELECT id FROM all_rows WHERE val <-> @ < 0.5', '@', quote_literal(:query)));

-- indexes of a part, of an expression; partitions
DROP INDEX t_l2;
CREATE INDEX t_part ON t USING gpuann (val vector_l2_ops) WHERE kind < 25;
CREATE INDEX t_half ON t USING gpuann ((val::halfvec(4)) halfvec_l2_ops);
SELECT within('kind < 20 AND val <-> ' || quote_literal(:query) || ' < 0.5') AS implied,
	within('kind < 30 AND val <-> ' || quote_literal(:query) || ' < 0.5') AS not_implied,
	within('val::halfvec(4) <-> ' || quote_literal(:query) || ' < 0.5') AS expression;
CREATE TABLE parts (LIKE t) PARTITION BY RANGE (id);
CREATE TABLE parts1 PARTITION OF parts FOR VALUES FROM (1) TO (1500);
CREATE TABLE parts2 PARTITION OF parts FOR VALUES FROM (1500) TO (3001);
INSERT INTO parts SELECT * FROM t;
CREATE INDEX ON parts USING gpuann (val vector_l2_ops);
ANALYZE parts;
SELECT plan(replace('SELECT id FROM parts WHERE val <-> @ < 0.5', '@', quote_literal(:query)));
SELECT count(*), sum(id) FROM parts WHERE val <-> :query < 0.5;
SELECT count(*), sum(id) FROM t WHERE val <-> :query < 0.5;
SET enable_partitionwise_join = on;
SET enable_material = off;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SELECT plan('SELECT count(*), sum(b.id) FROM parts a JOIN parts b ON a.id = b.id AND a.val <-> b.val < 0.1 WHERE a.id % 100 = 0');
SELECT count(*), sum(b.id) FROM parts a JOIN parts b ON a.id = b.id AND a.val <-> b.val < 0.1 WHERE a.id % 100 = 0;
RESET enable_hashjoin;
RESET enable_mergejoin;
RESET enable_material;
RESET enable_partitionwise_join;
-- rows of a sample are not all that are near
SELECT count(*) FROM t TABLESAMPLE SYSTEM (0) WHERE val <-> :query < 0.5;

-- beside writers in the transaction
BEGIN;
INSERT INTO parts SELECT 1, 0, 0, :query;
UPDATE parts SET kind = 99 WHERE val <-> :query < 0.5;
SELECT count(*), sum(id) FROM parts WHERE kind = 99;
DELETE FROM parts WHERE val <-> :query < 0.5;
SELECT count(*) FROM parts WHERE val <-> :query < 0.5;
ROLLBACK;

DROP TABLE t, parts, asked CASCADE;
DROP FUNCTION within, plan, constant;
