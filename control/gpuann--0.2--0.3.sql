/* gpuann--0.2--0.3.sql: what version 0.3 changes. A fresh CREATE EXTENSION runs the scripts of 0.1 and 0.2 first, which stay as they were published. */
-- complain if script is sourced in psql, rather than via ALTER EXTENSION
\echo Use "ALTER EXTENSION gpuann UPDATE TO '0.3'" to load this file. \quit

-- No engine schedules batches over several units; how even their work would be gpuann_list_placement tells.

DROP FUNCTION gpuann_list_schedule(regclass, integer, text, bigint, float8[], integer, integer, integer);
