-- What amvalidate accepts and refuses, and what PostgreSQL is told that the access method can do.

-- all that the extension has
SELECT opcname, amvalidate(c.oid) FROM pg_opclass c JOIN pg_am a ON a.oid = opcmethod WHERE amname = 'gpuann' AND NOT amvalidate(c.oid);
SELECT count(*) >= 6 AS some FROM pg_opclass c JOIN pg_am a ON a.oid = opcmethod WHERE amname = 'gpuann' AND amvalidate(c.oid);
-- none is a default, so that an index says which distance it is for
SELECT count(*) FROM pg_opclass c JOIN pg_am a ON a.oid = opcmethod WHERE amname = 'gpuann' AND opcdefault;
-- the names are pgvector's, with its operators and distance functions
SELECT g.opcname FROM pg_opclass g JOIN pg_am a ON a.oid = g.opcmethod WHERE amname = 'gpuann' AND NOT EXISTS (
	SELECT FROM pg_opclass h JOIN pg_am b ON b.oid = h.opcmethod JOIN pg_amop p ON p.amopfamily = h.opcfamily JOIN pg_amop q ON q.amopfamily = g.opcfamily
	WHERE b.amname = 'hnsw' AND h.opcname = g.opcname AND h.opcintype = g.opcintype AND p.amopopr = q.amopopr);

-- broken ones, made by hand
CREATE FUNCTION validity(name text) RETURNS boolean LANGUAGE sql AS
	$$ SELECT amvalidate(c.oid) FROM pg_opclass c JOIN pg_am a ON a.oid = opcmethod WHERE amname = 'gpuann' AND opcname = name $$;
CREATE FUNCTION no_distance(vector, vector) RETURNS float4 LANGUAGE sql IMMUTABLE AS $$ SELECT 1::float4 $$;
CREATE FUNCTION mixed_distance(vector, halfvec) RETURNS float8 LANGUAGE sql IMMUTABLE AS $$ SELECT 1::float8 $$;
CREATE OPERATOR <&&> (LEFTARG = vector, RIGHTARG = vector, FUNCTION = no_distance);
CREATE OPERATOR <&&> (LEFTARG = vector, RIGHTARG = halfvec, FUNCTION = mixed_distance);

CREATE OPERATOR CLASS bare_ops FOR TYPE vector USING gpuann AS STORAGE vector;
SELECT validity('bare_ops');
CREATE OPERATOR CLASS no_operator_ops FOR TYPE vector USING gpuann AS
	FUNCTION 1 vector_l2_squared_distance(vector, vector), FUNCTION 2 gpuann_vector_l2_support(internal);
SELECT validity('no_operator_ops');
CREATE OPERATOR CLASS no_function_ops FOR TYPE vector USING gpuann AS
	OPERATOR 1 <-> (vector, vector) FOR ORDER BY float_ops, FUNCTION 1 vector_l2_squared_distance(vector, vector);
SELECT validity('no_function_ops');
CREATE OPERATOR CLASS no_type_ops FOR TYPE vector USING gpuann AS
	OPERATOR 1 <-> (vector, vector) FOR ORDER BY float_ops, FUNCTION 2 gpuann_vector_l2_support(internal);
SELECT validity('no_type_ops');
CREATE OPERATOR CLASS wrong_number_ops FOR TYPE vector USING gpuann AS
	OPERATOR 1 <-> (vector, vector) FOR ORDER BY float_ops, OPERATOR 2 <#> (vector, vector) FOR ORDER BY float_ops,
	FUNCTION 1 vector_l2_squared_distance(vector, vector), FUNCTION 2 gpuann_vector_l2_support(internal);
SELECT validity('wrong_number_ops');
CREATE OPERATOR CLASS for_search_ops FOR TYPE vector USING gpuann AS
	OPERATOR 1 <-> (vector, vector) FOR SEARCH,
	FUNCTION 1 vector_l2_squared_distance(vector, vector), FUNCTION 2 gpuann_vector_l2_support(internal);
CREATE OPERATOR CLASS equal_ops FOR TYPE vector USING gpuann AS
	OPERATOR 1 = (vector, vector),
	FUNCTION 1 vector_l2_squared_distance(vector, vector), FUNCTION 2 gpuann_vector_l2_support(internal);
SELECT validity('equal_ops');
CREATE OPERATOR CLASS single_ops FOR TYPE vector USING gpuann AS
	OPERATOR 1 <&&> (vector, vector) FOR ORDER BY float_ops,
	FUNCTION 1 vector_l2_squared_distance(vector, vector), FUNCTION 2 gpuann_vector_l2_support(internal);
SELECT validity('single_ops');
CREATE OPERATOR CLASS mixed_ops FOR TYPE vector USING gpuann AS
	OPERATOR 1 <&&> (vector, halfvec) FOR ORDER BY float_ops,
	FUNCTION 1 vector_l2_squared_distance(vector, vector), FUNCTION 2 gpuann_vector_l2_support(internal);
SELECT validity('mixed_ops');
CREATE OPERATOR CLASS sorts_integers_ops FOR TYPE vector USING gpuann AS
	OPERATOR 1 <-> (vector, vector) FOR ORDER BY integer_ops,
	FUNCTION 1 vector_l2_squared_distance(vector, vector), FUNCTION 2 gpuann_vector_l2_support(internal);
SELECT validity('sorts_integers_ops');
CREATE OPERATOR CLASS wrong_distance_ops FOR TYPE vector USING gpuann AS
	OPERATOR 1 <-> (vector, vector) FOR ORDER BY float_ops,
	FUNCTION 1 no_distance(vector, vector), FUNCTION 2 gpuann_vector_l2_support(internal);
SELECT validity('wrong_distance_ops');
CREATE OPERATOR CLASS wrong_support_ops FOR TYPE vector USING gpuann AS
	OPERATOR 1 <-> (vector, vector) FOR ORDER BY float_ops,
	FUNCTION 1 vector_l2_squared_distance(vector, vector), FUNCTION 2 (vector, vector) vector_norm(vector);
SELECT validity('wrong_support_ops');
CREATE OPERATOR CLASS other_storage_ops FOR TYPE vector USING gpuann AS
	OPERATOR 1 <-> (vector, vector) FOR ORDER BY float_ops,
	FUNCTION 1 vector_l2_squared_distance(vector, vector), FUNCTION 2 gpuann_vector_l2_support(internal), STORAGE halfvec;
CREATE OPERATOR CLASS third_function_ops FOR TYPE vector USING gpuann AS FUNCTION 3 vector_norm(vector);
-- indexed as what they are not
CREATE OPERATOR CLASS other_metric_ops FOR TYPE vector USING gpuann AS
	OPERATOR 1 <-> (vector, vector) FOR ORDER BY float_ops,
	FUNCTION 1 vector_l2_squared_distance(vector, vector), FUNCTION 2 gpuann_vector_ip_support(internal);
SELECT validity('other_metric_ops');
CREATE OPERATOR CLASS other_type_ops FOR TYPE halfvec USING gpuann AS
	OPERATOR 1 <-> (halfvec, halfvec) FOR ORDER BY float_ops,
	FUNCTION 1 halfvec_l2_squared_distance(halfvec, halfvec), FUNCTION 2 gpuann_vector_l2_support(internal);
SELECT validity('other_type_ops');
-- one that is right
CREATE OPERATOR CLASS own_l2_ops FOR TYPE vector USING gpuann AS
	OPERATOR 1 <-> (vector, vector) FOR ORDER BY float_ops,
	FUNCTION 1 vector_l2_squared_distance(vector, vector), FUNCTION 2 gpuann_vector_l2_support(internal);
SELECT validity('own_l2_ops');
CREATE TABLE t (id integer, val vector(3));
INSERT INTO t SELECT g, ARRAY[g, g, g] FROM generate_series(1, 20) g;
CREATE INDEX ON t USING gpuann (val no_function_ops);
CREATE INDEX t_val ON t USING gpuann (val own_l2_ops);
SET enable_seqscan = off;
SELECT id FROM t ORDER BY val <-> '[7.1,7.1,7.1]' LIMIT 2;

-- what the access method can do
SELECT property, pg_indexam_has_property(oid, property) FROM pg_am,
	unnest('{can_order,can_unique,can_multi_col,can_exclude,can_include}'::text[]) property WHERE amname = 'gpuann';
SELECT property, pg_index_has_property('t_val', property) FROM
	unnest('{clusterable,index_scan,bitmap_scan,backward_scan}'::text[]) property;
SELECT property, pg_index_column_has_property('t_val', 1, property) FROM
	unnest('{asc,desc,nulls_first,nulls_last,orderable,distance_orderable,returnable,search_array,search_nulls}'::text[]) property;

DROP TABLE t;
DROP FUNCTION validity;
SET client_min_messages = warning;
DROP OPERATOR FAMILY bare_ops USING gpuann;
DROP OPERATOR FAMILY no_operator_ops USING gpuann;
DROP OPERATOR FAMILY no_function_ops USING gpuann;
DROP OPERATOR FAMILY no_type_ops USING gpuann;
DROP OPERATOR FAMILY wrong_number_ops USING gpuann;
DROP OPERATOR FAMILY equal_ops USING gpuann;
DROP OPERATOR FAMILY single_ops USING gpuann;
DROP OPERATOR FAMILY mixed_ops USING gpuann;
DROP OPERATOR FAMILY sorts_integers_ops USING gpuann;
DROP OPERATOR FAMILY wrong_distance_ops USING gpuann;
DROP OPERATOR FAMILY wrong_support_ops USING gpuann;
DROP OPERATOR FAMILY other_metric_ops USING gpuann;
DROP OPERATOR FAMILY other_type_ops USING gpuann;
DROP OPERATOR FAMILY own_l2_ops USING gpuann;
DROP OPERATOR <&&> (vector, vector);
DROP OPERATOR <&&> (vector, halfvec);
DROP FUNCTION no_distance, mixed_distance;
