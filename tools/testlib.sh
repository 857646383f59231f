# testlib.sh
#		Running tests and counting them: what tools/check and tools/gpu-check share.
#
# Sourced. Needs GPUANN_WORK (a directory to write in), GPUANN_BINDIR (PostgreSQL's programs) and REPO_DIR. One line is
# printed for each test; the log of each run that failed is shown at the end.
#
# The C library fills memory that is freed, or not yet written (MALLOC_PERTURB_), in every cluster and test program; those under a
# sanitizer have its allocator. GPUANN_SANITIZED says that gpuann-server has one: what it reports is a failure of the test that ran.

TEST_LOGS=$GPUANN_WORK/log
TEST_CLUSTERS=$GPUANN_WORK/clusters
TEST_REPORTS=$GPUANN_WORK/reports
TEST_PORT=54329
TEST_SECONDS=$([ -n "${GPUANN_LONG:-}" ] && echo 14400 || echo 1500) # for one program, file of TAP, or run of pg_regress
passed=0
failed=0
skipped=0
failed_logs=()
failed_names=()

# Forget earlier runs.
tests_begin() {
	rm -rf "$TEST_LOGS" "$TEST_REPORTS" "$GPUANN_WORK/output" "$GPUANN_WORK/tap"
	mkdir -p "$TEST_LOGS" "$TEST_REPORTS" "$GPUANN_WORK/output" "$GPUANN_WORK/tap" "$TEST_CLUSTERS"
	export MALLOC_PERTURB_=${MALLOC_PERTURB_:-165}
	tests_stop_clusters
}

# Set the sanitizers' options for what is started from here on: reports go to files whose names begin with $1.
#
# A server that has something to report ends. What other tests need: an allocation that fails returns NULL, as in the C library, and a
# library may be preloaded. Stacks are not kept to find their use after a return: GCC before 14 aligns them to 32 bytes, and vectors of 64 on them
# fault (GCC PR 110027). Without GPUANN_SANITIZED nothing is set: test programs report to their own output.
report_to() {
	[ -n "${GPUANN_SANITIZED:-}" ] || return 0
	mkdir -p "$(dirname "$1")"
	export ASAN_OPTIONS="log_path=$1:halt_on_error=1:exitcode=98:detect_leaks=1:detect_stack_use_after_return=0:strict_string_checks=1:allocator_may_return_null=1:verify_asan_link_order=0"
	export UBSAN_OPTIONS="log_path=$1:halt_on_error=1:exitcode=98:print_stacktrace=1"
}

# Count as one test that sanitizers and assertions have left no report in files whose names begin with $1, for group $2.
count_reports() {
	local file found=

	[ -n "${GPUANN_SANITIZED:-}" ] || return 0
	for file in "$1"*; do
		[ -s "$file" ] || continue
		failed_logs+=("$file")
		found=yes
	done
	if [ -n "$found" ]; then
		count FAILED "$2: sanitizers and assertions have nothing to report"
	else
		count ok "$2: sanitizers and assertions have nothing to report"
	fi
}

# Print the name of group $1 as it is in names of files.
file_name() {
	printf '%s' "$1" | tr -c 'A-Za-z0-9._-' '_'
}

# Count one test: $1 is ok, FAILED or skipped, $2 its name, $3 a remark.
count() {
	case $1 in
		ok) passed=$((passed + 1)) ;;
		skipped) skipped=$((skipped + 1)) ;;
		*)
			failed=$((failed + 1))
			failed_names+=("$2")
			;;
	esac
	printf '%-8s %s%s\n' "$1" "$2" "${3:+ ($3)}"
}

# Count the lines "status<tab>name<tab>remark" on stdin. $1 goes before each name.
count_lines() {
	local status name remark

	while IFS=$'\t' read -r status name remark; do
		count "$status" "$1: $name" "$remark"
	done
}

# Turn TAP on stdin into such lines, as it comes. A plan not kept and a bail-out count as failures.
tap_to_lines() {
	local line seen=0 plan='' status name
	local test='^(not )?ok( +[0-9]+)?( +-)?( +(.*))?$' directive='^(.*[^ ])? *# *([Ss][Kk][Ii][Pp]|[Tt][Oo][Dd][Oo])[^ ]* *(.*)$'

	while IFS= read -r line || [ -n "$line" ]; do
		if [[ $line =~ $test ]]; then
			seen=$((seen + 1))
			status=ok
			[ -z "${BASH_REMATCH[1]}" ] || status=FAILED
			name=${BASH_REMATCH[5]:-test $seen}
			if [[ $name =~ $directive ]]; then
				printf 'skipped\t%s\t%s\n' "${BASH_REMATCH[1]:-test $seen}" "${BASH_REMATCH[3]}"
			else
				printf '%s\t%s\t\n' "$status" "$name"
			fi
		elif [[ $line =~ ^1\.\.0([^0-9].*)?$ ]]; then
			plan=0
			printf 'skipped\teverything\t%s\n' "$(printf '%s' "$line" | sed -E 's/^1\.\.0[ #]*(SKIP|skip)? *//')"
		elif [[ $line =~ ^1\.\.([0-9]+) ]]; then
			plan=${BASH_REMATCH[1]}
		elif [[ $line == 'Bail out!'* ]]; then
			printf 'FAILED\t%s\t\n' "$line"
		fi
	done
	if [ -n "$plan" ] && [ "$plan" != "$seen" ]; then
		printf 'FAILED\tthe plan\t%s tests planned, %s run\n' "$plan" "$seen"
	fi
}

# Turn the progress of pg_regress and of the isolation tester (before version 16 and since) into such lines.
regress_to_lines() {
	local line
	local before='^(test|    ) +([^ ]+) +\.\.\. *(ok)?' since='^(not )?ok +[0-9]+ +[-+] +([^ ]+)'

	while IFS= read -r line || [ -n "$line" ]; do
		if [[ $line =~ $since ]]; then
			printf '%s\t%s\t\n' "$([ -z "${BASH_REMATCH[1]}" ] && echo ok || echo FAILED)" "${BASH_REMATCH[2]}"
		elif [[ $line =~ $before ]]; then
			printf '%s\t%s\t\n' "$([ "${BASH_REMATCH[3]}" = ok ] && echo ok || echo FAILED)" "${BASH_REMATCH[2]}"
		fi
	done
}

# After the lines of group $1 were counted: judge its run by its exit status $2. $3 tests had failed and $4 been counted before, $5 is its log.
#
# A command that fails without a failed test to show for it (a crash, a time-out, a leak found) is one failed test.
judge_run() {
	if [ "$2" != 0 ] && [ "$failed" = "$3" ]; then
		count FAILED "$1: runs to its end" "$([ "$2" = 124 ] && echo "time-out" || echo "exit status $2")"
	elif [ "$((passed + failed + skipped))" = "$4" ]; then
		count FAILED "$1: has tests" "nothing was run"
	fi
	if [ "$failed" != "$3" ]; then
		failed_logs+=("$5")
	fi
}

# Run a command that prints what $1 (a function above) understands; $2 names the group, the rest is the command.
run_tests() {
	local filter=$1 group=$2 log before=$failed counted=$((passed + failed + skipped)) status statusfile
	shift 2

	log=$TEST_LOGS/$(file_name "$group").log
	statusfile=$log.status
	count_lines "$group" < <(
		{
			status=0
			timeout --kill-after=20 "$TEST_SECONDS" "$@" 2>&1 </dev/null || status=$?
			echo "$status" >"$statusfile"
		} | tee "$log" | "$filter"
	)
	status=$(cat "$statusfile" 2>/dev/null || echo 99)
	rm -f "$statusfile"
	judge_run "$group" "$status" "$before" "$counted" "$log"
}

# Run a command as group $1, beside others, and count nothing yet.
run_tests_only() {
	local log status=0 began=$SECONDS
	log=$TEST_LOGS/$(file_name "$1").log
	shift

	timeout --kill-after=20 "$TEST_SECONDS" "$@" >"$log" 2>&1 </dev/null || status=$?
	echo "$status $((SECONDS - began))" >"$log.status"
}

# Count what run_tests_only or run_tap_only has run as group $2, which prints what $1 understands.
count_tests() {
	local log status=99 took=0 before=$failed counted=$((passed + failed + skipped))

	log=$TEST_LOGS/$(file_name "$2").log
	read -r status took <"$log.status" || true
	rm -f "$log.status"
	count_lines "$2" < <("$1" <"$log")
	judge_run "$2" "$status" "$before" "$counted" "$log"
	printf '%6d s %s\n' "$took" "$2"
}

# Run the TAP tests in file $2, which make clusters of their own, as group $1, and count nothing yet. What waits has time even on a slow machine.
#
# Several may run at once: each has a directory of its own, and they share the locks by which PostgreSQL::Test reserves ports.
run_tap_only() {
	local tools name status=0 began=$SECONDS

	# Not by way of pg_config --pgxs: a bundle has no makefiles, nor their directory.
	tools=$("$GPUANN_BINDIR/pg_config" --pkglibdir)/pgxs/src/test
	name=$(file_name "$1")
	rm -rf "$GPUANN_WORK/tap/$name"
	mkdir -p "$GPUANN_WORK/tap/$name"
	report_to "$TEST_REPORTS/$name"
	TESTDIR=$GPUANN_WORK/tap/$name TESTDATADIR=$GPUANN_WORK/tap/$name TESTLOGDIR=$GPUANN_WORK/tap/$name PATH="$GPUANN_BINDIR:$PATH" \
		PG_REGRESS=$tools/regress/pg_regress PG_CONFIG=$GPUANN_BINDIR/pg_config PGPORT=65432 PG_TEST_PORT_DIR=$GPUANN_WORK/ports \
		PG_TEST_TIMEOUT_DEFAULT=600 PGCTLTIMEOUT=300 \
		timeout --kill-after=20 "$TEST_SECONDS" perl -I "$tools/perl" -I "$REPO_DIR/t" "$2" >"$TEST_LOGS/$name.log" 2>&1 </dev/null || status=$?
	# An assertion may end a process that nobody misses.
	if [ -n "${GPUANN_SANITIZED:-}" ]; then
		grep -rh 'TRAP:' "$GPUANN_WORK/tap/$name/tmp_check/log" >"$TEST_REPORTS/$name.assertions" 2>/dev/null || true
	fi
	if [ "$status" != 0 ]; then
		cp -r "$GPUANN_WORK/tap/$name/tmp_check/log" "$TEST_LOGS/$name.clusters" 2>/dev/null || true
	fi
	rm -rf "$GPUANN_WORK/tap/$name"
	echo "$status $((SECONDS - began))" >"$TEST_LOGS/$name.log.status"
}

# Count what run_tap_only has run as group $1.
count_tap() {
	count_tests tap_to_lines "$1"
	count_reports "$TEST_REPORTS/$(file_name "$1")" "$1"
}

# Run the TAP tests in file $2 as group $1.
run_tap_file() {
	run_tap_only "$1" "$2"
	count_tap "$1"
}

# Start the cluster named $1 with settings; its directory is in $cluster_dir. A failure counts as a failed test. Autovacuum is off: on a slow
# machine it would come in the middle of what tests count.
test_cluster_start() {
	local name=$1 log=$TEST_LOGS/cluster_$1.log
	shift

	report_to "$TEST_REPORTS/cluster_$name"
	cluster_dir=$TEST_CLUSTERS/$name
	rm -rf "$cluster_dir"
	if ! GPUANN_BINDIR=$GPUANN_BINDIR "$REPO_DIR/tools/cluster" start "$cluster_dir" "$TEST_PORT" fsync=off autovacuum=off \
		max_connections=100 shared_buffers=64MB log_min_messages=warning "$@" >"$log" 2>&1; then
		count FAILED "$name: the cluster starts"
		failed_logs+=("$log")
		return 1
	fi
}

# Stop the cluster named $1. It must still be there, and stop.
test_cluster_stop() {
	local crash

	cluster_dir=$TEST_CLUSTERS/$1
	crash=$(grep -c -E 'was terminated by signal|TRAP:|PANIC' "$cluster_dir/log" || true)
	if [ "$crash" != 0 ]; then
		cp "$cluster_dir/log" "$TEST_LOGS/server_$1.log"
		failed_logs+=("$TEST_LOGS/server_$1.log")
		count FAILED "$1: no process of the cluster crashes"
	fi
	if ! "$REPO_DIR/tools/cluster" drop "$cluster_dir"; then
		count FAILED "$1: the cluster stops"
	fi
	count_reports "$TEST_REPORTS/cluster_$1" "$1"
}

# Stop what an interrupted run has left.
tests_stop_clusters() {
	local dir

	for dir in "$TEST_CLUSTERS"/*/; do
		[ -d "$dir" ] || continue
		"$REPO_DIR/tools/cluster" drop "$dir" || true
	done
}

# Print the tests of kind $1 (sql, spec): the names of the files.
test_names() {
	case $1 in
		sql) (cd "$REPO_DIR/sql" 2>/dev/null && ls -1 -- *.sql 2>/dev/null | sed 's/\.sql$//') || true ;;
		spec) (cd "$REPO_DIR/specs" 2>/dev/null && ls -1 -- *.spec 2>/dev/null | sed 's/\.spec$//') || true ;;
	esac
}

# Run pg_regress ($1 sql) or the isolation tester ($1 spec) in the running cluster named $2, with PGOPTIONS $3.
#
# REGRESS_BINDIR may name another directory to take psql from, REGRESS_LAUNCHER a command that starts the tests.
run_regress() {
	local kind=$1 name=$2 pgoptions=$3 tool output=$GPUANN_WORK/output/$2-$1 names before=$failed

	names=$(test_names "$kind")
	[ -n "$names" ] || return 0
	tool=$("$GPUANN_BINDIR/pg_config" --pkglibdir)/pgxs/src/test
	case $kind in
		sql) tool=$tool/regress/pg_regress ;;
		spec) tool=$tool/isolation/pg_isolation_regress ;;
	esac
	mkdir -p "$output"
	# shellcheck disable=SC2086 # the names are words
	PGOPTIONS=$pgoptions run_tests regress_to_lines "$kind, $name" "$tool" --bindir="${REGRESS_BINDIR:-$GPUANN_BINDIR}" \
		--inputdir="$REPO_DIR" --outputdir="$output" --host="$TEST_CLUSTERS/$name" --port="$TEST_PORT" --user=postgres \
		--dbname=regression ${REGRESS_LAUNCHER:+--launcher="$REGRESS_LAUNCHER"} --load-extension=vector --load-extension=gpuann $names
	if [ "$failed" != "$before" ] && [ -s "$output/regression.diffs" ]; then
		failed_logs+=("$output/regression.diffs")
	fi
}

# Print the processes, but for this one and its parents, that run a program below GPUANN_WORK or have it on their command line.
processes_left() {
	local pid parents=" $$ $BASHPID " parent=$$

	while [ "${parent:-0}" -gt 1 ]; do
		parent=$(sed -n 's/^PPid:[[:space:]]*//p' "/proc/$parent/status" 2>/dev/null)
		parents="$parents$parent "
	done
	for pid in /proc/[0-9]*; do
		pid=${pid#/proc/}
		[ -O "/proc/$pid" ] && [ "${parents#* $pid }" = "$parents" ] || continue
		case $(readlink "/proc/$pid/exe" 2>/dev/null) in
			"$GPUANN_WORK"/*) printf '%s\n' "$pid" ;;
			*)
				# it may have ended meanwhile
				if { tr '\0' ' ' <"/proc/$pid/cmdline"; } 2>/dev/null | grep -q -F "$GPUANN_WORK/"; then
					printf '%s\n' "$pid"
				fi
				;;
		esac
	done
}

# End what an interrupted run has left: first asked, then (for PostgreSQL: at once, without a checkpoint), then killed.
end_processes() {
	local signal pid

	for signal in TERM QUIT KILL; do
		[ -n "$(processes_left)" ] || return 0
		for pid in $(processes_left); do
			kill -s "$signal" "$pid" 2>/dev/null || true
		done
		sleep 1
	done
}

# Count it as a failure if a process stays: a server not stopped, a child forgotten.
no_process_is_left() {
	local pid left="" second

	for ((second = 0; second < 60; second++)); do
		[ -n "$(processes_left)" ] || break
		sleep 1
	done
	for pid in $(processes_left); do
		left="$left $pid:$(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | cut -c 1-60)"
	done
	if [ -n "$left" ]; then
		count FAILED "no process is left" "$left"
	else
		count ok "no process is left"
	fi
}

# Show what failed and print the sums. The exit status is the caller's.
tests_end() {
	local log name

	for log in "${failed_logs[@]}"; do
		printf '\n---- %s\n' "$log"
		if [ "$(wc -l <"$log")" -gt 120 ]; then
			grep -n -E '^(not ok|Bail out|FATAL|ERROR|PANIC)|FAILED|ERROR: AddressSanitizer|runtime error' "$log" | head -n 40 || true
			printf '...\n'
			tail -n 80 "$log"
		else
			cat "$log"
		fi
	done
	if [ "$failed" != 0 ]; then
		printf '\nfailed:\n'
		for name in "${failed_names[@]}"; do
			printf '  %s\n' "$name"
		done
	fi
	printf '\n%d s\n' "$SECONDS"
	if [ "$skipped" != 0 ]; then
		printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
	else
		printf '%d passed, %d failed\n' "$passed" "$failed"
	fi
	[ "$failed" = 0 ]
}
