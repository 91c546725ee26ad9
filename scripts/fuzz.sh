# shellcheck shell=bash
# Fuzzing of the readers in src/ that compile without a server; sourced by scripts/test and scripts/legs, after lib.sh.
#
# Invariant: a target (test/fuzz/NAME_target.c) runs on seeds taken from the tests' own literals and on the kept corpus
# (test/fuzz/corpus/NAME), under the sanitizers of addresses and undefined behaviour. What crashed is printed, and kept.

FUZZ_TARGETS=(tally_text tally_wire position body)
FUZZ_SOURCES=(tally_text tally_wire tally_entry tally_number ident position_text json_text)

can_fuzz()
{
	local probe
	command -v clang >/dev/null || return 1
	probe=$(mktemp)
	# Its library of sanitizers is a package of its own.
	say 'int LLVMFuzzerTestOneInput(const char *d, long n); int LLVMFuzzerTestOneInput(const char *d, long n) { return 0; }' |
		clang -fsanitize=fuzzer,address -x c - -o "$probe" 2>/dev/null || {
		rm -f "$probe"
		return 1
	}
	rm -f "$probe"
}

# build_target NAME FOLDER
build_target()
{
	local name=$1 folder=$2 libraries sources=("${FUZZ_SOURCES[@]/#/$ROOT/src/}")
	libraries=$("$PG_CONFIG" --pkglibdir)
	[[ -e $libraries/libpgcommon.a ]] || libraries=$("$PG_CONFIG" --libdir)
	# The server's headers speak gcc's dialect of one attribute.
	clang -std=gnu11 -g -O1 -DFRONTEND -D_GNU_SOURCE -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined \
		-Wall -Werror -Wno-ignored-attributes ${POLL_TALLY_PLANT:+"-DPOLL_TALLY_PLANT=$POLL_TALLY_PLANT"} \
		-I"$ROOT/src" -I"$ROOT/test/fuzz" -I"$("$PG_CONFIG" --includedir-server)" \
		-I"$("$PG_CONFIG" --includedir)" -o "$folder/$name" "$ROOT/test/fuzz/fuzz.c" "$ROOT/test/fuzz/${name}_target.c" \
		"${sources[@]}" "$libraries/libpgcommon.a" "$libraries/libpgport.a" -lpthread
}

# Of what libFuzzer says: executions, edges reached, and how large the corpus has become.
target_figures()
{
	local name=$1 log=$2
	awk -v name="$name" '
		/^stat::number_of_executed_units/ { runs = $2 }
		/ cov: / { for (i = 1; i < NF; i++) { if ($i == "cov:") cov = $(i + 1); if ($i == "corp:") corpus = $(i + 1) } }
		END { printf "fuzz %s: %d executions, %d edges reached, corpus %s", name, runs, cov, corpus }' "$log"
}

# run_target NAME SECONDS FOLDER: prints its figures; fails on a crash.
run_target()
{
	local name=$1 seconds=$2 folder=$3 status=0
	mkdir -p "$folder/$name.found" "$folder/$name.crashes"
	ASAN_OPTIONS=detect_leaks=0 "$folder/$name" -max_total_time="$seconds" -max_len=4096 -timeout=10 -print_final_stats=1 \
		-use_value_profile=1 -artifact_prefix="$folder/$name.crashes/" "$folder/$name.found" "$folder/$name.seeds" \
		"$ROOT/test/fuzz/corpus/$name" >"$folder/$name.log" 2>&1 || status=$?
	say "$(target_figures "$name" "$folder/$name.log"), $(find "$folder/$name.crashes" -type f | wc -l) crashes"
	((status == 0)) && return
	tail -n 40 "$folder/$name.log"
	while read -r name; do
		say "$name, in base64: $(base64 -w 0 "$name")"
	done < <(find "$folder/$name.crashes" -type f)
	return 1
}

# fuzz_all SECONDS FOLDER: two targets at a time; leaves "PASSED FAILED" in FOLDER/counts.
fuzz_all()
{
	local seconds=$1 folder=$2 name passed=0 failed=0
	"$PYTHON" -B "$ROOT/test/fuzz/seeds.py" "$ROOT" "$folder"
	printf '%s\n' "${FUZZ_TARGETS[@]}" | {
		export -f build_target run_target target_figures say
		export ROOT PG_CONFIG FUZZ_LIST="${FUZZ_SOURCES[*]}"
		# shellcheck disable=SC2016
		xargs -P 2 -I NAME bash -c '
			read -r -a FUZZ_SOURCES <<<"$FUZZ_LIST"
			FUZZ_SOURCES=("${FUZZ_SOURCES[@]/%/.c}")
			build_target NAME "$1" && run_target NAME "$2" "$1" && touch "$1/NAME.passed"' fuzz "$folder" "$seconds"
	} || true
	for name in "${FUZZ_TARGETS[@]}"; do
		if [[ -e $folder/$name.passed ]]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
	done
	say "$passed $failed" >"$folder/counts"
	((failed == 0))
}
