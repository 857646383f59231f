-- currency.sql
--		Tables and functions of currency. Variables: rows, how many of the loaded ones are there at first, and fresh, how many are not.

-- The rows to come move from items to fresh.
CREATE TABLE fresh (id integer PRIMARY KEY, v vector);
WITH moved AS (DELETE FROM items WHERE id >= :rows RETURNING *) INSERT INTO fresh SELECT * FROM moved;
ALTER TABLE items ADD PRIMARY KEY (id);
VACUUM ANALYZE items;
VACUUM ANALYZE fresh;

-- One row per moment at which a mirror was found behind: how long until it was current.
CREATE TABLE seen (node text, what text, ms float8);

-- One more row, with the vector of a fresh one, of which each comes again and again.
CREATE SEQUENCE next_row START 1000000;
SELECT format($$CREATE FUNCTION insert_one() RETURNS void LANGUAGE sql AS
	'INSERT INTO items SELECT n, v FROM nextval(''next_row'') n JOIN fresh ON id = %s + n %% %s'$$, :rows, :fresh) \gexec

-- List entries that the index has at least, and those that its mirror has.
CREATE FUNCTION list_end() RETURNS bigint AS $$
	SELECT mirror_position + mirror_lag FROM gpuann_stat_indexes() WHERE state = 'ready'
$$ LANGUAGE sql;

CREATE FUNCTION mirror_has() RETURNS bigint AS $$
	SELECT mirror_position FROM gpuann_stat_indexes() WHERE state = 'ready'
$$ LANGUAGE sql;

-- Wait until the mirror has what the list has now; the milliseconds, NULL if it is not there to be waited for.
CREATE FUNCTION await_entries() RETURNS float8 AS $$
DECLARE
	begun timestamptz := clock_timestamp();
	wanted bigint := list_end();
	has bigint;
BEGIN
	LOOP
		has := mirror_has();
		IF wanted IS NULL OR has IS NULL THEN
			RETURN NULL;
		END IF;
		IF has >= wanted THEN
			RETURN extract(epoch FROM clock_timestamp() - begun) * 1000;
		END IF;
		PERFORM pg_sleep(0.0005);
	END LOOP;
END
$$ LANGUAGE plpgsql;

-- On the primary: insert, commit, wait; again and again, for so many seconds.
CREATE PROCEDURE watch_commits(seconds float8) AS $$
DECLARE
	until timestamptz := clock_timestamp() + seconds * interval '1 second';
	took float8;
BEGIN
	WHILE clock_timestamp() < until LOOP
		PERFORM insert_one();
		COMMIT;
		took := await_entries();
		INSERT INTO seen VALUES ('primary', 'commit', took);
		COMMIT;
		PERFORM pg_sleep(random() * 0.02);
	END LOOP;
END
$$ LANGUAGE plpgsql;

-- On a standby: from when a new row is seen to when the mirror has it; told as INFO. Each look is a transaction: an old snapshot would delay replay.
CREATE PROCEDURE watch_replay(seconds float8) AS $$
DECLARE
	until timestamptz := clock_timestamp() + seconds * interval '1 second';
	newest bigint := (SELECT max(id) FROM items);
BEGIN
	WHILE clock_timestamp() < until LOOP
		COMMIT;
		PERFORM pg_sleep(0.001);
		IF (SELECT max(id) FROM items) > newest THEN
			RAISE INFO '%', coalesce(await_entries()::text, '\N');
			COMMIT;
			PERFORM pg_sleep(random() * 0.1);
			newest := (SELECT max(id) FROM items);
		END IF;
	END LOOP;
END
$$ LANGUAGE plpgsql;

-- Anywhere: from when a change of a linker or of VACUUM (edges, deaths) is seen to when the mirror has it; told as INFO.
CREATE PROCEDURE watch_changes(seconds float8) AS $$
DECLARE
	until timestamptz := clock_timestamp() + seconds * interval '1 second';
	begun timestamptz;
	wanted bigint;
BEGIN
	WHILE clock_timestamp() < until LOOP
		COMMIT;
		PERFORM pg_sleep(0.001);
		wanted := (SELECT mirror_changes + mirror_change_lag FROM gpuann_stat_indexes() WHERE mirror_change_lag > 0);
		CONTINUE WHEN wanted IS NULL;
		begun := clock_timestamp();
		WHILE (SELECT mirror_changes FROM gpuann_stat_indexes()) < wanted LOOP
			PERFORM pg_sleep(0.0005);
		END LOOP;
		RAISE INFO '%', extract(epoch FROM clock_timestamp() - begun) * 1000;
	END LOOP;
END
$$ LANGUAGE plpgsql;

CREATE VIEW report AS
SELECT '| ' || concat_ws(' | ', node, what, count(ms), round(percentile_cont(0.5) WITHIN GROUP (ORDER BY ms)::numeric, 1),
		round(percentile_cont(0.9) WITHIN GROUP (ORDER BY ms)::numeric, 1), round(percentile_cont(0.99) WITHIN GROUP (ORDER BY ms)::numeric, 1),
		round(max(ms)::numeric, 1), count(*) - count(ms)) || ' |'
FROM seen GROUP BY node, what ORDER BY node, what;
