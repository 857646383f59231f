# cluster.sh
#		The demo's cluster: where it lives, how it starts, how it is asked.
#
# Sourced by run and clean. No TCP: the socket lies in the state directory, which only its owner can enter.

state_dir=${GPUANN_DEMO_STATE:-/var/tmp/gpuann-demo-$(id -un)}
data_dir=$state_dir/data
log_file=$state_dir/postgresql.log
bin_dir=$("${PG_CONFIG:-pg_config}" --bindir)
database=demo

# Say why a script ends, and end it.
die() {
	printf 'demo: %s\n' "$*" >&2
	exit 1
}

# psql on the demo's database, quiet, values only, ending at the first error; the statements come as arguments or on stdin.
sql() {
	"$bin_dir/psql" -X -q -A -t -v ON_ERROR_STOP=1 -h "$state_dir" -U demo -d "$database" "$@"
}

# True if the cluster runs.
cluster_runs() {
	[ -d "$data_dir" ] && "$bin_dir/pg_ctl" -D "$data_dir" status >/dev/null 2>&1
}

# Stop the cluster if it runs.
stop_cluster() {
	if cluster_runs; then
		"$bin_dir/pg_ctl" -D "$data_dir" -m fast -w -s stop
	fi
}

# Stop the cluster and remove everything the demo has made; refuses a directory that is not the demo's.
remove_state() {
	[ -e "$state_dir" ] || return 0
	[ -O "$state_dir" ] && [ ! -L "$state_dir" ] || die "$state_dir belongs to somebody else"
	[ -e "$state_dir/gpuann-demo" ] || die "$state_dir is not a demo's"
	stop_cluster
	rm -rf "$state_dir"
}

# Make a new cluster with an empty database and start it.
start_cluster() {
	mkdir -m 700 "$state_dir"
	touch "$state_dir/gpuann-demo"
	"$bin_dir/initdb" -D "$data_dir" -U demo -A trust -E UTF8 --no-locale --no-sync >"$state_dir/initdb.log"
	cat >>"$data_dir/postgresql.conf" <<-END
		listen_addresses = ''
		unix_socket_directories = '$state_dir'
		shared_preload_libraries = 'gpuann'
		shared_buffers = 256MB
		max_wal_size = 4GB
		jit = off
	END
	"$bin_dir/pg_ctl" -D "$data_dir" -l "$log_file" -w -s start || {
		tail -n 20 "$log_file" >&2
		die "the cluster did not start"
	}
	"$bin_dir/createdb" -h "$state_dir" -U demo "$database"
}

# Let the server use engine $1 from now on.
set_engine() {
	sql -c "ALTER SYSTEM SET gpuann.engine = '$1'"
	if [ "$(sql -c "SELECT context FROM pg_settings WHERE name = 'gpuann.engine'")" = postmaster ]; then
		"$bin_dir/pg_ctl" -D "$data_dir" -l "$log_file" -m fast -w -s restart
	else
		sql -c "SELECT pg_reload_conf()" >/dev/null
	fi
}

# True if there is a GPU and an engine for it.
has_gpu() {
	[ -e "$("${PG_CONFIG:-pg_config}" --pkglibdir)/gpuann_cuda.so" ] && [ -e /dev/nvidiactl ]
}
