-- questions.sql
--		The questions shown, with the five nearest packages each, as lines of at most 100 columns.
--		Variables: method and ef, those of the answers to print.

SELECT line FROM (
	SELECT shown, 0 AS place,
		format(E'\n%s %s  %s of 10 nearest  %s ms',
			lpad(shown::text || '.', 3), rpad(queries.query || ' ', 68, '.'),
			lpad(hits(answers.distances, exact.distances)::text, 2), to_char(answers.ms, 'FM9990.00')) AS line
	FROM queries
		JOIN answers ON answers.query = queries.id AND answers.method = :'method' AND answers.ef = :ef
		JOIN answers exact ON exact.query = queries.id AND exact.method = 'exact'
	WHERE shown IS NOT NULL
	UNION ALL
	SELECT shown, nearest.place,
		format('     %s  %s  %s', to_char(nearest.distance, 'FM0.000'), rpad(left(name, 25), 25),
			CASE WHEN length(summary) > 60 THEN rtrim(left(summary, 57)) || '...' ELSE summary END)
	FROM queries
		JOIN answers ON answers.query = queries.id AND answers.method = :'method' AND answers.ef = :ef
		CROSS JOIN LATERAL unnest(answers.ids, answers.distances) WITH ORDINALITY nearest (id, distance, place)
		JOIN packages ON packages.id = nearest.id
	WHERE shown IS NOT NULL AND nearest.place <= 5
) lines
ORDER BY shown, place;
