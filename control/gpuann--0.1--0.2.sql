/* gpuann--0.1--0.2.sql: what version 0.2 changes. A fresh CREATE EXTENSION runs gpuann--0.1.sql first, which stays as it was published. */
-- complain if script is sourced in psql, rather than via ALTER EXTENSION
\echo Use "ALTER EXTENSION gpuann UPDATE TO '0.2'" to load this file. \quit
