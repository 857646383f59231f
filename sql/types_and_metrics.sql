-- Every type and metric: the order of the index is the order of the operator, rows inserted after the build included.
SET enable_seqscan = off;

CREATE FUNCTION uses_gpuann(query text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	line text;
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || query LOOP
		IF line ~ 'Index: .*gpuann' THEN
			RETURN true;
		END IF;
	END LOOP;
	RETURN false;
END
$$;

-- vector, L2
CREATE TABLE t (id serial PRIMARY KEY, val vector(3));
INSERT INTO t (val) VALUES ('[0,0,0]'), ('[1,2,3]'), ('[1,1,1]'), (NULL);
CREATE INDEX t_gpuann ON t USING gpuann (val vector_l2_ops);
INSERT INTO t (val) VALUES ('[1,2,4]');
SELECT uses_gpuann('SELECT * FROM t ORDER BY val <-> ''[3,3,3]''');
SELECT val FROM t ORDER BY val <-> '[3,3,3]';
SELECT val FROM t ORDER BY val <-> (SELECT NULL::vector) LIMIT 3;
SELECT count(*) FROM (SELECT * FROM t ORDER BY val <-> (SELECT NULL::vector)) t2;
TRUNCATE t;
SELECT val FROM t ORDER BY val <-> '[3,3,3]';
INSERT INTO t (val) VALUES ('[5,5,5]');
SELECT val FROM t ORDER BY val <-> '[3,3,3]';
DROP TABLE t;

-- vector, inner product
CREATE TABLE t (id serial PRIMARY KEY, val vector(3));
INSERT INTO t (val) VALUES ('[0,0,0]'), ('[1,2,3]'), ('[1,1,1]'), (NULL);
CREATE INDEX t_gpuann ON t USING gpuann (val vector_ip_ops);
INSERT INTO t (val) VALUES ('[1,2,4]');
SELECT uses_gpuann('SELECT * FROM t ORDER BY val <#> ''[3,3,3]''');
SELECT val, val <#> '[3,3,3]' AS distance FROM t ORDER BY val <#> '[3,3,3]';
SELECT uses_gpuann('SELECT * FROM t ORDER BY val <-> ''[3,3,3]''');
DROP TABLE t;

-- vector, cosine: the zero vector has no direction and is not indexed
CREATE TABLE t (id serial PRIMARY KEY, val vector(3));
INSERT INTO t (val) VALUES ('[0,0,0]'), ('[1,2,3]'), ('[1,1,1]'), (NULL);
CREATE INDEX t_gpuann ON t USING gpuann (val vector_cosine_ops);
INSERT INTO t (val) VALUES ('[1,2,4]'), ('[0,-0,0]');
SELECT uses_gpuann('SELECT * FROM t ORDER BY val <=> ''[3,3,3]''');
SELECT val FROM t ORDER BY val <=> '[3,3,3]';
SELECT count(*) FROM (SELECT * FROM t ORDER BY val <=> '[0,0,0]') t2;
SELECT count(*) FROM (SELECT * FROM t ORDER BY val <=> (SELECT NULL::vector)) t2;
DROP TABLE t;

-- vector, L1
CREATE TABLE t (id serial PRIMARY KEY, val vector(3));
INSERT INTO t (val) VALUES ('[0,0,0]'), ('[1,2,3]'), ('[1,1,1]'), (NULL);
CREATE INDEX t_gpuann ON t USING gpuann (val vector_l1_ops);
INSERT INTO t (val) VALUES ('[1,2,4]');
SELECT uses_gpuann('SELECT * FROM t ORDER BY val <+> ''[3,3,3]''');
SELECT val, val <+> '[3,3,3]' AS distance FROM t ORDER BY val <+> '[3,3,3]';
SELECT val FROM t ORDER BY val <+> '[0,0,0]' LIMIT 1;
SELECT count(*) FROM (SELECT * FROM t ORDER BY val <+> (SELECT NULL::vector)) t2;
SELECT val FROM t ORDER BY val <+> '[1,2]';
SELECT uses_gpuann('SELECT * FROM t ORDER BY val <-> ''[3,3,3]''');
DROP TABLE t;

-- halfvec, L2
CREATE TABLE t (id serial PRIMARY KEY, val halfvec(3));
INSERT INTO t (val) VALUES ('[0,0,0]'), ('[1,2,3]'), ('[1,1,1]'), (NULL);
CREATE INDEX t_gpuann ON t USING gpuann (val halfvec_l2_ops);
INSERT INTO t (val) VALUES ('[1,2,4]');
SELECT uses_gpuann('SELECT * FROM t ORDER BY val <-> ''[3,3,3]''');
SELECT val FROM t ORDER BY val <-> '[3,3,3]';
DROP TABLE t;

-- halfvec, inner product
CREATE TABLE t (id serial PRIMARY KEY, val halfvec(3));
INSERT INTO t (val) VALUES ('[0,0,0]'), ('[1,2,3]'), ('[1,1,1]'), (NULL);
CREATE INDEX t_gpuann ON t USING gpuann (val halfvec_ip_ops);
INSERT INTO t (val) VALUES ('[1,2,4]');
SELECT uses_gpuann('SELECT * FROM t ORDER BY val <#> ''[3,3,3]''');
SELECT val, val <#> '[3,3,3]' AS distance FROM t ORDER BY val <#> '[3,3,3]';
DROP TABLE t;

-- halfvec, cosine
CREATE TABLE t (id serial PRIMARY KEY, val halfvec(3));
INSERT INTO t (val) VALUES ('[0,0,0]'), ('[1,2,3]'), ('[1,1,1]'), (NULL);
CREATE INDEX t_gpuann ON t USING gpuann (val halfvec_cosine_ops);
INSERT INTO t (val) VALUES ('[1,2,4]'), ('[0,-0,0]');
SELECT uses_gpuann('SELECT * FROM t ORDER BY val <=> ''[3,3,3]''');
SELECT val FROM t ORDER BY val <=> '[3,3,3]';
SELECT count(*) FROM (SELECT * FROM t ORDER BY val <=> '[0,0,0]') t2;
DROP TABLE t;

-- halfvec, L1
CREATE TABLE t (id serial PRIMARY KEY, val halfvec(3));
INSERT INTO t (val) VALUES ('[0,0,0]'), ('[1,2,3]'), ('[1,1,1]'), (NULL);
CREATE INDEX t_gpuann ON t USING gpuann (val halfvec_l1_ops);
INSERT INTO t (val) VALUES ('[1,2,4]');
SELECT uses_gpuann('SELECT * FROM t ORDER BY val <+> ''[3,3,3]''');
SELECT val, val <+> '[3,3,3]' AS distance FROM t ORDER BY val <+> '[3,3,3]';
DROP TABLE t;

-- bit, Hamming
CREATE TABLE t (id serial PRIMARY KEY, val bit(11));
INSERT INTO t (val) VALUES (B'00000000000'), (B'11111111111'), (B'10101010101'), (NULL);
CREATE INDEX t_gpuann ON t USING gpuann (val bit_hamming_ops);
INSERT INTO t (val) VALUES (B'00000000001'), (B'11111000000');
SELECT uses_gpuann('SELECT * FROM t ORDER BY val <~> B''10101010100''');
SELECT val, val <~> B'10101010100' AS distance FROM t ORDER BY val <~> B'10101010100';
SELECT val FROM t ORDER BY val <~> B'00000000000' LIMIT 1;
SELECT count(*) FROM (SELECT * FROM t ORDER BY val <~> (SELECT NULL::bit(11))) t2;
SELECT val FROM t ORDER BY val <~> B'1010';
INSERT INTO t (val) VALUES (B'101');
SELECT uses_gpuann('SELECT * FROM t ORDER BY val <%> B''10101010100''');
DROP TABLE t;

-- bit, Jaccard: nothing in common is 1, two empty sets included
CREATE TABLE t (id serial PRIMARY KEY, val bit(11));
INSERT INTO t (val) VALUES (B'00000000000'), (B'11111111111'), (B'10101010101'), (NULL);
CREATE INDEX t_gpuann ON t USING gpuann (val bit_jaccard_ops);
INSERT INTO t (val) VALUES (B'00000000001'), (B'11111000000');
SELECT uses_gpuann('SELECT * FROM t ORDER BY val <%> B''10101010100''');
SELECT val, val <%> B'10101010100' AS distance FROM t ORDER BY val <%> B'10101010100';
SELECT val, val <%> B'00000000000' AS distance FROM t ORDER BY val <%> B'00000000000';
SELECT count(*) FROM (SELECT * FROM t ORDER BY val <%> (SELECT NULL::bit(11))) t2;
DROP TABLE t;

-- extreme values stay in order
CREATE TABLE t (id integer, val vector(2));
INSERT INTO t VALUES (1, '[3e38,3e38]'), (2, '[-3e38,3e38]'), (3, '[1e-40,0]'), (4, '[0,0]'), (5, '[1,1]');
CREATE INDEX t_gpuann ON t USING gpuann (val vector_l2_ops);
SELECT id FROM t ORDER BY val <-> '[0,0]';
SELECT id FROM t ORDER BY val <-> '[3e38,3e38]';
DROP INDEX t_gpuann;
CREATE INDEX t_gpuann ON t USING gpuann (val vector_l1_ops);
SELECT id FROM t ORDER BY val <+> '[0,0]';
SELECT id FROM t ORDER BY val <+> '[3e38,3e38]';
DROP TABLE t;

-- what is not a number never gets in, nor into a query
CREATE TABLE t (id integer, val vector(2));
CREATE INDEX t_gpuann ON t USING gpuann (val vector_l1_ops);
INSERT INTO t VALUES (1, '[NaN,1]');
INSERT INTO t VALUES (1, '[Infinity,1]');
SELECT id FROM t ORDER BY val <+> '[NaN,1]';
SELECT id FROM t ORDER BY val <+> '[1e39,1]';
DROP TABLE t;

-- every operator class is valid
SELECT opcname, amvalidate(c.oid) FROM pg_opclass c JOIN pg_am a ON a.oid = c.opcmethod
	WHERE amname = 'gpuann' ORDER BY opcname;
-- none is the default
SELECT count(*) FROM pg_opclass c JOIN pg_am a ON a.oid = c.opcmethod WHERE amname = 'gpuann' AND opcdefault;

-- an invalid one is found out
CREATE OPERATOR CLASS half_done_ops FOR TYPE vector USING gpuann AS
	OPERATOR 1 <-> (vector, vector) FOR ORDER BY float_ops;
SELECT amvalidate(oid) FROM pg_opclass WHERE opcname = 'half_done_ops';
CREATE OPERATOR CLASS wrong_ops FOR TYPE halfvec USING gpuann AS
	OPERATOR 1 < (halfvec, halfvec),
	FUNCTION 1 halfvec_l2_squared_distance(halfvec, halfvec),
	FUNCTION 2 gpuann_halfvec_l2_support(internal);
SELECT amvalidate(oid) FROM pg_opclass WHERE opcname = 'wrong_ops';
DROP OPERATOR FAMILY half_done_ops USING gpuann;
DROP OPERATOR FAMILY wrong_ops USING gpuann;

DROP FUNCTION uses_gpuann;
