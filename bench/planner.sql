/*
 * planner.sql
 *		The plan that the planner takes, beside the plans that it could have taken.
 *
 * Time is processor time, of the backend and of all threads of the server, if there is one: other work on the machine does not count, and a plan
 * that has another process work does not seem cheap.
 */
CREATE TABLE planned (rows int, wanted int, query text, share float8, chosen text, index_cost float8, index_us float8, other text, other_cost float8, other_us float8);

/* Microseconds of processor time that a thread has had; 0 if it has ended. */
CREATE FUNCTION spent_by(thread text) RETURNS float8 LANGUAGE sql VOLATILE AS
	$$ SELECT coalesce(split_part(pg_read_file(thread || '/schedstat', 0, 100, true), ' ', 1)::float8 / 1000, 0) $$;

/* That of this backend and of the server, if there is one and this session asks it. */
CREATE FUNCTION spent() RETURNS float8 LANGUAGE sql VOLATILE AS $$
	SELECT spent_by('/proc/self') + coalesce((SELECT sum(spent_by(format('/proc/%s/task/%s', pid, thread)))
		FROM gpuann_server_status, pg_ls_dir(format('/proc/%s/task', pid)) thread WHERE current_setting('gpuann.server')::bool), 0) $$;

/* What a plan reads the table by. */
CREATE FUNCTION kind_of_plan(query text, OUT kind text, OUT cost float8) LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	EXECUTE 'EXPLAIN (FORMAT JSON) ' || query INTO plan;
	cost := (plan #>> '{0,Plan,Total Cost}')::float8;
	kind := CASE WHEN plan::text LIKE '%"items_%_v"%' THEN 'index' WHEN plan::text LIKE '%Bitmap Heap%' THEN 'bitmap'
		WHEN plan::text LIKE '%Index Scan%' THEN 'btree' ELSE 'table' END;
END $$;

/* Microseconds of a prepared query: the mean of as many as take so long that the kernel's accounting, a few milliseconds coarse, does not matter. */
CREATE FUNCTION time_of() RETURNS float8 LANGUAGE plpgsql AS $$
DECLARE
	began float8;
	asked int := 0;
	until int := 1;
	took float8 := 0;
BEGIN
	/* The first one plans it. */
	EXECUTE format('EXECUTE asked(%L)', (SELECT v FROM queries WHERE id = 99));
	began := spent();
	WHILE took < 80000 AND until < 5000 LOOP
		WHILE asked < until LOOP
			EXECUTE format('EXECUTE asked(%L)', (SELECT v FROM queries WHERE id = asked % 100));
			asked := asked + 1;
		END LOOP;
		took := spent() - began;
		until := until * 2;
	END LOOP;
	RETURN greatest(took / asked - (SELECT us FROM loop_time), 1);
END $$;

/* Of each kind a share of the rows passes a filter on another table, too. */
CREATE TABLE kinds AS SELECT kind, kind * 7919 % 1000 AS part FROM generate_series(0, 999) kind;
ALTER TABLE kinds ADD PRIMARY KEY (kind);
VACUUM ANALYZE kinds;

/* What asking itself takes: a query that does nothing. */
CREATE TABLE loop_time (us float8);
INSERT INTO loop_time VALUES (0);
SET plan_cache_mode = force_generic_plan;
PREPARE asked(vector) AS SELECT 1;
UPDATE loop_time SET us = time_of();
DEALLOCATE asked;
RESET plan_cache_mode;

/* The query of a cell. */
CREATE FUNCTION query_of(rows int, wanted int, share float8, joined bool) RETURNS text LANGUAGE sql AS $$
	SELECT format('SELECT id FROM items_%s %s WHERE %s ORDER BY v <-> $1 LIMIT %s', rows, CASE WHEN joined THEN 'JOIN kinds USING (kind)' END,
		CASE WHEN share < 1 THEN format('%s < %s', CASE WHEN joined THEN 'part' ELSE 'kind' END, share * 1000) ELSE 'true' END,
		coalesce(wanted::text, 'ALL')) $$;

/* One cell: what is chosen, and what either plan takes. The table has so many rows, and a B-tree on the column that is filtered. */
CREATE FUNCTION compare_plans(rows int, wanted int, share float8, joined bool) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	query text := query_of(rows, wanted, share, joined);
	cell planned;
BEGIN
	SET LOCAL plan_cache_mode = force_generic_plan;
	cell.rows := rows;
	cell.wanted := wanted;
	cell.share := share;
	cell.query := CASE WHEN joined THEN 'join' ELSE 'filter' END;
	EXECUTE 'PREPARE asked(vector) AS ' || query;
	SELECT kind INTO cell.chosen FROM kind_of_plan('EXECUTE asked(NULL)');
	DEALLOCATE asked;

	SET LOCAL enable_indexscan = off;
	EXECUTE 'PREPARE asked(vector) AS ' || query;
	SELECT kind, cost INTO cell.other, cell.other_cost FROM kind_of_plan('EXECUTE asked(NULL)');
	cell.other_us := time_of();
	DEALLOCATE asked;
	SET LOCAL enable_indexscan = on;

	SET LOCAL enable_seqscan = off;
	SET LOCAL enable_bitmapscan = off;
	SET LOCAL enable_sort = off;
	EXECUTE 'PREPARE asked(vector) AS ' || query;
	SELECT cost INTO cell.index_cost FROM kind_of_plan('EXECUTE asked(NULL)') WHERE kind = 'index';
	cell.index_us := time_of();
	DEALLOCATE asked;
	SET LOCAL enable_seqscan = on;
	SET LOCAL enable_bitmapscan = on;
	SET LOCAL enable_sort = on;
	INSERT INTO planned SELECT (cell).*;
END $$;
