"""Every command that README and docs show is run here, on small files under the names of the pages.

A command ends with status 0, unless a comment before its block names another: `<!-- status: 1 -->`. Output that a page shows
below a command is what the command prints: `…` stands for anything, on a line of its own for any lines. With
`CHAKRA_STUDIO_REGENERATE=1` output that differs is written into the page, `<!-- shows: 12 -->` lines of it.

What cannot be run says why: `<!-- not run: needs PyTorch -->`. The reasons are listed here, and how often each is given.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from scripts.manual.links import convert_link
from studio.cli import list_verbs, load_command, main
from studio.store.workspace import Workspace
from tests.conftest import ROOT
from tests.manual_blocks import PROGRAM, Shown, commands_of
from tests.manual_files import REAL, lay_out, real_job

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Tables whose code spans are commands to type.
WITH_SPANS = {"coming-from.md"}
EVERY = bool(os.environ.get("CHAKRA_STUDIO_EVERY_COMMAND"))
REGENERATE = bool(os.environ.get("CHAKRA_STUDIO_REGENERATE"))

NOT_OURS = {
    "pip": "installs packages",
    "make": "runs as part of the checks themselves",
    "cp": "copies a sample, which stands in already",
    "mv": "moves a file",
    "curl": "asks a studio that is running",
    "ssh": "needs another machine",
    "torchrun": "needs PyTorch",
    "python": "needs PyTorch",
    "podman": "needs a container engine",
    "docker": "needs a container engine",
}
"""Programs of others, by name, and why their lines are not run."""

PLAIN = {"cat", "cmp", "echo", "head", "ls", "tail", "wc"}
"""Programs that every machine has, which are run."""

REASONS = {
    "needs PyTorch",
    "serves until it is stopped",
    "needs another program",
    "takes minutes",
    "needs the package above",
}
"""Why a command of ours may be left out."""
MOST_LEFT_OUT = 12

SLOW = (
    "chakra-studio suite suite.toml -o results/",
    "chakra-studio report monday/",
    "chakra-studio advise traces/ --preset hgx-h100 --keep",
    "chakra-studio requests azure.csv",
    # Waits until the files have settled.
    "chakra-studio watch nights",
)
"""How commands begin that take seconds; `make docs` runs them too."""

# What each run, or each version, says otherwise: how long the work itself took, how many checks there are.
VARIES = [
    (re.compile(r"\bin [\d.,]+ (ns|µs|ms|s)\b"), "in …"),
    (re.compile(r"\d+ checks made"), "… checks made"),
]


def left_out(shown: Shown) -> str | None:
    """Why a command is not run, or None."""
    if "not run" in shown.remarks:
        return shown.remarks["not run"]
    words = split(shown.line)
    if words[0] in PLAIN:
        return None
    if words[0] != PROGRAM:
        return NOT_OURS.get(words[0], f"unknown program {words[0]!r}")
    if words[1:2] == ["watch"] and "--once" not in words:
        return "serves until it is stopped"
    if "--engine" in words:
        return "needs another program"
    # Without a command it serves.
    if words[1:2] == ["serve"] or words[1:2] not in [[one] for one in (*list_verbs(), "--help", "--version")]:
        return "serves until it is stopped"
    return None


def run(line: str, folder: Path, kept: set[str]) -> tuple[int, str]:
    """Status and output of a command line: calls joined by `|`, the output of the last in a file after `>`.

    Our program runs in this process. What comes after a program that need not be here is left out.
    """
    status, output, target = 0, "", ""
    calls: list[list[str]] = [[]]
    words = split(line)
    for at, word in enumerate(words):
        if word == "|":
            calls.append([])
        elif word == ">":
            target = words[at + 1]
            break
        else:
            calls[-1].append(word)
    for program, *given in calls:
        if program == PROGRAM:
            lay_out(given, folder, kept)
            arguments = [match for word in given for match in _matches(word, folder)]
            done = CliRunner().invoke(main, arguments, input=output)
            if done.exception is not None and not isinstance(done.exception, SystemExit):
                raise done.exception
            status, output = done.exit_code, done.output
        elif program in PLAIN:
            told = subprocess.run(
                [program, *given], input=output, capture_output=True, text=True, check=False
            )
            status, output = told.returncode, told.stdout + told.stderr
        else:
            assert len(calls) > 1, f"{program} is neither ours nor known"
            break
    if target:
        (folder / target).write_text(output, encoding="utf-8")
        output = ""
    return status, output


def split(line: str) -> list[str]:
    """The words of a line as a shell reads them, `|` and `>` words of their own."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|>")
    lexer.whitespace_split = True
    return list(lexer)


def _matches(word: str, folder: Path) -> list[str]:
    """The files a pattern stands for, as a shell finds them."""
    if "*" not in word or "=" in word:
        return [word]
    return sorted(str(path.relative_to(folder)) for path in folder.glob(word)) or [word]


def agrees(shown: str, printed: str) -> bool:
    """Whether output is what a page shows; `…` stands for anything."""
    lines = [re.escape(line).replace("…", ".*") for line in steady(shown).split("\n")]
    pattern = "\n".join("(?:.*\n)*.*" if line == ".*" else line for line in lines)
    return re.fullmatch(pattern, steady(printed.strip("\n"))) is not None


def steady(text: str) -> str:
    """Text without what varies, and without spaces at the ends of lines."""
    for pattern, replacement in VARIES:
        text = pattern.sub(replacement, text)
    return "\n".join(line.rstrip() for line in text.split("\n"))


@pytest.mark.integration
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_commands_of_a_page_do_what_it_says(page, tmp_path, monkeypatch):
    # What a job is called, where its name is that of the folder it was found in.
    (folder := tmp_path / "work").mkdir()
    monkeypatch.chdir(folder)
    # Commands keep runs in the workspace, which is that of whoever runs the tests otherwise.
    monkeypatch.setattr(Workspace, "default_root", classmethod(lambda _cls: tmp_path / "workspace"))
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    wrong, written = [], defaultdict(set)
    # What follows in a block may need what a command made of a job that is not here.
    without_jobs = set()
    for shown in commands_of(page, spans=page.name in WITH_SPANS):
        real = [name for name in REAL if re.search(rf"\b{name}\b", shown.line)]
        if not all(map(real_job, real)):
            without_jobs.add(shown.block)
        if (
            left_out(shown) is None
            and (EVERY or not shown.line.startswith(SLOW))
            and shown.block not in without_jobs
        ):
            status, printed = run(shown.line, folder, written[shown.block])
            expected = {int(one) for one in shown.remarks.get("status", accepted(shown.line)).split("|")}
            if status not in expected:
                wrong.append(f"{page.name}:{shown.number}: status {status}: {shown.line}\n{printed[-2000:]}")
            elif shown.output is not None and not agrees(shown.output, printed):
                if REGENERATE:
                    rewrite(page, shown, printed)
                else:
                    wrong.append(
                        f"{page.name}:{shown.number}: prints something else: {shown.line}\n{printed}"
                    )
    assert wrong == [], "\n\n".join(wrong)


def accepted(line: str) -> str:
    """The statuses of a command that says by its status what it found."""
    if "--fail-on" in line or "--max-error" in line:
        return "0|1"
    return "0|3" if "--fail-if-slower" in line or f"{PROGRAM} suite " in line else "0"


def rewrite(page: Path, shown: Shown, printed: str) -> None:
    """Put what a command printed below it."""
    lines = steady(printed.strip("\n")).split("\n")
    limit = int(shown.remarks.get("shows", 40))
    if len(lines) > limit:
        lines = [*lines[:limit], "…"]
    text = "\n".join(lines)
    content = page.read_text(encoding="utf-8")
    before = f"$ {shown.line}\n{shown.output}\n"
    assert content.count(before) == 1, f"{page.name}:{shown.number}: not found once"
    page.write_text(content.replace(before, f"$ {shown.line}\n{text}\n"), encoding="utf-8")


def test_what_is_not_run_is_little_and_says_why():
    every = [(page, shown) for page in PAGES for shown in commands_of(page, spans=page.name in WITH_SPANS)]
    reasons = Counter(reason for _, shown in every if (reason := left_out(shown)))
    assert set(reasons) <= REASONS | set(NOT_OURS.values()), reasons
    ours = [shown.line for _, shown in every if shown.line.startswith(PROGRAM) and "not run" in shown.remarks]
    assert len(ours) <= MOST_LEFT_OUT, ours
    # None of the tests above passes because there was nothing to run.
    assert len(every) - sum(reasons.values()) > 60


def test_pages_name_no_command_and_no_option_that_is_not_there():
    """Also where they are only mentioned, and for what is not run."""
    wrong = []
    for page in PAGES:
        for number, line in enumerate(page.read_text(encoding="utf-8").split("\n"), 1):
            named = re.findall(rf"`{PROGRAM} ([a-z][a-z-]+)(?![./:\w])", line)
            wrong += [
                f"{page.name}:{number}: there is no command {one!r}"
                for one in named
                if one not in list_verbs()
            ]
        for shown in commands_of(page):
            wrong += [f"{page.name}:{shown.number}: no option {one}" for one in _unknown_options(shown.line)]
    assert wrong == []


def _unknown_options(line: str) -> list[str]:
    words = split(line)
    # `generate cases` has options of its own.
    if (
        words[0] != PROGRAM
        or len(words) < 2
        or words[1] not in list_verbs()
        or words[1:3] == ["generate", "cases"]
    ):
        return []
    known = {
        name for option in load_command(words[1]).params for name in (*option.opts, *option.secondary_opts)
    }
    if hasattr(load_command(words[1]), "commands"):
        return []
    return [
        word for word in words if re.match(r"--[a-z]", word) and word.split("=")[0] not in known | {"--help"}
    ]


def test_what_agrees_with_a_page():
    assert agrees("a …\n…\nb", "a 1\nx\ny\nb\n")
    assert not agrees("a …\nb", "a 1\nx\nb\n")
    assert not agrees("a", "a\nb")


def test_newcomers_find_what_they_know():
    """Every tool of Chakra, the scripts of ASTRA-sim, HTA and Perfetto has a row, with a command that is run."""
    page = ROOT / "docs" / "coming-from.md"
    text = page.read_text(encoding="utf-8")
    known = (
        "chakra_trace_link", "chakra_converter PyTorch", "chakra_converter Text", "chakra_jsonizer", "chakra_visualizer",
        "chakra_timeline_visualizer", "chakra_generator", "et_feeder", "run.sh", "get_temporal_breakdown", "trace_processor",
    )  # fmt: skip
    assert [name for name in known if f"| `{name}" not in text] == []
    run_verbs = {split(shown.line)[1] for shown in commands_of(page, spans=True) if left_out(shown) is None}
    assert {
        "link",
        "convert",
        "jsonize",
        "visualize",
        "timeline",
        "generate",
        "simulate",
        "breakdown",
        "sql",
    } <= run_verbs


def test_every_page_is_reached_from_the_manual():
    """What `mkdocs.yml` does not list is added to a section that it has."""
    sections = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), yaml.BaseLoader)["nav"]
    listed = [
        page for entry in sections if isinstance(entry, dict) for pages in entry.values() for page in pages
    ]
    assert {"Questions", "Topics"} <= {
        name for entry in sections if isinstance(entry, dict) for name in entry
    }
    made = {"reference/commands.md", "reference/api.md", "contributing.md", "changelog.md"}
    assert [page for page in listed if page not in made and not (ROOT / "docs" / page).exists()] == []


LINK = re.compile(r"(?<!!)\[[^\]\n]+\]\(([^)\s:]+)\)")
HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_to_pages_and_headings(page: Path):
    """In the repository: what the manual makes of them is checked when it is built."""
    lost = []
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        name, _, anchor = target.partition("#")
        meant = (page.parent / name).resolve() if name else page
        if not meant.exists() or (anchor and meant.suffix == ".md" and anchor not in _anchors(meant)):
            lost.append(target)
    assert lost == []


@pytest.mark.parametrize(
    ("page", "target", "within"),
    [
        ("index.md", "../tests/data/help.txt", "[x](reference/commands.md)"),
        ("questions/will-it-hang.md", "../../studio/__init__.py", "[x](../reference/api.md)"),
        ("notebook.md", "notebook.md", "[x](notebook.ipynb)"),
        ("index.md", "notebook.md", "[x](notebook.md)"),
        ("changelog.md", "docs/doctor.md#a", "[x](doctor.md#a)"),
        ("index.md", "../pyproject.toml", "x"),
    ],
)
def test_links_of_the_repository_lead_to_pages_within_the_manual(page, target, within):
    """Those to what a page is made of lead to the page, those to other files to nothing."""
    assert convert_link(page, "x", target) == within


def _anchors(page: Path) -> set[str]:
    """Return what links call the headings of a page, as MkDocs and GitHub do."""
    headings = HEADING.findall(page.read_text(encoding="utf-8"))
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {re.sub(r"[ -]+", "-", text.strip()) for text in plain}
