# environments.sh
#		Virtual environments of Python with exact versions, and tests that print TAP: what check-clients and check-adapters share.
#
# Sourced, after common.sh. ENVIRONMENTS is the directory that they lie in; each stays there until its requirements.txt changes. Of that file pip
# installs every line and nothing else. iniconfig, which pytest needs, is asked for first, to see whether the package index is at hand.

PIP_OPTIONS=(--quiet --no-input --disable-pip-version-check --no-cache-dir --retries 2 --timeout 30)
failed=0

# Print TAP for one test: $1 is "ok" or "not ok", $2 its name.
tap() {
	printf '%s - %s\n' "$1" "$2"
	[ "$1" = ok ] || failed=1
}

# Print the first Python on the path that is new enough and can make virtual environments.
find_python() {
	local python

	for python in $(type -ap python3 python3.13 python3.12 python3.11); do
		if "$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
			printf '%s\n' "$python"
			return
		fi
	done
	return 1
}

# Ask the package index, by pip $1, for a small one of requirements.txt $2. Returns 1 if it does not come, another code if pip was called wrongly.
ask_index() {
	"$1" download "${PIP_OPTIONS[@]}" --no-deps --dest "$ENVIRONMENTS/probe" "$(grep '^iniconfig==' "$2")"
}

# Make the environment named $1 of requirements.txt $2, by Python $3, unless it is there. Returns 1 if the index cannot be reached, another code
# if the installation failed.
make_environment() {
	local requirements=$2 python=$3 stamp

	stamp=$("$python" --version; cat "$requirements")
	[ "$stamp" != "$(cat "$ENVIRONMENTS/$1/stamp" 2>/dev/null)" ] || return 0
	rm -rf "${ENVIRONMENTS:?}/$1"
	"$python" -m venv "$ENVIRONMENTS/$1" || return 2
	ask_index "$ENVIRONMENTS/$1/bin/pip" "$requirements" || return $?
	"$ENVIRONMENTS/$1/bin/pip" install "${PIP_OPTIONS[@]}" --no-compile --no-deps -r "$requirements" || return 2
	printf '%s\n' "$stamp" >"$ENVIRONMENTS/$1/stamp"
}
