-- compare_recall.sql
--		The recall@10 of all queries under the session's settings: rows as near as the tenth exact one, of ten.

SELECT round(avg(least(right_ones, 10)) / 10, 4)
FROM (
	SELECT (
		SELECT count(*) FILTER (WHERE distance <= truth.tenth)
		FROM (SELECT items.v <-> queries.v AS distance FROM items ORDER BY items.v <-> queries.v LIMIT 10) nearest) AS right_ones
	FROM queries JOIN truth USING (id)) counted;
