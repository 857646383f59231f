-- schema.sql
--		The demo's tables. packages is what a user would have; the rest serves the comparison.

CREATE EXTENSION gpuann CASCADE;

CREATE TABLE packages (
	id integer PRIMARY KEY,
	name text NOT NULL,
	section text NOT NULL,
	kib integer NOT NULL,			-- installed size
	summary text NOT NULL,
	embedding halfvec(384) NOT NULL	-- of name, summary and description, unit length
);

CREATE TABLE queries (
	id integer PRIMARY KEY,			-- below 123 natural questions, else sentences of manual pages
	shown integer,					-- place among the questions that the demo prints
	query text NOT NULL,
	embedding halfvec(384) NOT NULL
);

-- What a method answered to one query. Exact answers have the method 'exact' and come from the table, without an index.
CREATE TABLE answers (
	method text NOT NULL,
	ef integer NOT NULL,
	query integer NOT NULL,
	ids integer[] NOT NULL,
	distances float8[] NOT NULL,
	ms float8 NOT NULL,
	path text NOT NULL,				-- which path answered, as the index says
	PRIMARY KEY (method, ef, query)
);

-- Index builds, in the order they happened.
CREATE TABLE builds (
	place integer PRIMARY KEY,
	method text NOT NULL,
	index regclass NOT NULL,
	seconds float8 NOT NULL
);

-- The paths that could be asked, best first.
CREATE TABLE paths (
	place integer PRIMARY KEY,
	method text NOT NULL
);
