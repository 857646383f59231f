-- gpuann_check, gpuann_stats, gpuann_recall, gpuann_estimate: what they tell, and who may ask
SET client_min_messages = warning;
CREATE TABLE things (id int, kind int, v vector(12)) WITH (autovacuum_enabled = off);
SELECT setseed(0.25);
INSERT INTO things SELECT i, i % 3, ARRAY(SELECT random() FROM generate_series(1, 12) WHERE i > 0)::vector FROM generate_series(1, 3000) i;
CREATE INDEX things_v ON things USING gpuann (v vector_l2_ops) WITH (m = 8, ef_construction = 40);
INSERT INTO things SELECT i, i % 3, ARRAY(SELECT random() FROM generate_series(1, 12) WHERE i > 0)::vector FROM generate_series(3001, 3050) i;
INSERT INTO things VALUES (0, 0, NULL);

-- slots, list and format; in every figure something adds up
SELECT live_rows, dead_rows, detached_slots, free_slots, linked + pending AS in_graph_or_list,
	pending = end_position - linked_position AS listed, max_degree <= 16 AND min_degree >= 1 AND avg_degree BETWEEN min_degree AND max_degree AS degrees_agree,
	array_length(degrees, 1) AS degree_counts, (SELECT sum(d) FROM unnest(degrees) d) = linked AS rows_counted, reachable,
	format_version > 0 AS versioned, m, ef_construction, dimensions, type, metric, nonce <> '0' AS has_nonce
FROM gpuann_stats('things_v');
SELECT meta_bytes + seed_bytes + list_bytes + node_bytes + vector_bytes + posting_bytes + unused_bytes = pg_relation_size('things_v') AS bytes_add_up,
	seeds > 0 AS has_seeds
FROM gpuann_stats('things_v');
DELETE FROM things WHERE id % 10 = 1;
-- whoever has a snapshot for a moment, as a mirror worker may that looks into the catalogs, holds one VACUUM back, not all
VACUUM things;
VACUUM things;
VACUUM things;
SELECT gpuann_link('things_v') >= 0 AS linked;
SELECT live_rows, dead_rows, detached_slots + free_slots AS gone, pending, reachable FROM gpuann_stats('things_v');
CREATE TABLE none (v halfvec(3));
CREATE INDEX none_v ON none USING gpuann (v halfvec_cosine_ops);
SELECT live_rows, linked, min_degree, avg_degree, reachable, type, metric FROM gpuann_stats('none_v');
SELECT * FROM gpuann_recall('none_v');

-- the check, with the table: partial and expression indexes, rows updated in place and moved
SELECT gpuann_check('things_v'), gpuann_check('things_v', heapallindexed => true), gpuann_check('none_v', true);
CREATE FUNCTION doubled(v vector) RETURNS vector LANGUAGE sql IMMUTABLE AS $$ SELECT v OPERATOR(public.+) v $$;
CREATE INDEX things_some ON things USING gpuann ((public.doubled(v)::halfvec(12)) halfvec_ip_ops) WHERE kind = 1;
CREATE TABLE hot (id int, note int, v vector(3)) WITH (fillfactor = 50);
INSERT INTO hot SELECT i, 0, ARRAY[i, i % 7, 1]::vector FROM generate_series(1, 500) i;
CREATE INDEX hot_v ON hot USING gpuann (v vector_l2_ops);
UPDATE hot SET note = note + 1;
UPDATE hot SET note = note + 1 WHERE id % 2 = 0;
UPDATE hot SET v = '[1,1,1]' WHERE id % 5 = 0;
SELECT gpuann_check('things_some', true), gpuann_check('hot_v', true);
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM hot;
SELECT gpuann_check('hot_v', true);
COMMIT;

-- recall: of the table's own rows
SELECT samples_asked, recall > 0.9 AS good, worst_recall <= recall AS worst, visited > 0 AS visited, mean_time > 0 AS timed, mean_exact_time > 0 AS exact_timed
FROM gpuann_recall('things_v', 50, 10, 200);
SELECT samples_asked, recall > 0.9 AS good FROM gpuann_recall('things_some', samples => 20, k => 5, ef => 200);
SELECT samples_asked, recall FROM gpuann_recall('hot_v', 1000, 3, 100);
SHOW gpuann.exact;
SELECT gpuann_recall('things_v', 0);
SELECT gpuann_recall('things_v', 10, 0);
SELECT gpuann_recall('things_v', 10, 10, 0);
SELECT gpuann_recall('things_v', NULL);
SELECT gpuann_recall('things');
SELECT gpuann_check('things');
SELECT gpuann_stats('pg_class_oid_index');

-- estimates hold for what was built
SELECT name, round(estimated::numeric / built - 1, 2) BETWEEN -0.02 AND 0.02 AS index_bytes
FROM (SELECT name, pg_relation_size(name) AS built, index_bytes AS estimated FROM (VALUES
	('things_v'::regclass, 3050, 12, 'vector'::regtype, '{m=8,ef_construction=40}'::text[], 'l2'),
	('hot_v', 600, 3, 'vector', '{}', 'l2'), ('none_v', 0, 3, 'halfvec', '{}', 'cosine')) AS t (name, rows, dims, type, options, metric),
	gpuann_estimate(rows, dims, type, options, metric)) s;
SELECT index_bytes BETWEEN 7e8 AND 1e9 AS index, mirror_bytes > 5e8 AS mirrored, build_memory > 5e8 AS memory, build_seconds > 0 AS seconds, build_threads > 0 AS threads
FROM gpuann_estimate(1000000, 128, options => '{m=32,ef_construction=100}');
SELECT a.mirror_bytes < b.mirror_bytes AS norms_count FROM gpuann_estimate(100000, 8) a, gpuann_estimate(100000, 8, metric => 'cosine') b;
CREATE INDEX things_included ON things USING gpuann (v vector_l2_ops) INCLUDE (id, kind) WITH (m = 8, ef_construction = 40);
SELECT round(index_bytes::numeric / pg_relation_size('things_included') - 1, 2) BETWEEN -0.02 AND 0.02 AS included_bytes
FROM (SELECT count(*) FROM things WHERE v IS NOT NULL) n, gpuann_estimate(n.count, 12, 'vector', '{m=8,ef_construction=40}', 'l2', '{int,int}');
DROP INDEX things_included;
SELECT gpuann_estimate(1000, 3, 'vector', '{}', 'l2', '{json}');
SELECT gpuann_estimate(1000, 3, 'vector', '{}', 'l2', '{int,NULL}');
SELECT gpuann_estimate(1000, 0);
SELECT gpuann_estimate(-1, 3);
SELECT gpuann_estimate(2000000000, 16000);
SELECT gpuann_estimate(1000, 3, 'text');
SELECT gpuann_estimate(1000, 3, 0::oid::regtype);
SELECT gpuann_estimate(1000, 3, 4294967295::oid::regtype);
SELECT gpuann_estimate(1000, 3, 'vector', '{m=1000}');
SELECT gpuann_estimate(1000, 3, 'vector', '{unknown=1}');
SELECT gpuann_estimate(1000, 3, 'vector', '{m=64}');
SELECT gpuann_estimate(1000, 3, 'vector', '{}', 'hamming');

-- who may: a stranger nothing, a monitor may look, a reader may measure, the owner everything
CREATE ROLE regress_stranger;
CREATE ROLE regress_monitor IN ROLE pg_stat_scan_tables;
CREATE ROLE regress_reader;
CREATE ROLE regress_owner;
GRANT USAGE, CREATE ON SCHEMA public TO regress_owner;
ALTER TABLE things OWNER TO regress_owner;
GRANT SELECT (v) ON things TO regress_reader;
SET ROLE regress_stranger;
SELECT gpuann_check('things_v');
SELECT gpuann_stats('things_v');
SELECT gpuann_link('things_v');
SELECT gpuann_recall('things_v');
SET ROLE regress_monitor;
SELECT gpuann_check('things_v', true);
SELECT live_rows FROM gpuann_stats('things_v');
SELECT gpuann_link('things_v');
SELECT gpuann_recall('things_v');
SET ROLE regress_reader;
SELECT samples_asked FROM gpuann_recall('things_v', 5, 5);
SELECT gpuann_recall('things_some', 5, 5);
SELECT gpuann_check('things_v');
SET ROLE regress_owner;
SELECT gpuann_check('things_v', true);
SELECT gpuann_link('things_v');
SELECT samples_asked FROM gpuann_recall('things_some', 5, 5);
RESET ROLE;

-- row-level security: whom it applies to learns nothing of the rows that it hides, unless he may maintain the index
ALTER TABLE things ENABLE ROW LEVEL SECURITY;
CREATE POLICY few ON things FOR SELECT USING (kind = 0);
GRANT SELECT ON things TO regress_reader;
SET ROLE regress_reader;
SELECT gpuann_recall('things_v', 5, 5);
SELECT gpuann_recall('things_some', 5, 5);
SET row_security = off;
SELECT gpuann_recall('things_v', 5, 5);
RESET row_security;
SET ROLE regress_owner;
SELECT samples_asked FROM gpuann_recall('things_v', 5, 5);
RESET ROLE;
ALTER TABLE things FORCE ROW LEVEL SECURITY;
SET ROLE regress_owner;
SELECT samples_asked FROM gpuann_recall('things_v', 5, 5);
RESET ROLE;
SELECT samples_asked FROM gpuann_recall('things_v', 5, 5);
ALTER ROLE regress_reader BYPASSRLS;
SET ROLE regress_reader;
SELECT samples_asked FROM gpuann_recall('things_v', 5, 5);
RESET ROLE;
ALTER TABLE things NO FORCE ROW LEVEL SECURITY;
ALTER TABLE things DISABLE ROW LEVEL SECURITY;
ALTER ROLE regress_reader NOBYPASSRLS;
SET ROLE regress_reader;
SELECT samples_asked FROM gpuann_recall('things_v', 5, 5);
SHOW gpuann.exact;
RESET ROLE;
DROP POLICY few ON things;

-- what an index expression calls runs as the owner and can do no harm to who checks the index
CREATE TABLE secret (note text);
CREATE TABLE trap (v vector(3));
ALTER TABLE trap OWNER TO regress_owner;
SET ROLE regress_owner;
CREATE FUNCTION harmless(x vector) RETURNS vector LANGUAGE sql IMMUTABLE AS $$ SELECT x $$;
INSERT INTO trap SELECT ARRAY[i, 1, 1]::vector FROM generate_series(1, 20) i;
CREATE INDEX trap_v ON trap USING gpuann ((harmless(v)::vector(3)) vector_l2_ops);
CREATE FUNCTION harmful() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	BEGIN
		INSERT INTO public.secret VALUES ('written by ' || current_user);
	EXCEPTION WHEN OTHERS THEN
		RAISE WARNING 'as %: %', current_user, SQLERRM;
	END;
	BEGIN
		EXECUTE 'RESET ROLE';
	EXCEPTION WHEN OTHERS THEN
		RAISE WARNING 'as %: %', current_user, SQLERRM;
	END;
	BEGIN
		CREATE TEMP TABLE mine (x int);
	EXCEPTION WHEN OTHERS THEN
		RAISE WARNING 'as %: %', current_user, SQLERRM;
	END;
END $$;
CREATE OR REPLACE FUNCTION harmless(x vector) RETURNS vector LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	PERFORM public.harmful();
	RETURN x;
END $$;
RESET ROLE;
DELETE FROM trap WHERE v <> '[1,1,1]';
SELECT gpuann_check('trap_v', true);
SELECT gpuann_link('trap_v'), (SELECT samples_asked FROM gpuann_recall('trap_v', 2, 2)), (SELECT live_rows FROM gpuann_stats('trap_v'));
SELECT count(*) FROM secret;
SELECT current_user = session_user AS myself;

DROP TABLE things, none, hot, trap, secret;
DROP FUNCTION doubled, harmless, harmful;
REVOKE ALL ON SCHEMA public FROM regress_owner;
DROP ROLE regress_stranger, regress_monitor, regress_reader, regress_owner;
