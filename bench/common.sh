# common.sh
#		What the benchmarks share: the machine in words, a cluster of their own, the synthetic data, waiting for an engine.
#
# Sourced, never run.

bench_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tools_dir=$bench_dir/../tools
state_dir=${GPUANN_BENCH_STATE:-/var/tmp/gpuann-bench-$(id -un)}
cluster_dir=$state_dir/cluster
synthetic=$bench_dir/build/synthetic
PORT=5432					# names the socket file, nothing else
# of: synthetic -n 5000 -d 100 -q 20 -k 10 truth.i32
SYNTHETIC_SUM=9dbeec67b5a540e66bddd6958b988b1f1d9e585bab61194817d2933058672417
ENGINE_SECONDS=300			# how long an engine may take to load a mirror
workers=$(($(nproc) - 1))		# of a parallel build
began=$SECONDS

# In an unpacked bundle for GPU hosts (tools/gpu-bundle), its PostgreSQL is the one meant.
bundle_dir=$(cd "$bench_dir/../.." && pwd)
if [ -z "${GPUANN_BINDIR:-}" ] && [ -r "$bundle_dir/bindir" ] && [ -x "$bundle_dir/gpu-check" ]; then
	export GPUANN_BINDIR="$bundle_dir/$(cat "$bundle_dir/bindir")"
	export LD_LIBRARY_PATH="$bundle_dir/lib"
fi

. "$tools_dir/common.sh"

# Say on standard error what happens next, with the seconds so far.
step() {
	printf '%4d s  %s\n' $((SECONDS - began)) "$*" >&2
}

# Print a command as it can be typed.
quoted() {
	local word line=

	for word; do
		[ -n "$word" ] && [ -z "${word//[A-Za-z0-9_.\/=,-]/}" ] || word="'${word//"'"/"'\\''"}'"
		line="$line$word "
	done
	printf '%s\n' "${line% }"
}

# psql: quiet, values only, ending at the first error.
sql() {
	psql -X -q -A -t -v ON_ERROR_STOP=1 "$@"
}

# Find the generator, or compile it, and make sure that it makes the bytes it makes everywhere.
need_synthetic() {
	if command -v cc >/dev/null && [ ! "$synthetic" -nt "$bench_dir/synthetic.c" ] && { [ ! -e "$synthetic" ] || [ -w "$synthetic" ]; }; then
		mkdir -p "$(dirname "$synthetic")"
		cc -std=gnu11 -O2 -ffp-contract=off -pthread -o "$synthetic" "$bench_dir/synthetic.c"
	fi
	[ -x "$synthetic" ] || die "bench/build/synthetic is missing and there is no compiler: make bench-programs"
	[ "$("$synthetic" -n 5000 -d 100 -q 20 -k 10 truth.i32 | sha256sum)" = "$SYNTHETIC_SUM  -" ] ||
		die "bench/build/synthetic was built in a way that changes its numbers"
}

# Megabytes of memory, and of shared memory to be had (parallel builds use the latter).
memory_mb() {
	awk '$1 == "MemTotal:" { print int($2 / 1024) }' /proc/meminfo
}
shared_memory_mb() {
	df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 { print int($4 / 1024) } END { if (NR < 2) print 0 }'
}

# The machine in one line.
machine() {
	local model gpu

	model=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1)
	gpu=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -n 1 | sed 's/, / (driver /; s/$/)/') || true
	printf '%s, %s cores, %s GB of memory; GPU: %s\n' "${model:-$(uname -m)}" "$(nproc)" $(($(memory_mb) / 1024)) "${gpu:-none}"
}

# PostgreSQL, pgvector, gpuann and the commit, in one line.
versions() {
	local commit

	commit=${GPUANN_COMMIT:-$(git -C "$bench_dir" describe --always --dirty --abbrev=12 2>/dev/null || true)}
	sql -F ' ' -c "SELECT 'PostgreSQL', current_setting('server_version')" | sed 's/ (.*//' | tr '\n' ','
	sql -F ' ' -c "SELECT ' ' || CASE extname WHEN 'vector' THEN 'pgvector' ELSE extname END, extversion FROM pg_extension
		WHERE extname IN ('vector', 'gpuann') ORDER BY extname DESC" | paste -sd ,  | tr '\n' ' ' | sed 's/ $//'
	printf '%s\n' "${commit:+ ($commit)}"
}

# Make the state directory and, where gpuann is not installed yet, a private PostgreSQL that has it.
prepare_state() {
	[ "$(id -u)" != 0 ] || die "PostgreSQL does not run as root: run this as an ordinary user"
	remove_state
	mkdir -m 700 "$state_dir"
	touch "$state_dir/made-by-gpuann-bench"
	GPUANN_BINDIR=$("$tools_dir/private-postgres" "$state_dir/postgres")
	export GPUANN_BINDIR
}

# Stop all clusters and remove everything made, also what a killed benchmark left; refuses a directory that is not a benchmark's.
remove_state() {
	local data try

	[ -e "$state_dir" ] || [ -L "$state_dir" ] || return 0
	is_private_directory "$state_dir" || die "$state_dir belongs to somebody else"
	if [ ! -e "$state_dir/made-by-gpuann-bench" ]; then
		# Killed before it could say so, or after everything else had gone.
		rmdir "$state_dir" 2>/dev/null || die "$state_dir was not made by a benchmark"
		return 0
	fi
	for data in "$state_dir"/*/data; do
		[ ! -d "$data" ] || "$tools_dir/cluster" drop "${data%/data}"
	done
	# What says whose it is goes last, for this may be killed too; who still writes there ends as its cluster has.
	for try in 1 2 3 4 5; do
		find "$state_dir" -mindepth 1 -maxdepth 1 ! -name made-by-gpuann-bench -exec rm -rf {} + 2>/dev/null && break
		sleep 1
	done
	rm -rf "$state_dir"
}

# Start the cluster with engine $1 (none: without gpuann's processes) and the settings in the array "settings", making it first if need be; the database
# that is connected to stays the same.
start_cluster() {
	local selected=${PGDATABASE:-postgres}

	if [ "$1" = none ]; then
		"$tools_dir/cluster" start "$cluster_dir" $PORT shared_preload_libraries= "${settings[@]}"
	else
		"$tools_dir/cluster" start "$cluster_dir" $PORT gpuann.engine="$1" "${settings[@]}"
	fi
	eval "$("$tools_dir/cluster" env "$cluster_dir")"
	export PGDATABASE=$selected
	engine=$1
}

# Print the engine that path $1 needs: for pages none, which is a cluster without gpuann's processes.
engine_of() {
	case $1 in
		pages) echo none ;;
		*) echo "$1" ;;
	esac
}

# Print the engine that the running cluster's server uses; nothing where it has none.
running_engine() {
	local name

	name=$(psql -X -A -t -c "SHOW gpuann.engine")
	if [ "$name" = auto ]; then
		name=$(if has_gpu; then echo cuda; fi)
	fi
	printf '%s\n' "$name"
}

# Let the server use engine $1 from now on.
use_engine() {
	if [ "$engine" != "$1" ]; then
		"$tools_dir/cluster" stop "$cluster_dir"
		start_cluster "$1"
	fi
}

# Wait until a scan of table items is answered by path $1; ends the script if it never is.
wait_for_path() {
	local deadline=$((SECONDS + ENGINE_SECONDS)) path=

	while [ $SECONDS -lt $deadline ]; do
		path=$(sql -c "SET enable_seqscan = off" -c "SELECT id FROM items ORDER BY v <-> (SELECT v FROM queries LIMIT 1) LIMIT 1" \
			-c "SELECT last_path()" | tail -n 1)
		[ "$path" != "$1" ] || return 0
		sleep 0.2
	done
	die "no answer from $1 within $ENGINE_SECONDS s; the last one came from ${path:-nowhere} (log: $cluster_dir/log)"
}

# Create the extension, and a function that says what answered this session's last scan: an engine, or pages.
create_extension() {
	PGOPTIONS='-c client_min_messages=warning' sql <<-'END'
		CREATE EXTENSION gpuann CASCADE;
		CREATE FUNCTION last_path() RETURNS text AS $$
			SELECT coalesce((SELECT CASE path WHEN 'server' THEN engine ELSE path END FROM gpuann_last_scan()), 'none')
		$$ LANGUAGE sql;
	END
}

# Make the tables items, queries and truth, and load the first two: $1 rows of $2 dimensions, $3 queries.
#
# Parallel builds may use all workers there are, whatever the size of the table.
load_synthetic() {
	local shape="-n $1 -d $2 -q $3"

	sql <<-END
		CREATE TABLE items (id integer, v vector($2));
		ALTER TABLE items SET (parallel_workers = $workers);
		CREATE TABLE queries (id integer PRIMARY KEY, v vector($2));
		CREATE TABLE truth (id integer PRIMARY KEY, nearest integer[]);
	END
	"$synthetic" $shape base.copy | sql -c "COPY items FROM STDIN (FORMAT binary)"
	"$synthetic" $shape query.copy | sql -c "COPY queries FROM STDIN (FORMAT binary)"
	sql -c "VACUUM ANALYZE items" -c "VACUUM ANALYZE queries"
}

# Load the exact answers, those of $1 rows of $2 dimensions and $3 queries.
load_truth() {
	"$synthetic" -n "$1" -d "$2" -q "$3" truth.copy | sql -c "COPY truth FROM STDIN (FORMAT binary)" -c "VACUUM ANALYZE truth"
}

# Print $1, or the number of cores if that is less.
at_most_cores() {
	echo $(($1 < $(nproc) ? $1 : $(nproc)))
}

# Run pgbench with $1 clients for $2 seconds on script $3 with the session settings $4; print transactions per second, and the
# median and 99th percentile of their times in microseconds.
run_pgbench() {
	rm -f "$state_dir"/times.*
	PGOPTIONS=$4 pgbench -n -M prepared -c "$1" -j "$(at_most_cores "$1")" -T "$2" -f "$3" -l --log-prefix="$state_dir/times" \
		>"$state_dir/pgbench.out" 2>&1 || {
		cat "$state_dir/pgbench.out" >&2
		die "pgbench failed"
	}
	sed -n 's/^tps = \([0-9.]*\) .*/\1/p' "$state_dir/pgbench.out" | tr '\n' ' '
	cat "$state_dir"/times.* | cut -d ' ' -f 3 | sort -n |
		awk '{ t[NR] = $1 } END { print t[int((NR + 1) / 2)], t[int(NR * 0.99 + 0.99)] }'
	rm -f "$state_dir"/times.*
}

# Run pgbench with $1 clients for $2 seconds on script $3 with the session settings $4; print transactions per second.
queries_per_second() {
	local cores

	cores=$(nproc)
	PGOPTIONS="-c enable_seqscan=off $4" pgbench -n -M prepared -c "$1" -j $(($1 < cores ? $1 : cores)) -T "$2" -f "$3" \
		2>"$state_dir/pgbench.err" | sed -n 's/^tps = \([0-9.]*\) .*/\1/p' || {
		cat "$state_dir/pgbench.err" >&2
		die "pgbench failed"
	}
}

# Make the same tables of the demo's packages: 20,000 x 384, halves, and 423 queries; $1 of the rows, moved a little, become fresh.
load_packages() {
	sql <<-END
		CREATE TABLE packages (id integer, name text, section text, kib integer, summary text, embedding halfvec(384));
		CREATE TABLE questions (id integer, shown integer, query text, embedding halfvec(384));
	END
	gzip -dc "$bench_dir/../demo/data/packages.copy.gz" | sql -c "COPY packages FROM STDIN (FORMAT binary)"
	gzip -dc "$bench_dir/../demo/data/queries.copy.gz" | sql -c "COPY questions FROM STDIN (FORMAT binary)"
	sql <<-END
		CREATE TABLE items AS SELECT (row_number() OVER (ORDER BY id))::integer - 1 AS id, embedding AS v FROM packages;
		ALTER TABLE items SET (parallel_workers = $workers);
		CREATE TABLE queries AS SELECT (row_number() OVER (ORDER BY id))::integer - 1 AS id, embedding AS v FROM questions;
		ALTER TABLE queries ADD PRIMARY KEY (id);
		CREATE TABLE fresh AS SELECT row_number() OVER () AS place, a.embedding + b.embedding AS v
			FROM packages a JOIN packages b ON b.id = a.id + 1 LIMIT $1;
		CREATE TABLE truth AS SELECT id, (SELECT array_agg(found) FROM (SELECT items.id AS found FROM items
			ORDER BY items.v <-> queries.v, items.id LIMIT 10) nearest) AS nearest FROM queries;
		VACUUM ANALYZE items;
		VACUUM ANALYZE queries;
	END
}

# True if there are an engine for GPUs and a GPU.
has_gpu() {
	[ -e "$("$GPUANN_BINDIR/pg_config" --pkglibdir)/gpuann_cuda.so" ] && [ -e /dev/nvidiactl ]
}

# The settings of a cluster for $1 rows of $2 dimensions and $3 clients, in the array "settings".
#
# Parallel builds of pgvector keep the graph in dynamic shared memory of maintenance_work_mem: in files where /dev/shm
# is too small for it, as it is in many containers.
size_cluster() {
	local vectors_mb=$(($1 * $2 * 4 / 1048576)) memory buffers work

	memory=$(memory_mb)
	buffers=$((vectors_mb * 4 + $1 / 1024 + 256))
	buffers=$((buffers < memory / 4 ? buffers : memory / 4))
	work=$(((vectors_mb + $1 / 1024) * 3 / 2 + 128))
	work=$((work < memory / 4 ? work : memory / 4))
	settings=(shared_buffers="${buffers}MB" maintenance_work_mem="${work}MB" max_wal_size=16GB checkpoint_timeout=1h
		max_connections=$(($3 + 32)) max_worker_processes=$((workers + 16)) max_parallel_workers="$workers"
		max_parallel_maintenance_workers="$workers" autovacuum=off)
	if [ $((work + 64)) -gt "$(shared_memory_mb)" ]; then
		settings+=(dynamic_shared_memory_type=mmap)
	fi
}
