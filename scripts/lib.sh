# shellcheck shell=bash
# What the scripts share: packages, a temporary folder, a build of the extension, throw-away servers.
#
# Invariant: whatever a script makes lies in one temporary folder ($WORK), which belongs to the user that runs the
# servers. However the script ends, every server below that folder is stopped and the folder removed (KEEP=1 keeps
# it). The working tree is only read.
#
# Servers refuse to run as root, so as root everything but the package set-up is done as user postgres; a plain user
# does everything as itself. `as_server` hides the difference.

set -euo pipefail
shopt -s inherit_errexit

ROOT=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
# The one interpreter that sees Debian's python3-psycopg2; another python3 may come first in PATH.
PYTHON=/usr/bin/python3
WORK=                           # temporary folder, see make_work_folder
TREE=                           # copy of the working tree in it
CONFIG=                         # server settings that make the built extension visible
BINDIR=                         # the server's programs, see find_postgres
PG_SUPPORT=                           # where the server's build and test support lies
CHILD=                          # process group of run_child, while it runs
BESIDE=                         # process of start_beside
SERVER_USER=                    # who runs the servers
INITDB_OPTIONS=()               # further ones, of the next server that is started
SERVER_ENVIRONMENT=()           # NAME=VALUE: likewise
FAST=                           # temporary folder in memory, see make_fast_folder

# The server's own test support unsets LC_ALL; databases get their encoding from what is left.
export LC_ALL=C.UTF-8 LANG=C.UTF-8
# Settings of the caller's own PostgreSQL must not lead a client to another server; timeouts lead nowhere, and PG_CONFIG
# does not match.
while read -r name; do unset "$name"; done < <(compgen -e | grep '^PG[A-Z]' | grep -v 'TIMEOUT$' || true)

say()
{
	printf '%s\n' "$*"
}

die()
{
	printf '%s: %s\n' "$(basename -- "$0")" "$*" >&2
	exit 1
}

# --- packages -------------------------------------------------------------------------------------------------------

# The major version to work with: that of pg_config, else the one that this Debian release ships.
postgres_major()
{
	local version=
	version=$("${PG_CONFIG:-pg_config}" --version 2>/dev/null) || true
	if [[ $version =~ ^PostgreSQL\ ([0-9]+) ]]; then
		say "${BASH_REMATCH[1]}"
		return
	fi
	# shellcheck disable=SC1091
	case $( (. /etc/os-release && printf %s "${VERSION_ID:-}") 2>/dev/null || true) in
		13) say 17 ;;
		14) say 18 ;;
		*) say 15 ;;
	esac
}

# Debian packages of each purpose; libc6-dev is only recommended by gcc.
packages_for()
{
	local major=$1 purpose
	shift
	for purpose in "$@"; do
		case $purpose in
			build) say gcc libc6-dev make "postgresql-$major" "postgresql-server-dev-$major" ;;
			python) say python3 python3-psycopg2 ;;
			redis) say redis-tools ;;
			alerts) say prometheus prometheus-postgres-exporter prometheus-sql-exporter python3-yaml ;;
			relays)
				say redis-server rabbitmq-server librdkafka-dev python3-redis python3-pika python3-confluent-kafka
				;;
			test) say "postgresql-$major-pgtap" libtap-parser-sourcehandler-pgtap-perl libipc-run-perl ;;
			drivers) say libpq-dev default-jdk-headless libpostgresql-jdbc-java nodejs npm ca-certificates ;;
			node) say nodejs npm ca-certificates ;;
			browser) say chromium ;;
			faults) say strace ;;
			*) die "no such purpose: $purpose" ;;
		esac
	done | tr ' ' '\n'
}

# What a package is wanted for is there, whoever put it there: a server built from source, another distribution.
has_content_of()
{
	local pg=${PG_CONFIG:-pg_config}
	case $1 in
		gcc | make | strace) command -v "$1" ;;
		python3) [[ -x $PYTHON ]] ;;
		libc6-dev) [[ -e /usr/include/stdio.h ]] ;;
		# The client's package brings pgxs without the headers.
		postgresql-server-dev-*) [[ -e $("$pg" --pgxs) && -e $("$pg" --includedir-server)/postgres.h ]] ;;
		postgresql-*-pgtap) [[ -e $("$pg" --sharedir)/extension/pgtap.control ]] ;;
		postgresql-*) [[ -x $("$pg" --bindir)/initdb && -x $("$pg" --bindir)/postgres ]] ;;
		libtap-parser-sourcehandler-pgtap-perl) command -v pg_prove ;;
		libipc-run-perl) perl -MIPC::Run -e 1 ;;
		redis-tools) command -v redis-benchmark && command -v redis-cli && command -v redis-check-rdb ;;
		libpq-dev) [[ -e $("$pg" --includedir)/libpq-fe.h ]] ;;
		default-jdk-headless) command -v java && command -v javac ;;
		npm) command -v npm ;;
		python3-yaml) "$PYTHON" -c 'import yaml' ;;
		prometheus) command -v prometheus && command -v promtool ;;
		prometheus-*-exporter) command -v "$1" ;;
		redis-server) command -v redis-server ;;
		rabbitmq-server) [[ -x /usr/lib/rabbitmq/bin/rabbitmq-server ]] ;;
		librdkafka-dev) [[ -e /usr/include/librdkafka/rdkafka_mock.h ]] ;;
		python3-psycopg2 | python3-redis | python3-pika | python3-confluent-kafka)
			local module=${1#python3-}
			"$PYTHON" -c "import ${module//-/_}"
			;;
		nodejs) node -e 'process.exit(Number.parseInt(process.versions.node) >= 18 ? 0 : 1)' ;;
		chromium) [[ -x /usr/bin/chromium ]] ;;
		*) false ;;
	esac
} >/dev/null 2>&1

is_installed()
{
	[[ $(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null) == installed ]]
}

missing_packages()
{
	local major package
	major=$(postgres_major)
	for package in $(packages_for "$major" "$@"); do
		is_installed "$package" || has_content_of "$package" || {
			say "$package"
			# Headers of one minor release and a server of another would be neither: they come together.
			[[ $package != postgresql-server-dev-* ]] || say "postgresql-$major"
		}
	done | sort -u
}

# Debian makes and starts a cluster when the server's package is installed; nobody asked for one.
forbid_main_cluster()
{
	local file=/etc/postgresql-common/createcluster.conf
	[[ ! -e $file ]] || return 0
	mkdir -p "$(dirname "$file")"
	say 'create_main_cluster = false' >"$file"
}

# without_services COMMAND...: packages that are installed meanwhile start none of their services. A policy that is there
# already is somebody's choice, and stays.
without_services()
{
	local policy=/usr/sbin/policy-rc.d
	if [[ -e $policy ]]; then
		"$@"
		return
	fi
	(
		trap 'rm -f "$policy"' EXIT
		trap 'exit 1' HUP INT TERM
		printf '#!/bin/sh\nexit 101\n' >"$policy"
		chmod 755 "$policy"
		"$@"
	)
}

# Nor shall what was installed for the tests start with the next boot.
disable_services()
{
	local package
	for package in "$@"; do
		if [[ -e /lib/systemd/system/$package.service ]] && command -v systemctl; then
			systemctl --no-reload disable "$package.service"
		elif [[ -e /etc/init.d/$package ]]; then
			update-rc.d "$package" disable
		fi
	done
}

install_packages()
{
	local log
	log=$(mktemp)
	say "installing $*"
	forbid_main_cluster
	# Small images lack it, and Java's packages link into it.
	mkdir -p /usr/share/man/man1
	# ucf asks about a configuration file that was there first; keep it.
	export DEBIAN_FRONTEND=noninteractive UCF_FORCE_CONFFOLD=1
	if ! { apt-get update &&
		without_services apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=300 "$@" &&
		disable_services "$@"; } >"$log" 2>&1 </dev/null
	then
		cat "$log" >&2
		rm -f "$log"
		die "could not install $*"
	fi
	rm -f "$log"
}

# need_packages PURPOSE...: nothing is done, and no network needed, where all is there.
need_packages()
{
	local names missing=()
	[[ -z ${PG_CONFIG:-} ]] || "$PG_CONFIG" --version >/dev/null 2>&1 || die "PG_CONFIG=$PG_CONFIG does not run"
	names=$(missing_packages "$@")
	[[ -z $names ]] || mapfile -t missing <<<"$names"
	if ((${#missing[@]} > 0)); then
		if ((EUID != 0)) || ! command -v apt-get >/dev/null; then
			die "these packages (Debian's names) are missing: ${missing[*]}"
		fi
		install_packages "${missing[@]}"
	fi
	find_postgres
}

# PG_CONFIG is exported: make, and whatever the tests start, use the same server.
find_postgres()
{
	PG_CONFIG=$(command -v "${PG_CONFIG:-pg_config}") || die "no pg_config: set PG_CONFIG"
	export PG_CONFIG
	BINDIR=$("$PG_CONFIG" --bindir)
	# shellcheck disable=SC2034
	PG_SUPPORT=$(dirname "$("$PG_CONFIG" --pgxs)")/../..
	export PATH=$BINDIR:$PATH
}

# install_node_modules FOLDER [OPTION...]: what its package-lock.json names, unless it is there. As the user that called
# us, since npm's settings and its cache are theirs.
install_node_modules()
{
	local folder=$1
	shift
	[[ ! $folder/node_modules/.package-lock.json -nt $folder/package-lock.json ]] || return 0
	say "installing npm packages"
	(cd "$folder" && npm ci --silent --prefer-offline "$@" >&2) || die "npm could not install the packages of $folder"
}

# --- users, the temporary folder, and how it ends -------------------------------------------------------------------

find_server_user()
{
	local user
	SERVER_USER=$(id -un)
	((EUID == 0)) || return 0
	for user in postgres nobody; do
		SERVER_USER=$user
		! id -u "$user" >/dev/null 2>&1 || return 0
	done
	die "as root this needs a user postgres or nobody to run servers as"
}

# as_server COMMAND...: as the user that runs the servers, with a home of its own in the temporary folder.
as_server()
{
	local switch=()
	if ((EUID == 0)); then
		switch=(setpriv --reuid "$SERVER_USER" --regid "$(id -g "$SERVER_USER")" --init-groups --)
	fi
	"${switch[@]}" env HOME="$WORK" USER="$SERVER_USER" LOGNAME="$SERVER_USER" TMPDIR="$WORK/tmp" "$@"
}

# The longest path of a socket below the folder is about 40 bytes longer, and the system allows 107 in all.
usable_folder()
{
	((${#1} <= 60)) || return 1
	((EUID != 0)) || chown "$SERVER_USER:" "$1"
	as_server test -w "$1" -a -x "$1"
}

make_work_folder()
{
	local parent
	find_server_user
	trap 'on_exit $?' EXIT
	trap 'on_signal 129' HUP
	trap 'on_signal 130' INT
	trap 'on_signal 143' TERM
	for parent in "${TMPDIR:-/tmp}" /tmp; do
		WORK=$(mktemp -d "$parent/poll_tally.XXXXXX")
		if usable_folder "$WORK"; then
			# Not only the owner may enter: server, clients and this script can be different users.
			as_server chmod 755 "$WORK"
			as_server mkdir "$WORK/tmp" "$WORK/sockets" "$WORK/tree"
			cd "$WORK"
			return
		fi
		rmdir "$WORK"
		WORK=
	done
	die "user $SERVER_USER cannot use a folder in ${TMPDIR:-/tmp}, or its name is too long for a socket"
}

# make_fast_folder GIGABYTES: $FAST, for what must not wait for a disk. It goes in any case, also with KEEP=1.
make_fast_folder()
{
	local free_kb
	free_kb=$(df -k --output=avail /dev/shm 2>/dev/null | tail -n 1) || free_kb=0
	((free_kb >= $1 * 1024 * 1024)) || die "this needs $1 GB of free memory file system in /dev/shm"
	FAST=$(mktemp -d /dev/shm/poll_tally.XXXXXX)
	((EUID != 0)) || chown "$SERVER_USER:" "$FAST"
}

# make_small_disk MEGABYTES: $WORK/small, a file system that tests may fill; none for who may not mount one.
make_small_disk()
{
	((EUID == 0)) || return 0
	as_server mkdir "$WORK/small"
	mount -t tmpfs -o "size=$1m,mode=700,uid=$(id -u "$SERVER_USER")" tmpfs "$WORK/small" 2>/dev/null || return 0
	export POLL_TALLY_SMALL_DISK=$WORK/small
}

# A file may outlive its server, and its process id be another's by then: the server's working folder tells.
stop_servers()
{
	local file data pid
	while read -r file; do
		data=$(dirname "$file")
		pid=$(head -n 1 "$file" 2>/dev/null) || continue
		[[ ! -d /proc/self || $(readlink "/proc/$pid/cwd" 2>/dev/null) == "$data" ]] || continue
		as_server "$BINDIR/pg_ctl" -D "$data" -m immediate -w stop >/dev/null 2>&1 || true
	done < <(find "$WORK" -name postmaster.pid 2>/dev/null)
}

on_exit()
{
	local status=$1
	trap '' HUP INT TERM
	trap - EXIT
	if [[ -n $BESIDE ]]; then
		kill -TERM "$BESIDE" 2>/dev/null || true
		wait "$BESIDE" 2>/dev/null || true
	fi
	if [[ -n $WORK && -d $WORK ]]; then
		cd /
		stop_servers
		! mountpoint -q "$WORK/small" || umount "$WORK/small"
		if [[ ${KEEP:-} == 1 ]]; then
			printf 'kept: %s\n' "$WORK" >&2
		else
			rm -rf -- "$WORK"
		fi
	fi
	[[ -z $FAST ]] || rm -rf -- "$FAST"
	exit "$status"
}

on_signal()
{
	trap '' HUP INT TERM
	if [[ -n $CHILD ]]; then
		kill -TERM -- "-$CHILD" 2>/dev/null || true
		wait "$CHILD" 2>/dev/null || true
	fi
	exit "$1"
}

# run_child COMMAND...: in a process group of its own, so that a signal to this script ends all of it, and at once.
run_child()
{
	local status=0
	set -m
	"$@" </dev/null &
	CHILD=$!
	set +m
	wait "$CHILD" || status=$?
	CHILD=
	return "$status"
}

# start_beside COMMAND...: likewise, but the caller goes on, and may wait for it.
start_beside()
{
	(
		BESIDE=
		trap 'on_signal 143' HUP INT TERM
		run_child "$@"
	) &
	BESIDE=$!
}

# --- build ----------------------------------------------------------------------------------------------------------

# Tracked and new files of a checkout; of a plain folder, all but what a build leaves behind.
list_tree()
{
	local file
	if [[ -e $ROOT/.git ]] && git -C "$ROOT" rev-parse >/dev/null 2>&1; then
		git -C "$ROOT" ls-files -co --exclude-standard -z | while IFS= read -r -d '' file; do
			# A file that is deleted but still tracked is listed too.
			[[ ! -e $ROOT/$file ]] || printf '%s\0' "$file"
		done
	else
		(cd "$ROOT" && find . \( -name .git -o -name tmp_check -o -name results \) -prune -o \
			! \( -name '*.o' -o -name '*.so' -o -name '*.bc' -o -name '*.pyc' \) -type f -print0)
	fi
}

copy_tree()
{
	TREE=$WORK/tree
	list_tree | tar -C "$ROOT" --null -T - -cf - | as_server tar -C "$TREE" --no-same-owner -xf -
}

# Debian's servers below 18 look for extensions below another root by a setting of their own, later ones along a
# path; a server from source below 18 can do neither, so there the extension is installed for good.
extension_settings()
{
	local major known
	major=$(postgres_major)
	known=$(as_server "$BINDIR/postgres" --describe-config | cut -f 1)
	if ((major >= 18)); then
		say "extension_control_path = '$WORK/dd$("$PG_CONFIG" --sharedir):\$system'"
	elif grep -qx extension_destdir <<<"$known"; then
		say "extension_destdir = '$WORK/dd'"
	fi
}

write_config()
{
	CONFIG=$WORK/server.conf
	{
		say "$1"
		say "dynamic_library_path = '$WORK/dd$("$PG_CONFIG" --pkglibdir):\$libdir'"
		say "shared_preload_libraries = 'poll_tally'"
		say "max_worker_processes = 16"
		say "max_prepared_transactions = 20"
	} | as_server tee "$CONFIG" >/dev/null
}

quietly()
{
	local log=$WORK/quietly.log
	"$@" >"$log" 2>&1 || {
		cat "$log" >&2
		die "failed: $*"
	}
}

# Compiles a copy of the tree and installs it below the temporary folder. Bitcode is of no use here and costs most of
# the time.
build_extension()
{
	local settings options=(with_llvm=no "PG_CONFIG=$PG_CONFIG")
	# Another compiler, for one: see scripts/legs.
	[[ -z ${POLL_TALLY_MAKE:-} ]] || options+=("$POLL_TALLY_MAKE")
	copy_tree
	say "building for $("$PG_CONFIG" --version)"
	quietly as_server make -s -j2 -C "$TREE" "${options[@]}"
	settings=$(extension_settings)
	if [[ -n $settings ]]; then
		quietly as_server make -s -C "$TREE" install "${options[@]}" "DESTDIR=$WORK/dd"
	else
		quietly make -s -C "$TREE" install "${options[@]}"
	fi
	write_config "$settings"
}

# --- servers --------------------------------------------------------------------------------------------------------

# start_server NAME [SETTING...]: a new server, reached through a socket in the temporary folder only.
start_server()
{
	local data=$WORK/$1
	shift
	quietly as_server "$BINDIR/initdb" -D "$data" -U postgres --auth=trust --no-locale --encoding=UTF8 --no-sync \
		"${INITDB_OPTIONS[@]}"
	{
		cat "$CONFIG"
		say "listen_addresses = ''"
		say "unix_socket_directories = '$WORK/sockets'"
		(($# == 0)) || printf '%s\n' "$@"
	} | as_server tee -a "$data/postgresql.conf" >/dev/null
	as_server "${SERVER_ENVIRONMENT[@]}" "$BINDIR/pg_ctl" -D "$data" -l "$data.log" -w -t 60 start >/dev/null || {
		cat "$data.log" >&2
		die "the server did not start"
	}
	export PGHOST=$WORK/sockets PGPORT=5432 PGUSER=postgres
}

stop_server()
{
	as_server "$BINDIR/pg_ctl" -D "$WORK/$1" -m fast -w stop >/dev/null
	unset PGHOST PGPORT PGUSER
}
