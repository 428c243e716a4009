#!/bin/sh
# Builds the source distribution, the wheel from it, and installs that wheel alone in a fresh environment.
#   wheel_check.sh python      (one with the `build` package)
set -eu
python=$1
constraints=$(pwd)/constraints.txt
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

PIP_CONSTRAINT=$constraints PIP_BUILD_CONSTRAINT=$constraints "$python" -m build --outdir "$folder" .
"$python" -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --upgrade --constraint "$constraints" pip
"$folder/venv/bin/python" -m pip install --quiet --no-compile --constraint "$constraints" \
    --build-constraint "$constraints" "$folder"/chakra_studio-*.whl

# Outside the checkout, so that the installed package is what is imported.
cd "$folder"
venv/bin/chakra-studio --version
venv/bin/python - <<'EOF'
from importlib.resources import files

package = files("studio")
names = {entry.name for entry in (package / "assets").iterdir()}
assert {name for name in names if name.endswith(".css")}, f"no style sheet among the wheel's assets: {names}"
assert {name for name in names if name.endswith(".js")}, f"no script among the wheel's assets: {names}"
assert any((package / "samples").iterdir()), "the wheel holds no sample job"
systems = {entry.name for entry in (package / "sim" / "systems").iterdir()}
assert "hgx-h100.yml" in systems, f"no systems in the wheel: {systems}"
assert (package / "py.typed").is_file(), "the wheel lacks py.typed"
EOF
