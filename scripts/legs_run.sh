# shellcheck shell=bash
# The legs: what each is, what it needs, and how it runs. Sourced by scripts/legs.
#
# Invariant: a leg's last line is "N passed, N failed", over tests, or over checks where there are no tests. The short
# form of a leg is for every change, the long one (POLL_TALLY_DEEP) runs every layer.

# shellcheck disable=SC2034
LEGS=(pg17 pg18 minor-early minor-oldest minor-newest assert valgrind clang ubsan static fuzz package coverage)
# shellcheck disable=SC2034
declare -A WHAT=(
	[pg17]='PostgreSQL 17, of the Debian release that ships it'
	[pg18]='PostgreSQL 18, likewise'
	[minor-early]='15.1, the first minor release but one, from npm; with the headers of the oldest package'
	[minor-oldest]='the oldest minor release of 15 that the package sources offer'
	[minor-newest]='the newest one'
	[assert]='15 with assertions'
	[valgrind]='the same server under valgrind'
	[clang]='built by clang, with its warnings as errors'
	[ubsan]='built with the sanitizer of undefined behaviour'
	[static]='cppcheck, clang-tidy, and each header alone'
	[fuzz]='the readers of src/ under sanitizers, and changed binary COPY against the server with assertions'
	[package]='the archive for PGXN, and the Debian package with its test'
	[coverage]='which lines of src/ the tests reach'
)

# Another release of Debian needs a root of its own.
can_run()
{
	[[ $1 != pg1[78] ]] || { ((EUID == 0)) && unshare --mount true 2>/dev/null; }
}

leg_state()
{
	case $1 in
		pg17 | pg18 | minor-*) if is_ready "$1"; then say 'set up'; else say 'not yet'; fi ;;
		assert | valgrind | fuzz) if is_ready assert; then say 'set up'; else say 'not yet'; fi ;;
		*) say '-' ;;
	esac
}

setup_leg()
{
	case $1 in
		pg17 | pg18) is_ready "$1" || setup_major "${1#pg}" ;;
		minor-early) is_ready "$1" || setup_early 15.1.0-beta.6 ;;
		minor-*) is_ready "$1" || setup_minor "${1#minor-}" ;;
		assert | valgrind | fuzz) is_ready assert || setup_assert ;;
		clang | coverage | ubsan) need_packages build python test ;;
		static | package) need_packages build python ;;
	esac
}

# The layers that tell most in least time, or all that need a server.
server_layers()
{
	if [[ -n ${POLL_TALLY_DEEP:-} ]]; then
		say regress isolation pgtap tap docs
	else
		say regress isolation pgtap
	fi
}

# run_tests NAME=VALUE... -- ARGUMENT...: scripts/test with these in its environment. Whatever is due to be long is so by
# the layers, not by each test.
run_tests()
{
	local settings=()
	while [[ $1 != -- ]]; do
		settings+=("$1")
		shift
	done
	shift
	run_child env -u POLL_TALLY_DEEP "${settings[@]}" "$ROOT/scripts/test" "$@"
}

# shellcheck disable=SC2046
leg_pg17() { run_child in_major 17 $(server_layers); }
# shellcheck disable=SC2046
leg_pg18() { run_child in_major 18 $(server_layers); }

# shellcheck disable=SC2046
leg_minor_oldest() { run_tests "PG_CONFIG=$(minor_config oldest)" -- $(server_layers); }
# shellcheck disable=SC2046
leg_minor_early()
{
	exec {EARLY_LOCK}>>"$CACHE/minor-early.lock"
	flock "$EARLY_LOCK"
	run_tests "PG_CONFIG=$(minor_config early)" "COPT=-include $ROOT/test/lib/early_minor.h" -- $(server_layers)
}
# shellcheck disable=SC2046
leg_minor_newest() { run_tests "PG_CONFIG=$(minor_config newest)" -- $(server_layers); }

# A server from source has the extension installed for good: one run at a time.
leg_assert()
{
	exec {ASSERT_LOCK}>>"$CACHE/assert.lock"
	flock "$ASSERT_LOCK"
	# shellcheck disable=SC2046
	run_tests "PG_CONFIG=$CACHE/assert/prefix/bin/pg_config" -- $(server_layers)
}

leg_clang()
{
	has_tool clang clang
	# The server was configured for gcc: some flags, and an attribute of its headers, mean nothing to clang.
	local CLANG_QUIET='-Wno-ignored-optimization-argument -Wno-unknown-warning-option -Wno-ignored-attributes'
	# shellcheck disable=SC2046
	run_tests POLL_TALLY_MAKE=CC=clang "COPT=$CLANG_QUIET" -- $(server_layers)
}

# Undefined behaviour ends the backend, and so fails the test at hand.
leg_ubsan()
{
	# shellcheck disable=SC2046
	run_tests 'COPT=-fsanitize=undefined -fno-sanitize-recover=all' -- $(server_layers)
}

# --- valgrind -------------------------------------------------------------------------------------------------------

# A copy of the server whose program starts the real one under valgrind; what only makes or describes a data folder
# runs as it is.
make_valgrind_server()
{
	local prefix=$CACHE/valgrind
	[[ ! -e $prefix/ready ]] || return 0
	has_tool valgrind valgrind
	rm -rf "$prefix"
	cp -a "$CACHE/assert/prefix" "$prefix"
	mv "$prefix/bin/postgres" "$prefix/bin/postgres.real"
	cat >"$prefix/bin/postgres" <<-'END'
		#!/bin/bash
		real=$(dirname -- "$(readlink -f -- "$0")")/postgres.real
		for argument in "$@"; do
			case $argument in
				-V | --version | --boot | --check | --single | --describe-config | -C) exec "$real" "$@" ;;
			esac
		done
		exec valgrind --quiet --leak-check=no --trace-children=yes --time-stamp=yes $VALGRIND_MORE \
			--error-markers=REPORT-BEGINS,REPORT-ENDS --suppressions="$VALGRIND_SUPPRESSIONS" \
			--log-file="$VALGRIND_LOGS/%p.log" "$real" "$@"
	END
	chmod 755 "$prefix/bin/postgres"
	touch "$prefix/ready"
}

valgrind_tests()
{
	if [[ -n ${POLL_TALLY_DEEP:-} ]]; then
		say regress isolation pgtap
	else
		say sql/position sql/tally sql/accept sql/snapshots sql/triggers specs/twin
	fi
}

leg_valgrind()
{
	local logs status=0 reports processes
	make_valgrind_server
	exec {VALGRIND_LOCK}>>"$CACHE/valgrind.lock"
	flock "$VALGRIND_LOCK"
	logs=$(mktemp -d /tmp/poll_tally-valgrind.XXXXXX)
	chmod 1777 "$logs"
	# Where a value that was not set comes from takes as long again to know.
	# shellcheck disable=SC2046
	run_tests "PG_CONFIG=$CACHE/valgrind/bin/pg_config" "VALGRIND_LOGS=$logs" PGCTLTIMEOUT=600 \
		"VALGRIND_MORE=${POLL_TALLY_DEEP:+--track-origins=yes}" \
		"VALGRIND_SUPPRESSIONS=$CACHE/assert/valgrind.supp" PG_TEST_TIMEOUT_DEFAULT=900 -- $(valgrind_tests) \
		>"$logs/tests.out" 2>&1 || status=$?
	cat "$logs/tests.out"
	reports=$(cat "$logs"/*.log | grep -c REPORT-BEGINS) || true
	processes=$(find "$logs" -name '*.log' | wc -l)
	((reports == 0)) || cat "$logs"/*.log
	say "valgrind: $reports reports from $processes processes"
	((reports == 0 && processes > 0)) || status=1
	if ((status == 0)); then tail -n 1 "$logs/tests.out"; else say "0 passed, $((reports + 1)) failed"; fi
	rm -rf "$logs"
	return "$status"
}

# --- static checks --------------------------------------------------------------------------------------------------

# static_check NAME COMMAND...: prints what it says, and counts.
static_check()
{
	local name=$1 output
	shift
	if output=$("$@" 2>&1); then
		STATIC_PASSED=$((STATIC_PASSED + 1))
		say "$name ... ok"
	else
		STATIC_FAILED=$((STATIC_FAILED + 1))
		printf '%s\n%s ... FAILED\n' "$output" "$name"
	fi
}

compile_flags()
{
	printf '%s\n' -std=gnu11 -D_GNU_SOURCE "-I$ROOT/src" "-I$("$PG_CONFIG" --includedir-server)"
}

compile_header()
{
	local compiler=$1 header=$2 flags
	mapfile -t flags < <(compile_flags)
	printf '#include "postgres.h"\n#include "%s"\n' "$header" |
		"$compiler" -fsyntax-only -Wall -Wextra -Wno-unused-parameter -Wno-sign-compare -Wno-ignored-attributes -Werror \
			"${flags[@]}" -x c -
}

# It sees our headers alone: the server's would take it minutes a file.
run_cppcheck()
{
	cppcheck --quiet --std=c11 --language=c --error-exitcode=1 --inline-suppr --enable=warning,performance,portability \
		--suppressions-list="$ROOT/test/lib/cppcheck.suppressions" -I "$ROOT/src" "$ROOT/src"
}

run_clang_tidy()
{
	local flags
	mapfile -t flags < <(compile_flags)
	find src -name '*.c' -print0 | sort -z | xargs -0 -P 2 -I FILE \
		clang-tidy --quiet --config-file="$ROOT/test/lib/clang-tidy.yaml" FILE -- "${flags[@]}"
}

leg_static()
{
	local file
	STATIC_PASSED=0 STATIC_FAILED=0
	has_tool clang clang
	has_tool cppcheck cppcheck
	has_tool clang-tidy clang-tidy
	cd "$ROOT" || return
	for file in src/*.h; do
		static_check "$(basename "$file") alone, gcc" compile_header gcc "$(basename "$file")"
		static_check "$(basename "$file") alone, clang" compile_header clang "$(basename "$file")"
	done
	static_check cppcheck run_cppcheck
	static_check clang-tidy run_clang_tidy
	say "$STATIC_PASSED passed, $STATIC_FAILED failed"
	((STATIC_FAILED == 0))
}

# --- fuzzing --------------------------------------------------------------------------------------------------------

# copy_mutated MESSAGES: on a throw-away server with assertions.
copy_mutated()
{
	local seed=${POLL_TALLY_SEED:-$RANDOM} status=0
	PG_CONFIG=$CACHE/assert/prefix/bin/pg_config
	exec {ASSERT_LOCK}>>"$CACHE/assert.lock"
	flock "$ASSERT_LOCK"
	find_postgres
	make_work_folder
	build_extension
	start_server copy_data 'fsync = off'
	as_server "$PYTHON" -B "$TREE/test/fuzz/copy_mutate.py" "host=$PGHOST dbname=postgres user=postgres" "$1" "$seed" ||
		status=1
	stop_server copy_data
	return "$status"
}

leg_fuzz()
{
	local seconds=10 messages=3000 folder passed failed
	[[ -z ${POLL_TALLY_DEEP:-} ]] || seconds=300 messages=100000
	has_tool clang clang
	can_fuzz || { ((EUID == 0)) && install_packages libclang-rt-dev; }
	find_postgres
	folder=$(mktemp -d)
	fuzz_all "$seconds" "$folder" || true
	read -r passed failed <"$folder/counts"
	rm -rf "$folder"
	if (copy_mutated "$messages"); then passed=$((passed + 1)); else failed=$((failed + 1)); fi
	say "$passed passed, $failed failed"
	((failed == 0))
}

# --- coverage -------------------------------------------------------------------------------------------------------

# The backends write their counters beside the objects of the copy that was built, which is kept until they are read.
leg_coverage()
{
	local folder kept status=0 last layers=(regress isolation pgtap tap)
	folder=$(mktemp -d /tmp/pt-cov.XXXXXX)
	chmod 1777 "$folder"
	[[ -z ${COVERAGE_TESTS:-} ]] || read -r -a layers <<<"$COVERAGE_TESTS"
	run_tests KEEP=1 "TMPDIR=$folder" 'COPT=--coverage -O0' -- "${layers[@]}" >"$folder/tests.out" 2>&1 || status=$?
	cat "$folder/tests.out"
	last=$(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$folder/tests.out" | tail -n 1)
	kept=$(find "$folder" -mindepth 1 -maxdepth 1 -type d -name 'poll_tally.*')
	"$PYTHON" -B "$ROOT/test/lib/coverage.py" "$kept/tree/src" "$ROOT/test/lib/unreached.txt" || {
		status=1
		last='0 passed, 1 failed'
	}
	rm -rf "$folder"
	say "${last:-0 passed, 1 failed}"
	return "$status"
}
