#!/bin/sh
# Builds the source distribution and the wheel twice, from the checkout and from what the first distribution holds, which must give
# the same bytes. Then installs the wheel alone in a fresh environment of each supported Python that is found, among them the
# system's own, and simulates with it; on the oldest also with the oldest packages that pyproject.toml allows.
#   wheel_check.sh python [folder]      (one with the `build` package; a folder that is to keep what was built)
set -eu
case $1 in
    */*) python=$(cd "$(dirname "$1")" && pwd)/$(basename "$1") ;;
    *) python=$1 ;;
esac
keep=${2:-}
constraints=$(pwd)/constraints.txt
scripts=$(pwd)/scripts
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# The date in archives: that of the commit, or of the checkout where there is no repository.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 1767225600)}
export SOURCE_DATE_EPOCH
export PIP_CONSTRAINT="$constraints" PIP_BUILD_CONSTRAINT="$constraints" PIP_DISABLE_PIP_VERSION_CHECK=1

"$python" -m build --outdir "$folder/first" .
mkdir "$folder/source"
tar -xzf "$folder"/first/*.tar.gz -C "$folder/source"
# Times and permissions of files must not matter.
find "$folder/source" -type f -exec touch -d 2001-01-01 {} +
(umask 077 && cd "$folder"/source/* && "$python" -m build --outdir "$folder/second" .)
for file in "$folder"/first/*; do
    cmp "$file" "$folder/second/$(basename "$file")" || { echo "building twice gives two different files" >&2; exit 1; }
done
echo "built twice, byte for byte the same: $(ls "$folder/first" | tr '\n' ' ')"

cat >"$folder/look.py" <<'LOOK'
from importlib.resources import files

package = files("studio")
names = {entry.name for entry in (package / "assets").iterdir()}
assert {name for name in names if name.endswith(".css")}, f"no style sheet among the wheel's assets: {names}"
assert {name for name in names if name.endswith(".js")}, f"no script among the wheel's assets: {names}"
assert any((package / "samples").iterdir()), "the wheel holds no sample job"
systems = {entry.name for entry in (package / "sim" / "systems").iterdir()}
assert "hgx-h100.yml" in systems, f"no systems in the wheel: {systems}"
assert (package / "py.typed").is_file(), "the wheel lacks py.typed"
LOOK

cat >"$folder/lowest.py" <<'LOWEST'
from importlib.metadata import requires

for line in requires("chakra-studio"):
    if "extra ==" not in line:
        print(line.split(";")[0].strip().replace(">=", "=="))
LOWEST

# Outside the checkout, so that the installed package is what is imported.
use_wheel() (
    cd "$folder"
    export XDG_DATA_HOME="$folder/data"
    "$1/bin/python" -m pip check
    "$1/bin/chakra-studio" --version
    "$1/bin/python" look.py
    job=$("$1/bin/python" -c 'import studio; print(studio.sample_path("transformer_8r"))')
    "$1/bin/chakra-studio" info "$job" --json >/dev/null
    "$1/bin/chakra-studio" simulate "$job" --preset hgx-h100 --out run >/dev/null
    "$1/bin/chakra-studio" report run --out report.html >/dev/null
    rm -r report.html data
)

# Debian's own Python is often the first release of its version, while what is found by version is the newest.
tried="" oldest=""
for version in 3.11 3.12 3.13 3.14; do
    found=$("$scripts/find_python.sh" "$version")
    [ -n "$found" ] || echo "Python $version: not found, so the wheel was not tried on it"
    for python in "$found" "/usr/bin/python$version"; do
        [ -x "$python" ] || continue
        release=$("$python" -c 'import ensurepip, platform, venv; print(platform.python_version())' 2>/dev/null) \
            || { echo "$python: makes no virtual environment, so the wheel was not tried on it"; continue; }
        case "$tried " in *" $release "*) continue ;; esac
        "$python" -m venv "$folder/$release"
        "$folder/$release/bin/python" -m pip install --quiet --upgrade pip
        # Only files with the hashes that were written down, then the wheel itself.
        env -u PIP_CONSTRAINT "$folder/$release/bin/python" -m pip install --quiet --no-compile --require-hashes \
            --requirement "$(dirname "$constraints")/constraints-hashes.txt"
        "$folder/$release/bin/python" -m pip install --quiet --no-compile --no-deps "$folder"/first/*.whl
        use_wheel "$release"
        tried="$tried $release"
        if [ -z "$oldest" ]; then
            oldest=$release
        else
            rm -r "${folder:?}/$release"
        fi
    done
done
[ -n "$tried" ] || { echo "no supported Python was found" >&2; exit 1; }
echo "installed by itself and used on Python$tried"

# What pyproject.toml allows must work: whoever has older packages for something else keeps them. Newer Pythons have no wheels of them.
case $oldest in
    3.11.* | 3.12.* | 3.13.*)
        (cd "$folder" && "$oldest/bin/python" lowest.py) >"$folder/lowest.txt"
        env -u PIP_CONSTRAINT "$folder/$oldest/bin/python" -m pip install --quiet --no-compile --requirement "$folder/lowest.txt"
        use_wheel "$oldest"
        echo "used on Python $oldest with the oldest packages that it allows: $(tr '\n' ' ' <"$folder/lowest.txt")"
        ;;
    *) echo "no Python from 3.11 to 3.13 was found, so the wheel was not tried with the oldest packages that it allows" ;;
esac

if [ -n "$keep" ]; then
    mkdir -p "$keep"
    cp "$folder"/first/* "$keep"
fi
