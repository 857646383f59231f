-- compare_wal.sql
--		WAL of inserting the rows of fresh after place :first, one statement a row, after a checkpoint; then that of linking them.
--		Both methods write generic records for the index; everything else is the table's.

CREATE OR REPLACE PROCEDURE wal_insert(first integer) AS $$
DECLARE
	row_place bigint;
BEGIN
	FOR row_place IN SELECT place FROM fresh WHERE place > first ORDER BY place LOOP
		INSERT INTO items SELECT 1000000000 + place, v FROM fresh WHERE place = row_place;
	END LOOP;
END
$$ LANGUAGE plpgsql;

CREATE OR REPLACE FUNCTION keep_wal(method text, phase text, row_count bigint, first pg_lsn, last pg_lsn) RETURNS void AS $$
	INSERT INTO wal
	SELECT method, phase, row_count, coalesce(sum(record_size) FILTER (WHERE name = 'Generic'), 0),
		coalesce(sum(fpi_size) FILTER (WHERE name = 'Generic'), 0),
		coalesce(sum(record_size) FILTER (WHERE name <> 'Generic'), 0), coalesce(sum(fpi_size) FILTER (WHERE name <> 'Generic'), 0)
	FROM (SELECT "resource_manager/record_type" AS name, record_size, fpi_size FROM pg_get_wal_stats(first, last)) s
$$ LANGUAGE sql;

SET synchronous_commit = on;
SELECT :'method' = 'gpuann' AS is_gpuann, count(*) AS row_count FROM fresh WHERE place > :first \gset
\if :is_gpuann
SET gpuann.pending_limit = 1000000000;
SELECT gpuann_link('items_v') \g /dev/null
\endif
CHECKPOINT;
SELECT pg_current_wal_insert_lsn() AS began \gset
CALL wal_insert(:first);
SELECT pg_current_wal_insert_lsn() AS inserted \gset
SELECT pg_logical_emit_message(true, 'bench', 'so that all before it is flushed') \g /dev/null
SELECT keep_wal(:'method', 'append', :row_count, :'began', :'inserted') \g /dev/null
\if :is_gpuann
CHECKPOINT;
SELECT pg_current_wal_insert_lsn() AS began \gset
SELECT gpuann_link('items_v') \g /dev/null
SELECT pg_current_wal_insert_lsn() AS linked \gset
SELECT pg_logical_emit_message(true, 'bench', 'flushed again') \g /dev/null
SELECT keep_wal(:'method', 'link', :row_count, :'began', :'linked') \g /dev/null
\endif
