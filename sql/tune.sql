-- gpuann_tune: the least ef_search or probes that reaches a recall is set, for all sessions, by who may; and nothing else is.
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE TABLE tuned (id int, kind int, v vector(16)) WITH (autovacuum_enabled = off);
SELECT setseed(0.25);
INSERT INTO tuned SELECT i, i % 3, ARRAY(SELECT random() FROM generate_series(1, 16) WHERE i > 0)::vector FROM generate_series(1, 1500) i;
CREATE INDEX "tuned V" ON tuned USING gpuann (v vector_l2_ops) WITH (m = 4, ef_construction = 20, ef_search = 10);
CREATE INDEX tuned_lists ON tuned USING gpuann (v vector_l2_ops) WITH (method = ivfpq, lists = 40, probes = 40);
CREATE FUNCTION option_of(index regclass, name text) RETURNS int LANGUAGE sql AS $$
	SELECT option_value::int FROM pg_class, pg_options_to_table(reloptions) WHERE oid = index AND option_name = name $$;
RESET client_min_messages;

-- told and not set
SELECT option, value_before, recall_before < 0.95 AS low, value > 10 AS more, recall_after >= 0.95 AS enough, time_before > 0 AND time_after > 0 AND exact_time > 0 AS timed,
	samples_asked, server_share BETWEEN 0 AND 1 AS shared, reached, applied, option_of('"tuned V"', 'ef_search') AS is_set
FROM gpuann_tune('"tuned V"', apply => false);
-- set: by the same queries fewer would not do, within a sixteenth
SELECT value AS found, recall_after >= 0.95 AS enough, reached, applied FROM gpuann_tune('"tuned V"', recall => 0.95, k => 10, samples => 150) \gset
SELECT :'enough' AS enough, :'reached' AS reached, :'applied' AS applied, option_of('"tuned V"', 'ef_search') = :found AS is_set, :found > 10 AS more;
SELECT recall > 0.9 AS as_measured FROM gpuann_recall('"tuned V"', 100);
-- less where less does, no less than k
SELECT value_before = :found AS before, value, reached, option_of('"tuned V"', 'ef_search') AS is_set FROM gpuann_tune('"tuned V"', 0.1, k => 7);
SELECT recall_before > 0.99 AS all_lists, value_before, value < 40 AS fewer, recall_after >= 0.8 AS enough, applied FROM gpuann_tune('tuned_lists', 0.8);
SELECT option_of('tuned_lists', 'probes') < 40 AS is_set;

-- what a session has set instead counts neither before nor while it is measured, and stays
SET gpuann.ef_search = 1000;
SET gpuann.probes = 3;
SET gpuann.exact = on;
SELECT value_before, value > 7 AS more, applied FROM gpuann_tune('"tuned V"');
SELECT option, value > 3 AS more, recall_after >= 0.95 AS enough FROM gpuann_tune('tuned_lists');
SELECT current_setting('gpuann.ef_search'), current_setting('gpuann.probes'), current_setting('gpuann.exact');
RESET gpuann.ef_search;
RESET gpuann.probes;
RESET gpuann.exact;

-- undone with its transaction
BEGIN;
SELECT value, applied FROM gpuann_tune('"tuned V"', 0.1);
SELECT option_of('"tuned V"', 'ef_search');
ROLLBACK;
SELECT option_of('"tuned V"', 'ef_search') > 10 AS as_before;

-- it cannot be reached: said, and nothing is set
CREATE INDEX tuned_pq ON tuned USING gpuann (v vector_l2_ops) WITH (method = ivfpq, lists = 5, quantizer = pq, pq_m = 1, code_bits = 4);
SET gpuann.rerank = 1;
SELECT value, recall_after < 1 AS too_low, reached, applied FROM gpuann_tune('tuned_pq', 1);
SELECT option_of('tuned_pq', 'probes');
RESET gpuann.rerank;

-- no rows, no figures
CREATE TABLE empty_t (v vector(3));
CREATE INDEX empty_v ON empty_t USING gpuann (v vector_l2_ops);
SELECT * FROM gpuann_tune('empty_v');

SELECT gpuann_tune('empty_v', 0);
SELECT gpuann_tune('empty_v', 1.1);
SELECT gpuann_tune('empty_v', 'NaN');
SELECT gpuann_tune('empty_v', k => 0);
SELECT gpuann_tune('empty_v', samples => 0);
SELECT gpuann_tune('empty_v', apply => NULL);
SELECT gpuann_tune('tuned');
BEGIN READ ONLY;
SELECT gpuann_tune('empty_v');
ROLLBACK;
BEGIN READ ONLY;
SELECT applied FROM gpuann_tune('tuned_lists', apply => false);
ROLLBACK;

-- who may read what is indexed may measure; the owner may set
CREATE ROLE regress_tune_owner;
CREATE ROLE regress_tune_reader;
ALTER TABLE tuned OWNER TO regress_tune_owner;
SET ROLE regress_tune_reader;
SELECT gpuann_tune('tuned_lists', apply => false);
RESET ROLE;
GRANT SELECT (v) ON tuned TO regress_tune_reader;
SET ROLE regress_tune_reader;
SELECT applied FROM gpuann_tune('tuned_lists', apply => false);
SELECT gpuann_tune('tuned_lists');
RESET ROLE;
ALTER TABLE tuned ENABLE ROW LEVEL SECURITY;
SET ROLE regress_tune_reader;
SELECT gpuann_tune('tuned_lists', apply => false);
SET ROLE regress_tune_owner;
SELECT applied, reached FROM gpuann_tune('tuned_lists', 0.5);
RESET ROLE;

DROP TABLE tuned, empty_t;
DROP FUNCTION option_of;
DROP ROLE regress_tune_owner, regress_tune_reader;
