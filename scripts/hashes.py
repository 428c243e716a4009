"""Writes constraints-hashes.txt: what the studio needs to run, in the versions of constraints.txt, with the hashes of their files.

The files are those that pip takes for each supported Python and platform; a package that comes as source alone has the hash of that.
`pip install --require-hashes -r constraints-hashes.txt` installs these files and no others.

Run it as `make hashes`, or after new versions as `make lock`.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.lock import PLATFORMS, PYTHONS, ROOT, pip
from scripts.sbom import WINDOWS_ALONE, pins, runtime_packages

HEADER = """\
# What the studio needs to run, with the hashes of its files. Written by `make hashes` from constraints.txt; do not edit.
#   pip install --require-hashes -r constraints-hashes.txt
#   pip install --no-deps chakra_studio-VERSION-py3-none-any.whl
"""


def files_of(wanted: list[str], options: list[str]) -> dict[str, tuple[str, str]]:
    """Return the file and its hash that pip takes for each of some pins."""
    found = json.loads(
        pip("install", "--dry-run", "--quiet", "--no-deps", "--report", "-", *options, *wanted)
    )
    told = {}
    for item in found["install"]:
        source = item["download_info"]
        pin = next(
            one for one in wanted if one.endswith(f"=={item['metadata']['version']}") and _same(one, item)
        )
        told[pin] = (source["url"].rsplit("/", 1)[1], source["archive_info"]["hashes"]["sha256"])
    return told


def _same(pin: str, item: dict[str, dict[str, str]]) -> bool:
    return pin.split("==", maxsplit=1)[0] == item["metadata"]["name"].lower().replace("_", "-").replace(
        ".", "-"
    )


def main() -> None:
    """Ask pip for the files of every package, and write their hashes."""
    versions = pins()
    wanted = [f"{name}=={versions[name]}" for name in sorted({*runtime_packages(), *WINDOWS_ALONE})]
    here = files_of(wanted, ["--ignore-installed"])
    known = {pin: {digest} for pin, (_, digest) in here.items()}
    compiled = [
        pin for pin, (file, _) in here.items() if file.endswith(".whl") and not file.endswith("-any.whl")
    ]
    with tempfile.TemporaryDirectory() as folder:
        for python in PYTHONS:
            for label, tags in PLATFORMS.items():
                print(f"{len(compiled)} packages for Python {python} on {label}", file=sys.stderr)
                where = [f"--target={folder}", f"--python-version={python}", "--only-binary=:all:"]
                told = files_of(compiled, [*where, *(f"--platform={tag}" for tag in tags)])
                for pin, (_, digest) in told.items():
                    known[pin].add(digest)
    lines = []
    for pin in wanted:
        marker = ' ; sys_platform == "win32"' if pin.split("==")[0] in WINDOWS_ALONE else ""
        lines.append(
            " \\\n    ".join([pin + marker, *(f"--hash=sha256:{one}" for one in sorted(known[pin]))])
        )
    (ROOT / "constraints-hashes.txt").write_text(HEADER + "\n".join(lines) + "\n", encoding="utf-8")
    print(f"constraints-hashes.txt: {len(wanted)} packages, {sum(map(len, known.values()))} files")


if __name__ == "__main__":
    main()
