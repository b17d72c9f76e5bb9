# Sourced by scripts/demo and scripts/test: finds a Python, makes .venv and installs the project into it.
# shellcheck shell=bash
#
# Needs bash, coreutils and a Python of at least 3.11; no uv, no make. On Debian, python3-venv is installed when it is
# missing and we may do so. A stamp in .venv skips the installation while pyproject.toml is unchanged.

set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
cd "$root"
venv=$root/.venv
export PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONUTF8=1

say() { printf '%s\n' "$*" >&2; }

give_up() {
    say "error: $*"
    exit 2
}

is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

# Prints the Python to make .venv with. KEYPLAN_PYTHON wins. Why 3.11 first: it is the oldest we promise, so it is tested most.
find_python() {
    local candidate
    for candidate in ${KEYPLAN_PYTHON:+"$KEYPLAN_PYTHON"} python3.11 python3 python3.12 python3.13 python3.14 /usr/bin/python3; do
        if command -v "$candidate" >/dev/null && is_new_enough "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    give_up "keyplan needs Python 3.11 or newer and found none. On Debian 12 or newer: apt-get install python3 python3-venv;" \
        "elsewhere install it and name it, as in KEYPLAN_PYTHON=/path/to/python3.11 $0"
}

# Debian keeps ensurepip, without which `python3 -m venv` cannot work, in a package of its own.
ensure_venv_module() {
    local python=$1 package
    "$python" -c 'import ensurepip, venv' >/dev/null 2>&1 && return
    package=$("$python" -c 'import sys; print(f"python3.{sys.version_info.minor}-venv")')
    if [[ $("$python" -c 'import sys; print(sys.executable)') == /usr/bin/* ]] && command -v apt-get >/dev/null; then
        if [[ $(id -u) == 0 ]]; then
            say "setup: installing $package (apt-get), which $python needs to make a virtual environment"
            export DEBIAN_FRONTEND=noninteractive
            { apt-get update -qq && apt-get install -y -qq --no-install-recommends "$package" python3-venv; } >&2 </dev/null ||
                give_up "apt-get could not install $package; its messages stand above"
            return
        fi
        give_up "$python cannot make a virtual environment. Run: sudo apt-get install $package"
    fi
    give_up "$python lacks the modules venv and ensurepip. Install them, or name another one: KEYPLAN_PYTHON=... $0"
}

stamp_of() { # what an installation depends on: the project's metadata, the extra, and where it stands
    { cat pyproject.toml && printf '%s %s %s' "$1" "$root" "$("$venv/bin/python" -c 'import sys; print(sys.version)')"; } |
        sha256sum | cut -d ' ' -f 1
}

is_installed() { # dev includes all
    local extra
    for extra in "$1" dev; do
        [[ -f $venv/.keyplan-$extra && $(<"$venv/.keyplan-$extra") == "$(stamp_of "$extra")" ]] && return
    done
    return 1
}

# install EXTRA: afterwards $venv/bin holds the project (editable) with that extra.
install() {
    local extra=$1 python log
    # Why: demo and test may start at once in one clone; the second waits and then finds the work done.
    exec 9>"$root/.venv.lock"
    if command -v flock >/dev/null; then flock 9; fi
    # Trap: a clone that was moved has a .venv whose scripts name the old folder; so has a copied one.
    if [[ -f $venv/.keyplan-root && $(<"$venv/.keyplan-root") != "$root" ]]; then rm -rf "$venv"; fi
    if [[ ! -x $venv/bin/python ]] || ! is_new_enough "$venv/bin/python" ||
        ! "$venv/bin/python" -c 'import pip' >/dev/null 2>&1; then
        python=$(find_python)
        ensure_venv_module "$python"
        say "setup: making .venv with $("$python" --version 2>&1) ($python)"
        rm -rf "$venv"
        "$python" -m venv "$venv" || give_up "could not make $venv"
        printf '%s\n' "$root" >"$venv/.keyplan-root"
    fi
    if ! is_installed "$extra"; then
        say "setup: installing keyplan[$extra] into .venv (a minute the first time)"
        log=$venv/install.log
        if ! "$venv/bin/python" -m pip install -e ".[$extra]" >"$log" 2>&1 </dev/null; then
            tail -n 25 "$log" >&2
            give_up "the installation failed; its whole log is .venv/install.log"
        fi
        stamp_of "$extra" >"$venv/.keyplan-$extra"
    fi
    exec 9>&-
}

# install_servers: afterwards the servers and tools that tests drive are there, where we may install them; otherwise the tests that
# need them are skipped and say so.
install_servers() {
    local missing=()
    command -v etcd >/dev/null || missing+=(etcd-server)
    command -v etcdctl >/dev/null || missing+=(etcd-client)
    compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || missing+=(postgresql)
    command -v pgbackrest >/dev/null || missing+=(pgbackrest)
    command -v haproxy >/dev/null || missing+=(haproxy)
    command -v ip >/dev/null || missing+=(iproute2)
    command -v nft >/dev/null || missing+=(nftables)
    command -v curl >/dev/null || missing+=(curl)
    command -v jq >/dev/null || missing+=(jq)
    ((${#missing[@]})) || return 0
    if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
        say "setup: ${missing[*]} missing: tests that need them will be skipped. Run: sudo apt-get install ${missing[*]}"
        return 0
    fi
    say "setup: installing ${missing[*]} (apt-get) for the tests"
    # Why: Debian starts a server of its own after the installation; tests start theirs, so that one is refused.
    local policy=/usr/sbin/policy-rc.d is_ours=
    if [[ ! -e $policy ]]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod +x "$policy" && is_ours=yes
    fi
    export DEBIAN_FRONTEND=noninteractive
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >&2 </dev/null ||
        say "setup: apt-get could not install ${missing[*]}: tests that need them will be skipped; its messages stand above"
    [[ -z $is_ours ]] || rm -f "$policy"
}
