"""Lists what the studio needs to run, as CycloneDX JSON: names, versions, licences, and the hashes of files it was tested with.

    python scripts/sbom.py [FILE]      (prints it if no file is named)

The same packages give the same bytes: the date is that of SOURCE_DATE_EPOCH, and the serial number follows from the content.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
import uuid
from datetime import UTC, datetime
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from packaging.requirements import Requirement

from studio import __version__

ROOT = Path(__file__).resolve().parent.parent
HASHES = ROOT / "constraints-hashes.txt"
# Asked for on Windows alone, so that no installation elsewhere has them.
WINDOWS_ALONE = {"colorama"}


def normalised(name: str) -> str:
    """Return a package's name as indices write it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def runtime_packages() -> dict[str, list[str]]:
    """Return every package the studio needs to run, with the packages that it needs in turn."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found: dict[str, list[str]] = {}
    waiting = [normalised(Requirement(entry).name) for entry in project["project"]["dependencies"]]
    while waiting:
        name = waiting.pop()
        if name not in found:
            entries = map(Requirement, distribution(name).requires or [])
            asked = [one for one in entries if not one.marker or one.marker.evaluate({"extra": ""})]
            found[name] = sorted({normalised(one.name) for one in asked})
            waiting += found[name]
    return dict(sorted(found.items()))


def pins() -> dict[str, str]:
    """Return the version of every package in constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def hashes() -> dict[str, list[str]]:
    """Return the hashes of each package's files, as `constraints-hashes.txt` lists them."""
    text = HASHES.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {line.split("==")[0]: re.findall(r"sha256:([0-9a-f]{64})", line) for line in lines}


def licences() -> dict[str, str]:
    """Return the licence of each package, as docs/licences.md states it."""
    text = (ROOT / "docs" / "licences.md").read_text(encoding="utf-8")
    return dict(re.findall(r"^\| ([a-z][a-z0-9-]+) \| ([^|]+) \|$", text, re.MULTILINE))


def bill_of_materials() -> dict[str, Any]:
    """Return the CycloneDX document."""
    needed, versions, licence, known = runtime_packages(), pins(), licences(), hashes()
    own = f"pkg:pypi/chakra-studio@{__version__}"
    packages = sorted({*needed, *WINDOWS_ALONE})
    address = {name: f"pkg:pypi/{name}@{versions[name]}" for name in packages}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    direct = sorted({normalised(Requirement(entry).name) for entry in project["project"]["dependencies"]})
    components = [
        {
            "type": "library",
            "bom-ref": address[name],
            "name": name,
            "version": versions[name],
            "purl": address[name],
            "licenses": [{"expression": licence[name]}],
            "externalReferences": [
                {
                    "type": "distribution",
                    "url": f"https://pypi.org/project/{name}/{versions[name]}/",
                    "hashes": [{"alg": "SHA-256", "content": one} for one in known[name]],
                }
            ],
        }
        for name in packages
    ]
    dependencies = [{"ref": own, "dependsOn": [address[name] for name in direct]}]
    dependencies += [
        {"ref": address[name], "dependsOn": [address[one] for one in needed.get(name, []) if one in address]}
        for name in packages
    ]
    moment = datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), UTC)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([own, components]))}",
        "version": 1,
        "metadata": {
            "timestamp": moment.isoformat().replace("+00:00", "Z"),
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": "chakra-studio",
                "version": __version__,
                "purl": own,
                "licenses": [{"license": {"id": "MIT"}}],
            },
        },
        "components": components,
        "dependencies": dependencies,
    }


def main() -> None:
    """Write or print it."""
    text = json.dumps(bill_of_materials(), indent=2) + "\n"
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(text, encoding="utf-8")
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
