# common.sh
#		What the scripts of this directory share: the PostgreSQL to build for, messages, versions.
#
# Sourced, never run. A script sets -eu itself before it sources this file.

REPO_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
PG_VERSIONS_SUPPORTED="18 17 16 15"
PGVECTOR_VERSION_NEEDED=0.8.0
NOTHING_TESTED=77			# exit status of a check whose every test was skipped, as Automake's

# Say what is going on, apart from what a script prints as its result.
note() {
	printf '%s\n' "$*" >&2
}

# Say why a script ends, and end it.
die() {
	printf '%s: %s\n' "$(basename "$0")" "$*" >&2
	exit 1
}

# True if version $1 is at least version $2 (dotted numbers, anything after "-" or "+" ignored).
version_at_least() {
	local newest

	newest=$(printf '%s\n%s\n' "${1%%[-+]*}" "${2%%[-+]*}" | sort -V | tail -n 1)
	[ "$newest" = "${1%%[-+]*}" ]
}

# Print the pg_config to build with: PG_CONFIG if set, else that of the newest supported server installed.
#
# Fails silently if there is none; tools/setup installs one.
find_pg_config() {
	local major

	if [ -n "${PG_CONFIG:-}" ]; then
		command -v "$PG_CONFIG"
		return
	fi
	for major in $PG_VERSIONS_SUPPORTED; do
		if [ -x "/usr/lib/postgresql/$major/bin/postgres" ] &&
			[ -x "/usr/lib/postgresql/$major/bin/pg_config" ]; then
			printf '%s\n' "/usr/lib/postgresql/$major/bin/pg_config"
			return
		fi
	done
	return 1
}

# Print the major version of the PostgreSQL that pg_config $1 belongs to.
pg_major() {
	"$1" --version | sed -E 's/^PostgreSQL ([0-9]+).*/\1/'
}

# Print the version of the pgvector that the PostgreSQL of pg_config $1 has, headers included; nothing if there is none.
pgvector_installed() {
	local control header

	control=$("$1" --sharedir)/extension/vector.control
	header=$("$1" --includedir-server)/extension/vector/vector.h
	if [ -r "$control" ] && [ -r "$header" ]; then
		sed -n -E "s/^default_version *= *'([^']*)'.*/\1/p" "$control"
	fi
}

# Print the directory of the CUDA toolkit: that of NVCC, of the nvcc on the path, or NVIDIA's default.
#
# Fails silently if there is none, and with CUDA=0 or an empty NVCC, which leave CUDA out.
find_toolkit() {
	local nvcc=${NVCC-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}

	[ "${CUDA:-}" != 0 ] && [ -x "$nvcc" ] && dirname "$(dirname "$(readlink -f "$nvcc")")"
}

# Run a command as root: directly, or through sudo.
as_root() {
	if [ "$(id -u)" = 0 ]; then
		"$@"
	elif command -v sudo >/dev/null; then
		sudo -- "$@"
	else
		die "root or sudo is needed to install packages"
	fi
}

# True if $1 itself, not what a link there leads to, is a directory of this user's that nobody else may write to; one look tells all of it.
#
# In a directory such as /var/tmp, where only owners remove and rename, nobody else can put another in its place later.
is_private_directory() {
	local seen

	seen=$(LC_ALL=C stat -c '%F %u %a' -- "$1" 2>/dev/null) && [[ $seen =~ ^directory\ $EUID\ [0-7]*[0145][0145]$ ]]
}

# Make directory $1, for this user alone, or take it as it is if it was made so before; false if it is somebody else's.
private_directory() {
	mkdir -m 700 -- "$1" 2>/dev/null || is_private_directory "$1"
}

# Print the files that belong in a copy of this tree, NUL after each: what git tracks and what it does not ignore.
source_files() {
	local path

	if command -v git >/dev/null && git -c safe.directory='*' -C "$REPO_DIR" rev-parse --git-dir >/dev/null 2>&1; then
		git -c safe.directory='*' -C "$REPO_DIR" ls-files -z --cached --others --exclude-standard
	else
		(cd "$REPO_DIR" && find . -type f ! -name '*.o' ! -name '*.d' ! -name '*.so' ! -name gpuann-server \
			! -path './test/build/*' ! -path './build/*' -printf '%P\0')
	fi | while IFS= read -r -d '' path; do
		# A file deleted but not yet committed is still listed.
		if [ -f "$REPO_DIR/$path" ]; then
			printf '%s\0' "$path"
		fi
	done
}
