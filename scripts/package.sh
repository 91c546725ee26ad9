# shellcheck shell=bash
# The packages: the archive for the PostgreSQL Extension Network, and Debian's. Sourced by scripts/legs, after lib.sh.
#
# Invariant: nothing is installed on this machine. The Debian package is built, installed and tried in a copy of the
# machine's own files that lives in memory and ends with the command.

can_overlay()
{
	((EUID == 0)) && in_overlay true 2>/dev/null
}

# in_overlay COMMAND...: everything it writes is forgotten. The working tree can be read at /src.
in_overlay()
{
	# shellcheck disable=SC2016
	unshare --mount --pid --fork --kill-child --propagation private bash -ec '
		tree=$1 layer=$(mktemp -d)
		shift
		mount -t tmpfs tmpfs "$layer"
		mkdir "$layer/upper" "$layer/work" "$layer/root"
		mount -t overlay -o "lowerdir=/,upperdir=$layer/upper,workdir=$layer/work" overlay "$layer/root"
		mount -t proc proc "$layer/root/proc"
		mount -t tmpfs -o mode=1777 tmpfs "$layer/root/tmp"
		mkdir -p "$layer/root/src"
		mount --bind "$tree" "$layer/root/src"
		mount --rbind /dev "$layer/root/dev"
		exec chroot "$layer/root" env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
			LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"' in_overlay "$ROOT" "$@"
}

# The archive of what is committed.
make_archive()
{
	local target=$1
	make -s -C "$ROOT" dist DIST="$target"
}

# What the archive builds and installs is what the tree does.
check_archive_builds()
{
	local folder=$1 source
	"$PYTHON" -m zipfile -e "$folder/archive.zip" "$folder/unpacked"
	source=$(find "$folder/unpacked" -mindepth 1 -maxdepth 1 -type d)
	make -s -j2 -C "$source" with_llvm=no "PG_CONFIG=$PG_CONFIG"
	make -s -C "$source" install with_llvm=no "PG_CONFIG=$PG_CONFIG" "DESTDIR=$folder/installed" >/dev/null
	(cd "$folder/installed" && find . -type f | sort) >"$folder/files"
	grep -q '/poll_tally\.so$' "$folder/files"
	grep -q '/poll_tally\.control$' "$folder/files"
	grep -q "/poll_tally--$(sed -n "s/^default_version = '\(.*\)'/\1/p" "$ROOT/poll_tally.control")\.sql$" "$folder/files"
	say "the archive builds and installs $(wc -l <"$folder/files") files"
}

# As Debian's build and its autopkgtest do: build, install, and run each test that debian/tests/control names.
debian_package()
{
	# shellcheck disable=SC2016
	in_overlay bash -ec '
		printf "#!/bin/sh\nexit 101\n" >/usr/sbin/policy-rc.d
		chmod +x /usr/sbin/policy-rc.d
		apt-get update >/dev/null
		apt-get install -y --no-install-recommends debhelper postgresql-server-dev-all dpkg-dev fakeroot >/dev/null
		mkdir /tmp/build
		tar -C /src --exclude=.git --exclude="*.o" --exclude="*.so" --exclude="*.bc" -cf - . | tar -C /tmp/build -xf -
		chown -R nobody: /tmp/build /tmp
		cd /tmp/build
		pg_buildext updatecontrol
		setpriv --reuid nobody --regid nogroup --clear-groups env HOME=/tmp dpkg-buildpackage -us -uc -b
		apt-get install -y --no-install-recommends /tmp/postgresql-*-poll-tally_*.deb
		dpkg -L $(dpkg-query -W -f "\${Package}\n" "postgresql-*-poll-tally") | grep -E "\.(so|control|sql)$"
		cd /tmp/build
		for test in $(sed -n "s/^Tests: //p" debian/tests/control); do
			mkdir "/tmp/run-$test"
			cp -r debian/tests "/tmp/run-$test/"
			chown -R nobody: "/tmp/run-$test"
			setpriv --reuid nobody --regid nogroup --clear-groups env HOME=/tmp "/tmp/run-$test/tests/$test"
			echo "autopkgtest $test: PASS"
		done'
}

# check_step NAME COMMAND...: counts, as a process of its own, so that its first failing command ends it.
check_step()
{
	local name=$1 log=$CACHE/package-${1// /-}.log
	shift
	if bash -ec ". '$ROOT/scripts/lib.sh'; . '$ROOT/scripts/legs_servers.sh'; . '$ROOT/scripts/package.sh'; find_postgres
		$(printf '%q ' "$@")" >"$log" 2>&1 </dev/null
	then
		PACKAGE_PASSED=$((PACKAGE_PASSED + 1))
		say "$name ... ok: $(tail -n 1 "$log")"
	else
		PACKAGE_FAILED=$((PACKAGE_FAILED + 1))
		tail -n 60 "$log"
		say "$name ... FAILED"
	fi
}

leg_package()
{
	local folder
	PACKAGE_PASSED=0 PACKAGE_FAILED=0
	mkdir -p "$CACHE"
	folder=$(mktemp -d)
	check_step 'make dist' make_archive "$folder/archive.zip"
	check_step 'the archive is valid' "$PYTHON" -B "$ROOT/test/lib/check_pgxn.py" "$folder/archive.zip"
	check_step 'the archive builds' check_archive_builds "$folder"
	if can_overlay; then
		check_step 'the Debian package' debian_package
	else
		say 'the Debian package ... not tried: it needs root that may mount an overlay'
	fi
	rm -rf "$folder"
	say "$PACKAGE_PASSED passed, $PACKAGE_FAILED failed"
	((PACKAGE_FAILED == 0))
}
