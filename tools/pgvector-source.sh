# pgvector-source.sh
#		Fetch pgvector's source: the source package of a suite that has it new enough, from the mirror that apt already uses; else upstream's tag.
#
# Sourced after common.sh. fetch_pgvector_source writes below the directory $work, which is the caller's, and sets $source_dir.

. "$REPO_DIR/tools/source-package.sh"

UPSTREAM=https://github.com/pgvector/pgvector.git
UPSTREAM_TAG=v0.8.0

# Print the suites that may have it new enough, the nearest first.
suites() {
	local id codename

	id=$(. /etc/os-release && echo "${ID:-}")
	codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
	case $id:$codename in
		debian:bookworm) echo "trixie forky sid" ;;
		debian:trixie) echo "trixie forky sid" ;;
		debian:*) echo "sid" ;;
		ubuntu:*) echo "plucky questing resolute" ;;
	esac
}

# Fetch the source from the first suite that has it.
fetch_from_mirror() {
	local suite archive component

	while read -r archive component; do
		for suite in $(suites); do
			fetch_source_package "$work" pgvector "$suite" "$archive" "$component" "$PGVECTOR_VERSION_NEEDED" && return
		done
	done < <(archives)
	return 1
}

# Fetch upstream's tag.
fetch_from_upstream() {
	command -v git >/dev/null || return 1
	note "pgvector: upstream's tag $UPSTREAM_TAG"
	source_dir=$work/upstream
	git clone -q --depth 1 --branch "$UPSTREAM_TAG" "$UPSTREAM" "$source_dir"
}

# Fetch the source from where it is to be had.
fetch_pgvector_source() {
	fetch_from_mirror || fetch_from_upstream
}
