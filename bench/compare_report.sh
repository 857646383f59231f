# compare_report.sh
#		The report of bench/compare, from the tables of compare.sql. Sourced by it, never run.

# Print a table: $1 its title, $2 its head, $3 the statement that makes its rows.
report_table() {
	printf '\n%s\n\n%s\n' "$1" "$2"
	sed 's/[^|]\+/---/g' <<<"$2"
	sql -c "$3"
}

# Print the report.
write_report() {
	printf '# gpuann beside pgvector: %s x %s, %s\n\n' "$rows" "$dims" "$data"
	printf -- '* Command: `%s`\n* Date: %s\n* Machine: %s\n* Versions: %s\n' "$command_line" "$(date -u +%Y-%m-%d)" \
		"$(machine)" "$(versions)"
	printf -- '* Settings: %s\n\n' "$(sql -c "SELECT string_agg(name || ' ' || current_setting(name), ', ')
		FROM unnest('{shared_buffers,maintenance_work_mem,max_parallel_maintenance_workers,dynamic_shared_memory_type}'::text[]) name")"
	printf 'Index options of both: %s. One run; both read into memory before; queries of %s distinct vectors, `pgbench -M prepared`, %s s each; times in microseconds.\n' \
		"$INDEX_OPTIONS" "$queries" "$seconds"
	report_table "## Build" "| | build | ratio | index | ratio | WAL of the build |" \
		"SELECT format('| %s | %s s | %s | %s MB | %s | %s MB |', CASE b.method WHEN 'hnsw' THEN 'pgvector' ELSE b.method END,
			round(b.seconds::numeric, 1), to_char(p.seconds / b.seconds, 'FM990.00') || 'x', round(b.bytes / 1e6),
			to_char(b.bytes::float8 / p.bytes, 'FM990.00') || 'x', round(b.wal / 1e6))
		FROM builds b JOIN builds p ON p.method = 'hnsw'"
	if wanted search; then
		report_search
	fi
	if wanted insert; then
		report_table "## Inserts: one row a transaction, synchronous_commit off, linking counted" \
			"| | sessions | rows | inserting | linking | rows/s | ratio |" \
			"SELECT format('| %s | %s | %s | %s s | %s s | %s | %s |', CASE i.method WHEN 'gpuann' THEN 'gpuann, ' || i.path ELSE i.method END,
				i.sessions, i.row_count, round(i.insert_seconds::numeric, 2), CASE i.method WHEN 'gpuann' THEN round(i.link_seconds::numeric, 2) ELSE 0 END,
				round(i.row_count / (i.insert_seconds + i.link_seconds)),
				to_char(i.row_count / (i.insert_seconds + i.link_seconds) * (p.insert_seconds + p.link_seconds) / p.row_count, 'FM990.00') || 'x')
			FROM inserts i JOIN inserts p ON p.method = 'pgvector' AND p.sessions = i.sessions ORDER BY i.sessions, i.method DESC, i.path"
	fi
	if wanted wal; then
		report_table "## WAL of the index, bytes a row (right after a checkpoint, so that images are as many as can be)" \
			"| | phase | rows | records | full-page images | the table's own records and images |" \
			"SELECT format('| %s | %s | %s | %s | %s | %s |', method, phase, row_count, round(records / row_count),
				round(images / row_count), round((heap + heap_images) / row_count)) FROM wal ORDER BY method DESC, phase"
	fi
	if wanted exact; then
		report_table "## Exact search, one session, median" "| | ms | ratio |" \
			"SELECT format('| %s | %s | %s |', e.method, round(e.ms::numeric, 2), to_char(p.ms / e.ms, 'FM9990.00') || 'x')
			FROM exact_times e JOIN exact_times p ON p.method = 'pgvector'"
	fi
}

# The tables of the search part.
report_search() {
	local count head="| ef | | answered by | recall@10 |"

	report_table "## At equal recall (ef and times interpolated between the two ef around it)" \
		"| recall@10 | clients | | ef | QPS | ratio | p50 | p99 |" "SELECT recall_rows(0.95) UNION ALL SELECT recall_rows(0.99)"
	for count in $clients; do
		head="$head QPS, $count client$([ "$count" = 1 ] || echo s) | p50 | p99 |"
	done
	report_table "## By ef" "$head queries in a batch |" \
		"SELECT format('| %s | %s | %s | %s | %s | %s |', ef, method, path, to_char(max(recall), 'FM0.0000'),
			string_agg(to_char(round(qps), 'FM999,999,999') || ' | ' || round(p50) || ' | ' || round(p99), ' | ' ORDER BY place),
			coalesce(string_agg(to_char(batch, 'FM9,990.0'), ', ' ORDER BY place), '–'))
		FROM results GROUP BY ef, method, path ORDER BY min(place)"
}
