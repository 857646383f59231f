# source-package.sh
#		Fetch upstream's part of a Debian or Ubuntu source package, from the mirror that apt already uses.
#
# Sourced, after common.sh. The machine's apt configuration stays as it is: sources, lists and cache lie in a directory
# given. Any user may do it. The packaging is not wanted: it builds for several servers, documentation and all.

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

# apt-get with sources, lists and cache of its own, below directory $1; its archives keep the user's proxy and keys.
private_apt() {
	local work=$1
	shift

	apt-get -q \
		-o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts=- \
		-o Dir::State::lists="$work/lists" -o Dir::Cache="$work/cache" \
		-o APT::Get::List-Cleanup=0 -o Debug::NoLocking=1 \
		-o DPkg::Post-Invoke= -o APT::Update::Post-Invoke= \
		"$@"
}

# Fetch source package $2 of suite $3 from archive $4, component $5, if it is of version $6 or newer; work below directory $1.
#
# apt checks it against the suite's signed index. Sets source_dir, where it is unpacked.
fetch_source_package() {
	local work=$1 package=$2 suite=$3 archive=$4 component=$5 needed=$6 keyring option='' version

	for keyring in /usr/share/keyrings/debian-archive-keyring.gpg /usr/share/keyrings/ubuntu-archive-keyring.gpg; do
		case $keyring in
			*/"$(. /etc/os-release && echo "$ID")"-*) [ ! -r "$keyring" ] || option="[signed-by=$keyring] " ;;
		esac
	done
	rm -rf "$work/lists" "$work/cache" "$work/source"
	mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/source"
	echo "deb-src $option$archive $suite $component" >"$work/sources.list"
	private_apt "$work" update >"$work/apt.log" 2>&1 || return 1
	version=$(private_apt "$work" --print-uris source "$package" 2>/dev/null |
		sed -n -E "s/.*${package}_([0-9.]+)[^ ]*\.dsc .*/\1/p" | head -n 1)
	[ -n "$version" ] && version_at_least "$version" "$needed" || return 1
	note "$package $version: source package of $suite"
	(cd "$work/source" && private_apt "$work" source --tar-only "$package" && tar -xf "$package"_*.orig.tar.*) \
		>>"$work/apt.log" 2>&1 || return 1
	source_dir=$(find "$work/source" -mindepth 1 -maxdepth 1 -type d | head -n 1)
	[ -n "$source_dir" ]
}
