# pgvector-source.sh
#		Fetching pgvector's source: the source package of a newer suite on the mirror that apt already uses; else upstream's tag.
#
# Sourced after common.sh. fetch_pgvector_source writes below the directory $work, which is the caller's, and sets $source_dir. The user's apt
# configuration is not changed: the other suite is looked up with sources, lists and cache of its own.

UPSTREAM=https://github.com/pgvector/pgvector.git
UPSTREAM_TAG=v0.8.0

# Print the suites newer than the running one, the nearest first.
newer_suites() {
	local id codename

	id=$(. /etc/os-release && echo "${ID:-}")
	codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
	case $id:$codename in
		debian:bookworm) echo "trixie forky sid" ;;
		debian:trixie) echo "forky sid" ;;
		debian:*) echo "sid" ;;
		ubuntu:*) echo "plucky questing resolute" ;;
	esac
}

# Print the archives that apt fetches this distribution's packages from, one "address component" a line.
archives() {
	local id

	id=$(. /etc/os-release && echo "${ID:-}")
	apt-get indextargets --format '$(ORIGIN)|$(LABEL)|$(REPO_URI)|$(COMPONENT)' 'Created-By: Packages' |
		awk -F'|' -v id="$id" '
			tolower($1) == id && tolower($2) == id && ($4 == "main" || $4 == "universe") { print $3, $4 }' |
		sort -u |
		awk -v id="$id" 'id == "ubuntu" ? $2 == "universe" : $2 == "main"'
}

# apt-get with sources, lists and cache of its own, below $work; its archives keep the user's proxy and keys.
private_apt() {
	apt-get -q \
		-o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=- \
		-o Dir::State::lists="$work/lists" -o Dir::Cache="$work/cache" \
		-o APT::Get::List-Cleanup=0 -o Debug::NoLocking=1 \
		-o DPkg::Post-Invoke= -o APT::Update::Post-Invoke= \
		"$@"
}

# Fetch and unpack upstream's part of the source package of suite $1 from archive $2, component $3, if it is new enough.
#
# apt checks it against the suite's signed index. The packaging is not wanted: it builds for several servers at once.
fetch_source_package() {
	local suite=$1 archive=$2 component=$3 keyring option='' version

	for keyring in /usr/share/keyrings/debian-archive-keyring.gpg /usr/share/keyrings/ubuntu-archive-keyring.gpg; do
		case $keyring in
			*/"$(. /etc/os-release && echo "$ID")"-*) [ ! -r "$keyring" ] || option="[signed-by=$keyring] " ;;
		esac
	done
	echo "deb-src $option$archive $suite $component" >"$work/sources.list"
	rm -rf "$work/lists" "$work/cache" "$work/source"
	mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/source"
	private_apt update >"$work/apt.log" 2>&1 || return 1
	version=$(private_apt --print-uris source pgvector 2>/dev/null |
		sed -n -E "s/.*pgvector_([0-9.]+)[^ ]*\.dsc .*/\1/p" | head -n 1)
	[ -n "$version" ] && version_at_least "$version" "$PGVECTOR_VERSION_NEEDED" || return 1
	note "pgvector $version: source package of $suite"
	(cd "$work/source" && private_apt source --tar-only pgvector && tar -xf pgvector_*.orig.tar.*) >>"$work/apt.log" 2>&1 || {
		cat "$work/apt.log" >&2
		return 1
	}
	source_dir=$(find "$work/source" -mindepth 1 -maxdepth 1 -type d | head -n 1)
	[ -n "$source_dir" ]
}

# Fetch the source from the first newer suite that has it.
fetch_from_mirror() {
	local suite archive component

	while read -r archive component; do
		for suite in $(newer_suites); do
			fetch_source_package "$suite" "$archive" "$component" && return
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

# Fetch the source from where it is to be had; $source_dir is then its directory.
fetch_pgvector_source() {
	fetch_from_mirror || fetch_from_upstream
}
