-- missed.sql
--		What the demo promises and did not keep, one line each; none if all is well. Variables: ef, manual_ef.

WITH ours AS (
	SELECT reached.*, CASE WHEN is_natural THEN 'natural questions' ELSE 'manual-page queries' END AS kind
	FROM reached JOIN paths USING (method) WHERE ef = CASE WHEN is_natural THEN :ef ELSE :manual_ef END
)
SELECT format('%s, %s: recall@10 is %s, promised are at least 0.95', method, kind, round(recall, 4))
FROM ours WHERE recall < 0.95
UNION ALL
-- pgvector draws its graph at random: one build finds a neighbour or two in a thousand more than the next.
SELECT format('%s, %s: recall@10 is %s, more than 0.005 below pgvector''s %s at the same ef', ours.method, kind, round(ours.recall, 4),
	round(theirs.recall, 4))
FROM ours JOIN reached theirs ON theirs.method = 'pgvector' AND theirs.ef = ours.ef AND theirs.is_natural = ours.is_natural
WHERE ours.recall < theirs.recall - 0.005
UNION ALL
SELECT format('%s: recall@10 differs by %s between the paths, promised are at most 0.01', kind,
	round(max(recall) - min(recall), 4))
FROM ours GROUP BY kind HAVING max(recall) - min(recall) > 0.01
UNION ALL
SELECT format('%s, %s: answered by %s', method, kind, path)
FROM ours WHERE path <> method;
