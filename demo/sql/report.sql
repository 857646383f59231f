-- report.sql
--		The comparison, as lines of at most 100 columns. Variables: ef and manual_ef, those of the two kinds of queries.

WITH methods (place, method, title) AS (
	SELECT place, method, 'gpuann, ' || CASE method WHEN 'cuda' THEN 'GPU' WHEN 'cpu' THEN 'CPU server' ELSE method END
	FROM paths
	UNION ALL VALUES (90, 'pgvector', 'pgvector, HNSW'), (91, 'exact', 'no index (exact)')
)
SELECT line FROM (
	SELECT 0 AS place, format(E'%s%s%s\n%s%s%s%s%s%s', repeat(' ', 20),
		rpad('123 natural questions, ef ' || :ef, 34), format('%s manual-page queries, ef %s',
			(SELECT count(*) FROM queries WHERE id >= 123), :manual_ef),
		repeat(' ', 20), rpad('recall@10', 13), rpad('median ms', 21), rpad('recall@10', 13), rpad('median ms', 14),
		'answered by') AS line
	UNION ALL
	SELECT methods.place, format('%s%s%s%s%s%s', rpad(title, 20),
		rpad(to_char(nat.recall, 'FM0.0000'), 13), rpad(to_char(nat.median_ms, 'FM9990.00'), 21),
		rpad(to_char(man.recall, 'FM0.0000'), 13), rpad(to_char(man.median_ms, 'FM9990.00'), 14),
		CASE WHEN nat.path = man.path THEN nat.path ELSE nat.path || ' / ' || man.path END)
	FROM methods
		JOIN reached nat ON nat.method = methods.method AND nat.is_natural
		JOIN reached man ON man.method = methods.method AND NOT man.is_natural
	WHERE (nat.ef, man.ef) IN ((:ef, :manual_ef), (0, 0))
) lines ORDER BY place;

SELECT line FROM (
	SELECT 0 AS place, E'\n' || repeat(' ', 20) || rpad('build', 13) || 'size' AS line
	UNION ALL
	SELECT place, rpad(method, 20) || rpad(to_char(seconds, 'FM9990.0') || ' s', 13) ||
		to_char(pg_relation_size(index) / 1e6, 'FM9990.0') || ' MB'
	FROM builds
	UNION ALL
	SELECT 99, rpad('the table itself', 20) || repeat(' ', 13) ||
		to_char(pg_relation_size('packages') / 1e6, 'FM9990.0') || ' MB'
) lines ORDER BY place;
