-- measure.sql
--		Functions that ask queries and keep what came back. The statements are static, so each is planned once.

-- Ask the queries from first to last for their ten nearest packages and keep the answers under a method's name.
--
-- The caller has set what the path and ef depend on. Each of the two tables has one index or none, so the method is the
-- table. No time is spent on the way to a client, and none on planning after the first few calls.
CREATE FUNCTION ask(asked_method text, asked_ef integer, first integer, last integer) RETURNS void AS $$
DECLARE
	question record;
	began timestamptz;
	found_ids integer[];
	found_distances float8[];
	answered text;
BEGIN
	FOR question IN SELECT * FROM queries WHERE id BETWEEN first AND last ORDER BY id LOOP
		began := clock_timestamp();
		IF asked_method = 'pgvector' THEN
			SELECT array_agg(id), array_agg(distance) INTO found_ids, found_distances FROM (
				SELECT id, embedding <-> question.embedding AS distance FROM packages_pgvector
				ORDER BY embedding <-> question.embedding LIMIT 10) nearest;
			answered := 'hnsw';
		ELSE
			SELECT array_agg(id), array_agg(distance) INTO found_ids, found_distances FROM (
				SELECT id, embedding <-> question.embedding AS distance FROM packages
				ORDER BY embedding <-> question.embedding LIMIT 10) nearest;
			answered := 'table';
		END IF;
		INSERT INTO answers VALUES (asked_method, asked_ef, question.id, found_ids, found_distances,
			extract(epoch FROM clock_timestamp() - began) * 1000,
			CASE WHEN asked_method IN ('exact', 'pgvector') THEN answered ELSE last_path() END);
	END LOOP;
END
$$ LANGUAGE plpgsql;

-- What answered this session's last scan: the engine's name, or 'pages'.
CREATE FUNCTION last_path() RETURNS text AS $$
	SELECT coalesce((SELECT CASE path WHEN 'server' THEN engine ELSE path END FROM gpuann_last_scan()), 'none')
$$ LANGUAGE sql;

-- What answers just now.
CREATE FUNCTION path_of_a_scan() RETURNS text AS $$
BEGIN
	PERFORM FROM (SELECT FROM packages ORDER BY embedding <-> (SELECT embedding FROM queries WHERE id = 0) LIMIT 1) nearest;
	RETURN last_path();
END
$$ LANGUAGE plpgsql;

-- How many of the ten packages of an answer are as near as the ten nearest. Equal distances are equally right.
CREATE FUNCTION hits(distances float8[], exact float8[]) RETURNS bigint AS $$
	SELECT count(*) FROM unnest(distances) distance WHERE distance <= exact[cardinality(exact)]
$$ LANGUAGE sql IMMUTABLE;

-- What every method reached for natural questions and manual-page sentences: one row per method, ef and kind.
CREATE VIEW reached AS
	SELECT answers.method, answers.ef, answers.query < 123 AS is_natural, count(*) AS queries,
		sum(hits(answers.distances, exact.distances)) / sum(cardinality(exact.distances)) AS recall,
		percentile_cont(0.5) WITHIN GROUP (ORDER BY answers.ms) AS median_ms,
		string_agg(DISTINCT answers.path, ', ') AS path
	FROM answers JOIN answers exact ON exact.query = answers.query AND exact.method = 'exact'
	GROUP BY 1, 2, 3;
