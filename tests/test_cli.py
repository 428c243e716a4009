"""The command: what it prints, how it ends, and a real server behind it."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import http.cookiejar
import importlib
import json
import os
import py_compile
import re
import signal
import stat
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import HTTPCookieProcessor, build_opener, urlopen

import click
import pytest
from click.testing import CliRunner, Result

import studio
from studio import __version__
from studio.cli import list_verbs, load_command, main
from studio.et import write
from studio.files import make_scratch_folder
from studio.samples import SAMPLES, sample_path
from studio.store.workspace import Workspace
from tests.conftest import ROOT
from tests.et.chakra_bytes import file_of, num
from tests.et.pytorch_files import rank_files, small_rank
from tests.handmade import node, trace_of
from tests.small_jobs import rank_file, some
from tests.waiting import PATIENCE_S, wait_until

HELP = Path(__file__).parent / "data" / "help.txt"
UNKNOWN_RANK = file_of(num(1, 1) + num(3, 4))


def run(*arguments: object, **options: object) -> Result:
    """The command in this process; nothing but a wish to exit may leave it."""
    result = CliRunner().invoke(main, [str(a) for a in arguments], prog_name="chakra-studio", **options)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def refused(*arguments: object, code: int = 1) -> str:
    """What the command says on stderr where it must fail, without a traceback and with nothing on stdout."""
    result = run(*arguments)
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    assert result.stdout == ""
    return result.stderr


@pytest.fixture
def job(tmp_path) -> Path:
    """A folder with a job of two ranks and their comm group."""
    write(some(), tmp_path / "in", "job")
    return tmp_path / "in"


@pytest.mark.parametrize(
    "arguments",
    [("convert", "JOB", "JOB", "--gzip"), ("check", "JOB", "--repair", "JOB"), ("link", "JOB", "-o", "JOB")],
    ids=lambda arguments: arguments[0],
)
def test_no_job_is_written_among_the_files_it_is_read_from(job: Path, arguments: tuple[str, ...]):
    before = sorted(job.iterdir())
    message = refused(*(job if word == "JOB" else word for word in arguments))
    assert "the job is read from this folder" in message
    assert sorted(job.iterdir()) == before


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("check", "JOB", "--repair", ""), "it is empty"),
        (("convert", "JOB", ""), "it is empty"),
        (("simulate", "JOB", "--preset", "hgx-h100-8", "--time-limit", "nan"), "nan is no time"),
        (("simulate", "JOB", "--preset", "hgx-h100-8", "--time-limit", "1e999"), "1e999 is no time"),
    ],
)
def test_an_empty_path_and_a_time_without_end_are_wrong_arguments(job: Path, arguments, says: str):
    assert says in refused(*(job if word == "JOB" else word for word in arguments), code=2)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(("content", "says"), [(b"", "EOF read"), (b"\xff" * 9, "bad marshal data")])
def test_a_damaged_file_of_compiled_python_is_named(tmp_path: Path, monkeypatch, content: bytes, says: str):
    """Click takes its error for Ctrl+D, and said that the command was aborted."""
    (tmp_path / "damaged_module.py").write_text("command = 1")
    monkeypatch.syspath_prepend(tmp_path)
    compiled = Path(py_compile.compile(str(tmp_path / "damaged_module.py")))
    compiled.write_bytes(compiled.read_bytes()[:16] + content)
    monkeypatch.setattr("studio.cli.load_command", lambda _: importlib.import_module("damaged_module"))
    assert refused("info", "x").startswith(
        f"Error: {compiled}: this file of compiled Python is damaged ({says}"
    )


@pytest.mark.parametrize("error", [EOFError, ValueError("bad marshal data")], ids=type)
def test_an_error_that_is_none_of_compiled_python_stays_one(monkeypatch, error):
    def fail(_):
        raise error

    monkeypatch.setattr("studio.cli.load_command", fail)
    assert "compiled Python" not in CliRunner().invoke(main, ["info", "x"]).output


# ---------------------------------------------------------------------------------------------------
# Help and usage


def test_help_is_as_printed():
    """Regenerate with CHAKRA_STUDIO_REGENERATE=1 and look at the difference."""
    printed = "".join(_help(*command) for command in [(), *((verb,) for verb in list_verbs())])
    if os.environ.get("CHAKRA_STUDIO_REGENERATE"):
        HELP.write_text(printed, encoding="utf-8")
    assert printed == HELP.read_text(encoding="utf-8")
    assert max(map(len, printed.splitlines())) <= 100
    assert "\\b" not in printed, "what click takes for markup must not stand in raw texts"


def _help(*command: str) -> str:
    result = run(*command, "--help", terminal_width=100)
    assert result.exit_code == 0
    assert re.search(r"Examples?:\s+chakra-studio", result.output)
    return f"$ chakra-studio {' '.join([*command, '--help'])}\n{result.output}\n"


@pytest.mark.parametrize("verb", list_verbs())
def test_every_command_explains_itself(verb):
    """The first line of its help is what the list of commands shows, and each option says what it does."""
    command = load_command(verb)
    assert command.get_short_help_str(1000) == str(command.help).partition("\n")[0]
    assert not [param.name for param in command.params if isinstance(param, click.Option) and not param.help]


def test_the_short_option_asks_for_help_too():
    assert run("-h").output == run("--help").output
    assert run("info", "-h").output == run("info", "--help").output


def test_the_version():
    assert run("--version").output == f"chakra-studio, version {__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["info"],
        ["convert"],
        ["convert", "in"],
        ["info", "x", "--nonsense"],
        ["--nonsense"],
        ["--port", "70000"],
        ["--port", "http"],
        ["info", "x", "--rank", "a.et"],
        ["info", "x", "--rank", "=1"],
        ["info", "x", "--rank", "a.et=-1"],
        ["info", "x", "--rank", "a.et=1e3"],
        ["info", "x", "--rank", "a.et=" + "9" * 5000],
        ["info", "x", "--rank", "a.et=1", "--rank", "a.et=2"],
        ["convert", "in", "out.et", "--gzip"],
    ],
)
def test_usage_errors_are_status_2(arguments):
    assert "Usage: chakra-studio" in refused(*arguments, code=2)


def test_the_readme_names_no_option_that_is_not_there():
    """README shows what is used most; `--help` lists all, so that a new option needs no line there."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    there = {"--help", "--version"}
    for command in map(load_command, list_verbs()):
        there |= {form for param in command.params for form in (*param.opts, *param.secondary_opts)}
    section = readme[readme.index("## Command line") : readme.index("## Library")]
    assert set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", section)) - there == set()
    assert set(re.findall(r"^chakra-studio (\w+) ", section, re.MULTILINE)) <= set(list_verbs())


# ---------------------------------------------------------------------------------------------------
# info


def test_info_of_a_job(job):
    result = run("info", job)
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0] == "job"
    assert "  ranks         2 of 4 (1 distinct graph)" in lines
    assert "  nodes         6" in lines
    assert lines[-1] == "  findings      none"


def test_json_is_one_document_for_one_job_and_a_list_for_several(job, tmp_path):
    table = json.loads(run("info", job, "--json").stdout)
    assert (table["name"], table["summary"]["nodes"]) == ("job", 6)
    assert [rank["rank"] for rank in table["ranks"]] == [0, 3]
    assert table["groups"][0] == {"name": "tp", "ranks": [3, 0], "inferred": False, "nodes": 0, "bytes": 0}
    write(some(nodes=1), tmp_path / "other", "other")
    tables = json.loads(run("info", job, tmp_path / "other", "--json").stdout)
    assert sorted(table["name"] for table in tables) == ["job", "other"]
    text = run("info", job, tmp_path / "other").stdout
    assert text.startswith("job\n")
    assert "\n\nother\n" in text


def test_info_of_a_damaged_file_shows_the_finding(job):
    path = job / "job.0.et"
    path.write_bytes(path.read_bytes()[:-3])
    result = run("info", job)
    assert result.exit_code == 4
    assert "Damaged input (damaged-file: 1)" in result.stderr
    assert run("info", job, "--allow-damaged").exit_code == 0
    assert re.search(r"^  error +\S+: rank 0: .*job\.0\.et", result.stdout, re.MULTILINE)
    [finding] = json.loads(run("info", job, "--json").stdout)["findings"]
    assert (finding["level"], finding["rank"]) == ("error", 0)
    assert finding["offset"] > 0


def test_a_mistyped_command_is_told_with_the_nearest(tmp_path, monkeypatch):
    """Unless there is a file of that name, which is opened as any other."""
    assert "Did you mean 'info'?" in refused("inof", "traces", code=2)
    assert "Did you mean" not in refused("traces")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inof").write_bytes(b"no trace")
    assert "Did you mean" not in refused("inof")
    assert "Did you mean" not in refused("critical-path", "traces", "--stepp", code=2)
    assert "Did you mean '--json'?" in refused("critical-path", "traces", "--jsn", code=2)
    # Names that other tools have.
    assert "Did you mean 'generate cases'?" in refused("chakra_generator", "--num_npus", "8", code=2)
    assert "studio.Feeder" in refused("et_feeder", "traces", code=2)
    assert "here it is the first argument" in refused("jsonize", "--input_filename", "a.et", code=2)


def test_info_of_the_samples(tmp_path):
    table = json.loads(run("info", sample_path("imbalance_8r"), "--json").stdout)
    assert table["summary"]["ranks"] == 8


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "an empty file"),
        (b"%PDF-1.7 x", "a PDF document"),
        (b"hello world\n" * 40, "a text file"),
        (b"\0" * 100, "zero bytes"),
    ],
)
def test_what_is_no_trace_is_named(tmp_path, content, says):
    (tmp_path / "job.0.et").write_bytes(content)
    message = refused("info", tmp_path / "job.0.et")
    assert message.startswith("Error: ")
    assert says in message
    assert "\nHint: " in message


def test_paths_that_are_not_there(tmp_path):
    for arguments in (
        ["info", "nowhere"],
        ["convert", "nowhere", "out"],
        ["nowhere", "--workspace", tmp_path],
    ):
        assert "nowhere: no such file or folder." in refused(*arguments)


def test_a_path_may_be_called_like_a_command(tmp_path, monkeypatch):
    write(some(), tmp_path / "info", "job")
    monkeypatch.chdir(tmp_path)
    assert run("info", "info").stdout.startswith("job\n")
    # Without its folder it is the command.
    assert "Missing argument" in refused("info", code=2)


def test_ranks_are_asked_for_and_given(tmp_path):
    for name in ("a.et", "b.et"):
        (tmp_path / name).write_bytes(UNKNOWN_RANK)
    message = refused("info", tmp_path)
    assert "The rank of 2 files is unknown" in message
    assert "--rank FILE=NUMBER" in message
    asked = re.findall(r"[\w-]+/[ab]\.et", message)
    given = [
        part for name, number in zip(asked, (4, 2), strict=True) for part in ("--rank", f"{name}={number}")
    ]
    table = json.loads(run("info", tmp_path, "--json", *given).stdout)
    assert [(rank["rank"], rank["file"]) for rank in table["ranks"]] == [(2, asked[1]), (4, asked[0])]
    # The name alone will do.
    short = ["--rank", "a.et=4", "--rank", "b.et=2"]
    assert json.loads(run("info", tmp_path, "--json", *short).stdout)["ranks"] == table["ranks"]
    assert "claimed by two files" in refused("info", tmp_path, "--rank", "a.et=4", "--rank", "b.et=4")
    message = refused("info", tmp_path, "--rank", "c.et=0")
    assert "--rank c.et=0: no such file" in message
    assert "Hint: The nearest is " in message


def test_names_cannot_command_the_terminal(tmp_path):
    hostile = "\x1b]0;owned\x07\x9b31m\u202ename\r"
    folder = tmp_path / f"f{hostile}"
    folder.mkdir()
    (folder / f"job{hostile}.0.et").write_bytes(rank_file(name=hostile))
    (folder / "readme").write_text("not a trace")
    for arguments in (
        ["info", folder],
        ["info", folder, "--json"],
        ["info", folder / "none"],
        ["convert", folder, tmp_path / f"out{hostile}"],
    ):
        result = run(*arguments)
        assert result.output
        odd = [c for c in result.output if not c.isprintable() and c != "\n"]
        assert odd == []
    assert json.loads(run("info", folder, "--json").stdout)["name"] == f"job{hostile}"


@pytest.mark.integration
def test_file_names_that_are_no_utf8(tmp_path):
    folder = os.fsencode(tmp_path)
    Path(os.fsdecode(folder + b"/job\xff.0.et")).write_bytes(rank_file())
    for arguments in (
        ["info", tmp_path],
        ["info", tmp_path, "--json"],
        ["convert", tmp_path, tmp_path / "out"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "studio", *map(str, arguments)],
            capture_output=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONIOENCODING": "ascii"},
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.isascii()
    assert len(studio.read(tmp_path / "out").ranks) == 1


# ---------------------------------------------------------------------------------------------------
# convert


def test_convert_between_every_form(tmp_path):
    raw = rank_file()
    (tmp_path / "one.3.et").write_bytes(raw)
    with zipfile.ZipFile(tmp_path / "one.zip", "w") as archive:
        archive.write(tmp_path / "one.3.et", "deep/one.3.et")
    packed = tmp_path / "packed.3.et.gz"
    assert run("convert", tmp_path / "one.3.et", packed).stdout == f"1 file written: {packed}\n"
    assert gzip.decompress(packed.read_bytes()) == raw
    for index, source in enumerate(("one.3.et", "one.zip", "packed.3.et.gz")):
        target = tmp_path / f"{index}.3.et"
        assert run("convert", tmp_path / source, target).exit_code == 0
        assert target.read_bytes() == raw
        folder = tmp_path / f"folder{index}"
        assert run("convert", tmp_path / source, folder, "--gzip").exit_code == 0
        [written] = [path for path in folder.iterdir() if path.name.endswith(".3.et.gz")]
        assert gzip.decompress(written.read_bytes()) == raw


def test_convert_of_a_job_into_a_folder(job, tmp_path):
    result = run("convert", job, tmp_path / "a" / "b")
    assert result.stdout == f"3 files written: {tmp_path / 'a/b/job.0.et'} … {tmp_path / 'a/b/job.json'}\n"
    assert names(tmp_path / "a" / "b") == names(job)
    for name in names(job):
        assert (tmp_path / "a" / "b" / name).read_bytes() == (job / name).read_bytes()
    # Over itself, too: what is read is not what is written.
    assert run("convert", job, job).exit_code == 0
    assert studio.read(job) == some()


def test_convert_into_a_folder_that_is_called_like_a_file(job, tmp_path):
    (tmp_path / "out.et").mkdir()
    assert run("convert", job, tmp_path / "out.et").exit_code == 0
    assert names(tmp_path / "out.et") == names(job)


def test_convert_refuses_what_cannot_be(job, tmp_path):
    assert "2 ranks do not fit one file" in refused("convert", job, tmp_path / "out.et")
    write(some(), tmp_path / "in", "other")
    assert "holds 2 jobs, not one: job, other" in refused("convert", job, tmp_path / "out")
    (tmp_path / "text").write_text("precious")
    assert "that is no trace" in refused("convert", job / "job.0.et", tmp_path / "text")
    assert "below: Not a directory" in refused("convert", job / "job.0.et", tmp_path / "text" / "below")
    assert (tmp_path / "text").read_text() == "precious"
    assert names(tmp_path) == ["in", "text"]


def test_a_folder_in_the_way_of_a_file_leaves_nothing_half_written(job, tmp_path):
    (tmp_path / "out" / "job.3.et").mkdir(parents=True)
    message = refused("convert", job, tmp_path / "out")
    assert message == (
        f"Error: {tmp_path / 'out/job.3.et'}: Is a directory.\nHint: Name a file, or remove the folder of this name.\n"
    )
    assert names(tmp_path / "out") == ["job.3.et"]


@pytest.mark.integration
def test_a_full_disk_leaves_nothing_half_written(job, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "job.0.et").write_bytes(b"old")
    program = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (20, 20));"
        "from studio.cli import main; main()"
    )
    command = [sys.executable, "-c", program, "convert", job, tmp_path / "out"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 1
    assert "Nothing was written: files in " in done.stderr
    assert "may not grow further" in done.stderr
    assert "Traceback" not in done.stderr
    assert names(tmp_path / "out") == ["job.0.et"]
    assert (tmp_path / "out" / "job.0.et").read_bytes() == b"old"


@pytest.mark.integration
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
@pytest.mark.parametrize("words", [["--help"], ["--version"], ["info", "--help"], ["presets"]])
def test_output_into_a_full_disk_is_no_traceback(words):
    with Path("/dev/full").open("wb") as full:
        command = [sys.executable, "-m", "studio", *words]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stderr.splitlines()[0]) == (1, "Error: No space left on device.")


@pytest.mark.parametrize(
    "words",
    [
        ["info", ""],
        ["convert", "", "out"],
        ["breakdown", ""],
        ["simulate", "", "--preset", "hgx-h100"],
        ["serve", ""],
    ],
)
def test_an_empty_path_is_not_this_folder(words):
    """A shell makes it of a variable that is not set, and the folder that one happens to be in was read."""
    outcome = CliRunner().invoke(main, words)
    assert outcome.exit_code == 2
    assert "it is empty; allowed: a" in outcome.output


def test_what_the_system_refuses_is_no_traceback(job, monkeypatch):
    def refuse(*arguments: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied", "/secret/job.0.et")

    monkeypatch.setattr("studio.commands.info.discover", refuse)
    message = refused("info", job)
    assert message == "Error: /secret/job.0.et: Permission denied.\nHint: Check who may read and write it.\n"


def test_a_jobs_odd_name_does_not_matter(tmp_path):
    with zipfile.ZipFile(tmp_path / "odd.zip", "w") as archive:
        archive.writestr("..-\x07:ä?" + "x" * 100 + ".0.et", rank_file())
    assert run("convert", tmp_path / "odd.zip", tmp_path / "out").exit_code == 0
    [name] = names(tmp_path / "out")
    assert name.endswith("x.0.et")
    assert name.isprintable()
    assert not name.startswith(".")


# ---------------------------------------------------------------------------------------------------
# Progress


@pytest.mark.integration
def test_progress_is_for_terminals_only(job):
    assert run("info", job).stderr == ""
    pty = pytest.importorskip("pty")
    inside, outside = pty.openpty()
    command = [sys.executable, "-m", "studio", "info", str(job)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=outside, cwd=ROOT, text=True, check=False)
    os.close(outside)
    shown = os.read(inside, 65536).decode()
    os.close(inside)
    assert done.stdout.startswith("job\n")
    assert "reading    [##############################] 100%" in shown
    # Cleared at the end, so that it stands between nobody's output.
    assert shown.endswith("\r\x1b[K")


@pytest.mark.integration
def test_an_error_after_progress_starts_on_its_own_line(job, tmp_path):
    pty = pytest.importorskip("pty")
    inside, outside = pty.openpty()
    command = [sys.executable, "-m", "studio", "convert", str(job), str(tmp_path / "x.et")]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=outside, cwd=ROOT, check=False)
    os.close(outside)
    shown = os.read(inside, 65536).decode()
    os.close(inside)
    assert done.returncode == 1
    assert re.search(r"\r\x1b\[K(\x1b\[31m)?Error: ", shown)


# ---------------------------------------------------------------------------------------------------
# A real server


@contextlib.contextmanager
def serving(
    *arguments: object, browser: bool = False, **environment: str
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A studio on a free port, and the address it says it is at."""
    command = [sys.executable, "-m", "studio", *map(str, arguments)]
    command += [] if browser else ["--no-browser"]
    env = {**os.environ, "PYTHONUNBUFFERED": "1", **environment}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=env
    )
    try:
        lines: list[str] = []
        address = ""
        assert process.stdout is not None
        while line := process.stdout.readline():
            lines.append(line)
            if " is at http://" in line:
                address = line.split(" is at ")[1].strip()
            # The last line of a start: what was read of the stream by now, communicate() does not give again.
            if address and line == "Press Ctrl+C to stop.\n":
                yield process, address
                break
        else:
            _, err = process.communicate(timeout=PATIENCE_S)
            pytest.fail(f"the studio did not start: {lines} {err}")
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE_S)


def get(address: str, path: str | None = None, **headers: str) -> tuple[int, str]:
    """Ask a studio for its printed address, or with the token of that address for another path."""
    if path is not None and "token=" in address:
        headers = {"Authorization": f"Bearer {address.partition('token=')[2]}"} | headers
    parts = urlsplit(address)
    assert parts.hostname is not None
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=PATIENCE_S)
    try:
        connection.request("GET", path or f"{parts.path}?{parts.query}", headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def stopped(process: subprocess.Popen[str], sign: int = signal.SIGINT) -> tuple[int, str, str]:
    process.send_signal(sign)
    out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, err


@pytest.mark.integration
def test_serving_paths_until_interrupted(job, tmp_path):
    workspace = tmp_path / "workspace"
    with serving(job, "--port", 0, "--workspace", workspace) as (process, address):
        [info] = Workspace(workspace).jobs()
        assert re.fullmatch(rf"http://127\.0\.0\.1:\d+/overview\?job={info.id}&token=[\w-]{{32}}", address)
        status, page = get(address)
        assert (status, "<title>" in page) == (200, True)
        assert get(address, "/_dash-layout")[0] == get(address, "/_dash-dependencies")[0] == 200
        assert get(address, "/", Host="evil.example")[0] in (400, 403, 421)
        # A second studio works on the same workspace, knows the job and does not read it again.
        with serving(job, "--port", 0, "--workspace", workspace) as (second, other):
            assert other.partition("/overview")[2] == address.partition("/overview")[2]
            assert get(other)[0] == 200
            assert stopped(second, signal.SIGTERM)[0] == 0
        assert get(address)[0] == 200
        code, out, err = stopped(process)
    assert (code, out, err) == (0, "", "")
    assert [job.id for job in Workspace(workspace).jobs()] == [info.id]


@pytest.mark.integration
def test_another_account_is_refused_and_a_browser_let_in_once_stays_so(tmp_path):
    """The cookie outlives the studio, and the port and the addresses that it had.

    The command line of a browser can be listed by every account: what it is told to open holds no token, and lets it in.
    """
    jar = http.cookiejar.CookieJar()
    options = ["--port", 0, "--workspace", tmp_path / "workspace"]
    page = {"Accept": "text/html"}
    with serving("--host", "0.0.0.0", "--allow-host", "gpu-box", *options) as (process, address):
        token = re.search(r"\?token=([\w-]{20,})$", address)
        assert token is not None
        for path in ("/", "/status", "/_dash-layout", "/assets/logo.svg", "/?token=wrong", "/?ticket=wrong"):
            assert get(address, path, Authorization="")[0] == 401
        # Signed in by a redirect that takes the token out of the address.
        assert get(address, **page)[0] == 303
        assert get(address, f"/?token={token[1]}", Host="gpu-box", **page)[0] == 303
        assert get(address, f"/?token={token[1]}", Host="evil.example", **page)[0] in (400, 403, 421)
        # Followed by a program that knows nothing of cookies, and by one that does.
        with urlopen(address) as answer:
            assert answer.status == 200
        with build_opener(HTTPCookieProcessor(jar)).open(address) as answer:
            assert answer.status == 200
        [cookie] = jar
        assert stopped(process)[0] == 0
    assert not cookie.discard
    kept = {"Cookie": f"{cookie.name}={cookie.value}", "Authorization": ""}
    told = tmp_path / "told"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {told}.part && mv {told}.part {told}\n')
    browser.chmod(0o755)
    environment = {"BROWSER": str(browser), "CI": "", "DISPLAY": ""}
    with serving(*options, browser=True, **environment) as (process, again):
        assert get(again, "/", **kept)[0] == 200
        wait_until(told.exists)
        opened = told.read_text().strip()
        assert again.partition("token=")[2] not in opened
        assert get(opened, **page)[0] == 303
        assert get(opened, **page)[0] == 401, "a ticket is good for once"
        assert stopped(process)[0] == 0


def test_who_wants_no_token_says_so(tmp_path):
    message = refused("--no-token", "--host", "0.0.0.0", "--workspace", tmp_path)
    assert "to every machine that reaches this one" in message
    assert "Hint: " in message


@pytest.mark.integration
def test_a_sample_is_served_on_a_port_of_its_own_and_odd_requests_leave_no_traceback_in_the_terminal(
    tmp_path,
):
    """A line each, and the details in a file of the workspace, which is closed to others as all of it is."""
    workspace = tmp_path / "workspace"
    bodies = [b"null", b"[]", b"{}", b'{"output":1}', b"[" * 100_000, b"\xff"]
    with serving("--port", 0, "--workspace", workspace, "--sample", "--no-token") as (process, address):
        assert re.fullmatch(
            r"http://127\.0\.0\.1:\d+/overview\?job=transformer-on-8-ranks-[0-9a-f]+", address
        )
        assert get(address)[0] == 200
        port = urlsplit(address).port
        message = refused("--port", port, "--workspace", tmp_path / "other")
        assert f"Port {port} of 127.0.0.1 is taken by another program" in message
        assert "Hint: Leave out --port" in message
        [listing] = [one for one in asked(address) if "findings-badge.children" in one["output"]]
        outputs = [part.split(".") for part in listing["output"].strip(".").split("...")]
        for odd in ([], {"a": [1]}, 1e300, "\x1b[2J"):
            for value in (odd, json.dumps(odd), json.dumps([odd, None])):
                shown = {"id": "shown-run", "property": "data", "value": value}
                listed = {"id": "activity-known", "property": "data", "value": None}
                callback = {
                    "output": listing["output"],
                    "outputs": [{"id": name, "property": what} for name, what in outputs],
                    "inputs": [shown, listed],
                    "changedPropIds": ["shown-run.data"],
                }
                assert post(address, json.dumps(callback).encode()) == 200, value
        assert {post(address, body) for body in bodies} == {400}
        # Dash makes an error of its own of it.
        for script in ("dash/..%2f..%2ftoken", "dash/none.js", "none/none.js"):
            assert get(address, f"/_dash-component-suites/{script}")[0] == 404
        # A page in place of data would be taken for it.
        for address_of_none in ("/api/none", "/api/jobs/none/nodes.xlsx", "/api/imports/0/files"):
            status, text = get(address, address_of_none)
            assert (status, "There is no data at" in json.loads(text)["error"]["message"]) == (404, True)
        code, out, err = stopped(process)
    assert (code, out) == (0, "")
    assert "Traceback" not in err
    assert "\x1b" not in err
    assert err.count("\n") == err.count("details in") > 3
    assert "Traceback" in (workspace / "errors.log").read_text()
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (workspace, *workspace.rglob("*"))}
    assert len(modes) > 10
    assert {path: mode for path, mode in modes.items() if mode != (0o700 if path.is_dir() else 0o600)} == {}


def asked(address: str) -> list[dict[str, Any]]:
    status, text = get(address, "/_dash-dependencies")
    assert status == 200
    callbacks: list[dict[str, Any]] = json.loads(text)
    return callbacks


def post(address: str, body: bytes) -> int:
    url = urlsplit(address)
    headers = {
        "Content-Type": "application/json",
        "Authorization": f"Bearer {address.partition('token=')[2]}",
    }
    connection = http.client.HTTPConnection(str(url.hostname), url.port, timeout=PATIENCE_S)
    with contextlib.closing(connection):
        connection.request("POST", "/_dash-update-component", body, headers)
        return connection.getresponse().status


INTERRUPTED_AT = """
import os, signal, sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
"""


@pytest.mark.integration
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals to send")
@pytest.mark.parametrize(
    "module",
    ["studio.cli", "click", "studio.commands.info", "numpy", "numpy.linalg", "studio.et.kernel", "zipfile"],
)
def test_ctrl_c_while_modules_are_loaded_is_no_traceback(tmp_path, module):
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTED_AT.format(module=module))
    done = subprocess.run(
        [sys.executable, "-m", "studio", "info", str(sample_path(SAMPLES[0].name))],
        capture_output=True, text=True, cwd=ROOT, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
    )  # fmt: skip
    assert done.returncode in (1, -signal.SIGINT)
    assert done.stderr.strip() in ("", "Aborted!")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals to send")
@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_asked_to_end_removes_what_it_has_half_made(tmp_path, monkeypatch, sign):
    """Closing the terminal, or a batch system at its limit, left what was unpacked in the folder for temporary files."""
    entry = importlib.import_module("studio.__main__")

    @click.command()
    def command():
        with make_scratch_folder("half-made-", tmp_path):
            assert list(tmp_path.iterdir())
            os.kill(os.getpid(), sign)
            pytest.fail("it goes on")

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, sign)}
    monkeypatch.setattr(entry, "_HANDLED", [sign])
    monkeypatch.setattr(entry, "_ENDING", [sign])
    monkeypatch.setattr(entry.atexit, "register", lambda function: function)
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    monkeypatch.setattr(sys, "argv", ["chakra-studio"])
    monkeypatch.setattr("studio.cli.main", command)
    try:
        with pytest.raises(SystemExit) as ended:
            entry.main()
        assert signal.getsignal(sign) == signal.SIG_DFL
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert ended.value.code == 128 + sign
    assert list(tmp_path.iterdir()) == []


BUSY_AT_ITS_END = """
import sys, threading
import duckdb
import studio.cli
from studio.__main__ import main

def ask(begun):
    connection = duckdb.connect()
    while True:
        connection.execute("SELECT sum(i) FROM range(10000) AS numbers(i)").fetchall()
        begun.set()

def command():
    for _ in range(3):
        begun = threading.Event()
        threading.Thread(target=ask, args=(begun,), daemon=True).start()
        begun.wait()
    print("ended", end="")
    sys.exit(ENDED)

studio.cli.main = command
sys.exit(main())
"""


@pytest.mark.integration
@pytest.mark.parametrize(("ended", "status"), [("None", 0), ("3", 3), ("'in words'", 1)])
def test_threads_that_are_inside_a_library_do_not_abort_the_process_at_its_end(ended, status):
    program = [sys.executable, "-c", BUSY_AT_ITS_END.replace("ENDED", ended)]
    done = subprocess.run(program, capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stdout) == (status, "ended")
    assert done.stderr.strip() in ("", ended.strip("'"))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such files")
@pytest.mark.parametrize(
    "words",
    [
        "info PIPE", "check PIPE", "convert PIPE OUT", "link PIPE -o OUT", "compare PIPE JOB", "jsonize PIPE -o OUT",
        "visualize PIPE -o OUT.svg", "timeline PIPE -o OUT.csv", "merge PIPE -o OUT.et", "split PIPE -o OUT",
        "sql select+1+from+nodes PIPE", "anonymize PIPE -o OUT", "anonymize JOB -o OUT --key PIPE",
        "calibrate PIPE -o OUT.yml", "validate PIPE", "compare JOB --baseline PIPE", "suite PIPE -o OUT",
        "complete JOB -o OUT --layout PIPE.yml", "generate llm --config PIPE --ranks 8 -o OUT", "infragraph PIPE -o OUT.yml",
        *(f"simulate JOB --preset hgx-h100-8 {option} PIPE" for option in ("--comm-groups", "--remote-memory")),
        *(f"simulate JOB --preset hgx-h100-8 {option} PIPE" for option in ("--system", "--network")),
        "simulate JOB --preset PIPE.yml", "simulate PIPE --preset hgx-h100-8", "serve PIPE --no-browser --port 0",
    ],
)  # fmt: skip
def test_special_files_are_refused_wherever_a_file_is_named(tmp_path, words):
    """What waited for a writer would wait for ever here; what is said tells what to do, and nothing is written."""
    given = {"PIPE": tmp_path / "pipe", "OUT": tmp_path / "out", "JOB": sample_path(SAMPLES[0].name)}
    for name in ("pipe", "pipe.yml"):
        os.mkfifo(tmp_path / name)
    arguments = [
        re.sub("PIPE|OUT|JOB", lambda found: str(given[found[0]]), word).replace("+", " ")
        for word in words.split()
    ]
    message = refused(*arguments)
    assert "this is a pipe" in message
    assert "\nHint: " in message
    assert {path.name for path in tmp_path.iterdir()} <= {"pipe", "pipe.yml"}


@pytest.mark.skipif(sys.platform == "win32", reason="Windows makes links for administrators alone")
def test_a_link_to_itself_is_refused_with_a_hint(tmp_path):
    (tmp_path / "job.0.et").symlink_to(tmp_path / "job.0.et")
    assert "Hint: It is a symbolic link that leads back to itself" in refused("info", tmp_path / "job.0.et")


@pytest.mark.parametrize("arguments", [["--workspace", "{file}"], ["--host", "no.such.host.invalid"]])
def test_what_keeps_a_studio_from_starting_is_said(tmp_path, arguments):
    (tmp_path / "file").touch()
    given = [part.format(file=tmp_path / "file") for part in arguments]
    if "--workspace" not in given:
        given += ["--workspace", str(tmp_path / "workspace")]
    message = refused(*given, "--no-browser", "--port", 0)
    assert message.startswith("Error: ")
    assert "\nHint: " in message


@pytest.mark.integration
def test_the_module_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "studio", "--version"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert (done.returncode, done.stdout) == (0, f"chakra-studio, version {__version__}\n")


@pytest.mark.integration
def test_a_reader_that_goes_away_is_no_traceback(job):
    command = f"{sys.executable} -m studio info {job} --json | head -c 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.stdout == "{"
    assert "Traceback" not in done.stderr


def test_what_a_damaged_file_lost_is_said_when_it_is_converted(job, tmp_path):
    """The file that is written is sound, so nobody could tell from it."""
    cut = tmp_path / "cut.0.et"
    content = next(Path(job).glob("*.et")).read_bytes() if Path(job).is_dir() else Path(job).read_bytes()
    cut.write_bytes(content[: len(content) // 2])
    done = CliRunner().invoke(main, ["convert", str(cut), str(tmp_path / "out")])
    assert done.exit_code == 4
    assert "Error: " in done.stderr
    assert "the file ends inside a record" in done.stderr
    assert "Damaged input (damaged-file: 1)" in done.stderr
    assert names(tmp_path / "out") == ["cut.0.et"]
    allowed = run("convert", cut, tmp_path / "out", "--allow-damaged")
    assert (allowed.exit_code, "Exit status" in allowed.stderr) == (0, False)
    assert "Damaged input (damaged-file: 1)" in allowed.stderr
    # What is written is sound, so nothing more is lost by converting it again.
    assert run("convert", tmp_path / "out", tmp_path / "again").exit_code == 0


def damaged_job(folder: Path) -> Path:
    """Two ranks with times; rank 1's file ends in bytes that are no record."""

    def rank(micros: int) -> list[object]:
        first = node(1, "COMP", micros=micros, name="fwd")
        first.start_time_micros = 100
        return [first]

    write(trace_of([rank(50), rank(60)]), folder, "job")
    with (folder / "job.1.et").open("ab") as stream:
        stream.write(b"\xff\xff")
    return folder


@pytest.mark.parametrize(
    "words",
    [
        ["info"],
        ["info", "--json"],
        ["convert", "OUT"],
        ["simulate", "--replay"],
        ["simulate", "--replay", "--json"],
        ["compare", "IN", "--workspace", "WS"],
        ["report", "-o", "out.html", "--workspace", "WS"],
    ],
    ids=" ".join,
)
def test_every_command_tells_scripts_that_its_input_was_damaged(words, tmp_path, monkeypatch):
    """The output is there all the same; the status is one of its own, and 0 only where the user says so."""
    monkeypatch.chdir(tmp_path)
    source = damaged_job(tmp_path / "in")
    command, *rest = [{"IN": source, "OUT": tmp_path / "out", "WS": tmp_path / "ws"}.get(w, w) for w in words]
    done = run(command, source, *rest)
    assert done.exit_code == 4, done.output
    assert (
        "Damaged input (damaged-file: 1): the result lacks what could not be read. Exit status 4"
        in done.stderr
    )
    assert command == "info" or "job.1.et" in done.stderr
    if "--json" in words:
        assert json.loads(done.stdout)
    else:
        assert done.stdout
    allowed = run(command, source, *rest, "--allow-damaged")
    assert allowed.exit_code == 0
    assert allowed.stdout.splitlines()[0] == done.stdout.splitlines()[0]
    assert "Damaged input" in allowed.stderr
    for path in source.glob("*.et"):
        path.write_bytes(path.read_bytes().removesuffix(b"\xff\xff"))
    whole = run(command, source, *rest)
    assert (whole.exit_code, "Damaged" in whole.stderr) == (0, False)


def test_link_tells_scripts_that_its_input_was_damaged(tmp_path):
    for path in rank_files(tmp_path / "run", 0, *small_rank(0)):
        if path.name.startswith("pytorch"):
            content = path.read_bytes()
            path.write_bytes(content[: content.index(b"aten::item")])
    done = run("link", tmp_path / "run", "-o", tmp_path / "out", "--json")
    assert done.exit_code == 4
    assert names(tmp_path / "out") == ["run.0.et", "run.json"]
    assert "Damaged input (damaged-file: 1)" in done.stderr
    assert json.loads(done.stdout)["findings"][0]["code"] == "damaged-file"
    assert run("link", tmp_path / "run", "-o", tmp_path / "out", "--allow-damaged").exit_code == 0


@pytest.mark.integration
@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["simulat", "x"], "simulate"),
        (["convrt", "a", "b"], "convert"),
        (["info", "--jsn", "x"], "--json"),
        (["check", "--repiar", "o", "x"], "--repair"),
        (["--no-browsr"], "--no-browser"),
        (["convert", "a", "b", "--allow-damage"], "--allow-damaged"),
        (["link", "x", "-o", "y", "--without", "lunch"], "launch"),
        (["check", "x", "--repair", "o", "--only", "cycl"], "cycle"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_what_is_mistyped_is_answered_with_what_was_meant(words, meant):
    assert re.search(rf"[Dd]id you mean (one of: .*)?'{meant}'\?", refused(*words, code=2))
