# shellcheck shell=bash
# The checks of the source text that need no server; sourced by scripts/test. A check prints what it found wrong and
# returns non-zero, 2 when its tool is not there.

# Where the limits on length hold. Tests may be as long as their tables of cases.
linted_files()
{
	find src sql scripts examples bench .ci -type f \
		\( -name '*.[ch]' -o -name '*.sql' -o -name '*.sh' -o -name '*.py' -o -name '*.js' -o -name '*.css' \
		-o -path 'scripts/*' -o -path '.ci/*' \) \
		2>/dev/null | grep -v '/expected/\|/node_modules/\|sql/poll_tally--' | sort
}

# In PostgreSQL's layout nothing but a function's body opens and closes with a brace alone in the first column; what
# closes otherwise ("};", "} Name;") is data.
lint_function_length()
{
	awk '
		FNR == 1 { start = 0 }
		/^\{/ { start = FNR; name = before }
		/^\}$/ && start {
			lines = FNR - start + 1
			if (lines > 70) { bad = 1; print FILENAME ":" start ": " lines " lines: " name }
			start = 0
		}
		/^\}./ { start = 0 }
		/^[A-Za-z_].*\(/ { before = $0 }
		END { exit bad }' src/*.c bench/*.c
}

# Over 500 lines only when the comment at the top says why: the number and a reason.
lint_file_length()
{
	local file lines bad=0
	while read -r file; do
		lines=$(wc -l <"$file")
		((lines > 500)) || continue
		if ! head -n 40 "$file" | grep -qE '^( \*|/\*|#|--|""").*\<500\>'; then
			bad=1
			say "$file: $lines lines, and no reason in its first comment"
		fi
	done < <(linted_files)
	return "$bad"
}

lint_headers()
{
	local header bad=0
	for header in src/*.h; do
		# The server's own rule: postgres.h comes first, everything else a header needs it includes itself.
		printf '#include "postgres.h"\n#include "%s"\n' "$(basename "$header")" |
			gcc -fsyntax-only -Wall -Wextra -Wno-unused-parameter -Werror -Isrc -I"$("$PG_CONFIG" --includedir-server)" \
				-D_GNU_SOURCE -x c - 2>&1 || bad=1
	done
	return "$bad"
}

first_version()
{
	grep -om1 '[0-9]\+\.[0-9]\+\(\.[0-9]\+\)\?' || true
}

lint_versions()
{
	local control meta changelog
	control=$(sed -n '/^default_version/p' poll_tally.control | first_version)
	changelog=$(grep -s '^## ' CHANGELOG.md | first_version)
	meta=$control
	[[ ! -e META.json ]] || meta=$(grep '"version"' META.json | first_version)
	# META.json wants three parts where the script has two.
	if [[ -z $control || ${control%.0} != "${changelog%.0}" || ${control%.0} != "${meta%.0}" ]]; then
		say "poll_tally.control has version '$control', CHANGELOG.md '$changelog', META.json '$meta'"
		return 1
	fi
}

lint_version_tests()
{
	# Prints, and fails on, what is found elsewhere.
	! grep -n 'PG_VERSION_NUM' src/* | grep -v '^src/compat\.h:'
}

lint_format()
{
	local output
	[[ -e .clang-format ]] && command -v clang-format >/dev/null || return 2
	output=$(clang-format --dry-run -Werror src/*.[ch] bench/*.c 2>&1) && return
	# Each place fills three lines; the files will do.
	grep -o '^[^: ]*:[0-9]*:[0-9]*: error' <<<"$output" | cut -d : -f 1 | uniq -c |
		sed 's/^ *\([0-9]*\) \(.*\)/\2: not formatted in \1 places, see make format/'
	return 1
}

# docs/promises.md names tests that are there, with the figures that they printed.
lint_promises()
{
	"$PYTHON" -B scripts/promises check
}

lint_shell()
{
	local scripts
	mapfile -t scripts < <(grep -rlE '^#!.*bash|^# shellcheck shell=bash' scripts .ci bench examples test 2>/dev/null)
	bash_syntax "${scripts[@]}" || return 1
	command -v shellcheck >/dev/null || return 0
	# These two take scripts/test for the builtin of that name.
	shellcheck --shell=bash --severity=warning --exclude=SC2065,SC2266 "${scripts[@]}"
}

lint_javascript()
{
	local file bad=0
	command -v node >/dev/null || return 2
	while read -r file; do
		node --check "$file" 2>&1 || bad=1
	done < <(find examples test -name node_modules -prune -o -type f \( -name '*.js' -o -name '*.mjs' \) -print | sort)
	return "$bad"
}

bash_syntax()
{
	local script bad=0
	for script in "$@"; do bash -n "$script" || bad=1; done
	return "$bad"
}

run_lint()
{
	local check status verdict passed=0 failed=0 output
	cd "$TREE" || return
	for check in function_length file_length headers versions version_tests promises format shell javascript; do
		status=0
		output=$("lint_$check") || status=$?
		[[ -z $output ]] || say "$output"
		case $status in
			0) passed=$((passed + 1)) verdict=ok ;;
			2) verdict='skipped: its tool or settings are not there' ;;
			*) failed=$((failed + 1)) verdict=FAILED ;;
		esac
		say "lint $check ... $verdict"
	done
	suite_result lint "$passed" "$failed"
}
