# cluster.sh
#		The demo's cluster: where it lives, how it starts, how it is asked. On top of tools/cluster.
#
# Sourced by run and clean. The state directory holds the cluster, its socket (no TCP) and, where gpuann is not installed
# yet, a private copy of PostgreSQL; only its owner can enter it.

tools_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/../tools" && pwd)
state_dir=${GPUANN_DEMO_STATE:-/var/tmp/gpuann-demo-$(id -un)}
cluster_dir=$state_dir/cluster
database=demo
PORT=5432					# names the socket file, nothing else

. "$tools_dir/common.sh"

# Say why a script ends, and end it.
die() {
	printf 'demo: %s\n' "$*" >&2
	exit 1
}

# psql on the demo's database, quiet, values only, ending at the first error; the statements come as arguments or on stdin.
sql() {
	psql -X -q -A -t -v ON_ERROR_STOP=1 -d "$database" "$@"
}

# Stop the cluster and remove everything the demo has made; refuses a directory that is not the demo's.
remove_state() {
	[ -e "$state_dir" ] || [ -L "$state_dir" ] || return 0
	is_private_directory "$state_dir" || die "$state_dir belongs to somebody else"
	[ -e "$state_dir/made-by-gpuann-demo" ] || die "$state_dir was not made by this demo"
	[ ! -d "$cluster_dir" ] || "$tools_dir/cluster" drop "$cluster_dir"
	rm -rf "$state_dir"
}

# Make the state directory; find gpuann's PostgreSQL, or make a private one.
prepare_state() {
	[ "$(id -u)" != 0 ] || die "PostgreSQL does not run as root: call \"make demo\", or run this as an ordinary user"
	remove_state
	mkdir -m 700 "$state_dir"
	touch "$state_dir/made-by-gpuann-demo"
	GPUANN_BINDIR=$("$tools_dir/private-postgres" "$state_dir/postgres")
	export GPUANN_BINDIR
}

# Start the cluster with engine $1, making it first if need be.
start_cluster() {
	"$tools_dir/cluster" start "$cluster_dir" $PORT gpuann.engine="$1" shared_buffers=256MB max_wal_size=4GB
	eval "$("$tools_dir/cluster" env "$cluster_dir")"
	engine=$1
}

# Let the server use engine $1 from now on.
use_engine() {
	if [ "$engine" != "$1" ]; then
		"$tools_dir/cluster" stop "$cluster_dir"
		start_cluster "$1"
	fi
}

# True if there are an engine for GPUs and a GPU.
has_gpu() {
	[ -e "$("$GPUANN_BINDIR/pg_config" --pkglibdir)/gpuann_cuda.so" ] && [ -e /dev/nvidiactl ]
}
