"""Times the pages in a browser: `python benchmarks/pages.py [NAME…]`.

Jobs are made and kept in a workspace of their own, and each page is opened in Chromium: the first time, when the server
works everything out, and again. Printed is a table for `benchmarks/README.md`: seconds until the page says it is ready, when its
address is opened for the first time and again, how long of that the browser's main thread worked, and when it is reached
from Home in an open studio. To add a page, add a line to `PAGES`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from playwright.sync_api import Page, sync_playwright

from scripts.serving import BROWSER_ARGUMENTS, chromium, root_of, serve_workspace
from studio.store.workspace import Workspace
from studio.trace import CommGroup, Graph, Rank, Trace
from tests.handmade import collective, node, trace_of

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Measured:
    """A page to be timed.

    Attributes:
        title: What is measured, in the table's words.
        job: Makes the job.
        address: Page and view.
        ready: Selector that is there once the page is ready.
        budget_s: What it may take at most.
    """

    title: str
    job: Callable[[], Trace]
    address: str
    ready: str
    budget_s: float


def make_exchanges(ranks: int, collectives: int) -> Trace:
    """Ranks in expert parallel groups of eight, every rank with times and sizes of its own: nothing can be shared."""
    nodes = [
        collective(
            index,
            "ALL_TO_ALL",
            1 << 20,
            *([index - 1] if index > 1 else []),
            group="ep",
            name=f"layer{index}.dispatch",
        )
        for index in range(1, collectives)
    ]
    nodes.append(node(collectives, "COMP", collectives - 1, name="head", micros=10))
    nodes.append(collective(collectives + 1, "ALL_REDUCE", 1 << 24, collectives, group="dp", name="grads"))
    graph = trace_of({0: nodes}).graphs[0]
    generator = np.random.default_rng(1)
    groups = [CommGroup(f"ep{group}", tuple(range(8 * group, 8 * group + 8))) for group in range(ranks // 8)]
    groups += [CommGroup(f"dp{group}", tuple(range(group, ranks, 8))) for group in range(8)]
    step = 50_000 + generator.integers(0, 20_000, len(graph))
    graphs = [_vary(graph, generator, step) for _ in range(ranks)]
    made = [Rank(number, number, (f"ep{number // 8}", f"dp{number % 8}")) for number in range(ranks)]
    return Trace(tuple(graphs), tuple(made), tuple(groups))


def _vary(graph: Graph, generator: np.random.Generator, step: np.ndarray) -> Graph:
    begin = 1000 + np.cumsum(step) - step
    start = begin + generator.integers(0, 15_000, len(graph))
    end = begin + step - generator.integers(0, 3000, len(graph))
    sizes = graph.attrs.key == graph.strings.find("comm_size")
    value = graph.attrs.value.copy()
    value[sizes] = (value[sizes] * generator.uniform(0.6, 1.4, int(sizes.sum()))).astype(np.int64)
    attrs = replace(graph.attrs, value=value)
    return replace(graph, start_ns=start, duration_ns=np.maximum(end - start, 1), attrs=attrs)


def big() -> Trace:
    """1,024 ranks × 2,000 collectives."""
    return make_exchanges(1024, 2000)


def bigger() -> Trace:
    """512 ranks × 8,000 collectives: more than are drawn one by one."""
    return make_exchanges(512, 8000)


HEAT = "#collectives-heat[data-ready]"
PAGES = {
    "collectives": Measured("Collectives, 1,024 ranks × 2,000", big, "/collectives?job={job}", HEAT, 1.5),
    "collectives-bins": Measured(
        "Collectives, 512 ranks × 8,000", bigger, "/collectives?job={job}", HEAT, 1.5
    ),
}


def seconds(page: Page, address: str, ready: str) -> tuple[float, float]:
    """Open a page and return how long it takes to be ready, and how long the browser's main thread worked for it."""
    page.goto("about:blank")
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    began = time.perf_counter()
    page.goto(address)
    page.wait_for_selector(ready, timeout=120_000)
    spent = time.perf_counter() - began
    metrics = {
        metric["name"]: metric["value"] for metric in session.send("Performance.getMetrics")["metrics"]
    }
    session.detach()
    return spent, metrics["TaskDuration"]


def from_home(page: Page, root: str, job: str, subject: Measured) -> float:
    """Go to a page from Home, by its link, and return how long it takes to be ready."""
    page.goto(f"{root}/?job={job}")
    path = subject.address.split("?")[0]
    page.wait_for_selector(f"nav a[href^='{path}?job=']")
    page.wait_for_load_state("networkidle")
    began = time.perf_counter()
    page.click(f"nav a[href^='{path}?job=']")
    page.wait_for_selector(subject.ready, timeout=120_000)
    return time.perf_counter() - began


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"which pages: {', '.join(PAGES)}; all where none is named")
    parser.add_argument("--workspace", help="where to keep the jobs, to be used again")
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    chosen = [PAGES[name] for name in options.names or PAGES]
    with tempfile.TemporaryDirectory() as folder:
        keeper = Workspace(options.workspace or folder)
        jobs = {}
        for make in {subject.job: None for subject in chosen}:
            name = (make.__doc__ or "").strip().rstrip(".").split(":")[0]
            kept = next((job.id for job in keeper.jobs() if job.name == name), None)
            jobs[make] = kept or keeper.save(make(), name)
        with serve_workspace(keeper.root) as address:
            time_pages(root_of(address), chosen, jobs, options.turns)


def time_pages(root: str, chosen: list[Measured], jobs: dict[Callable[[], Trace], str], turns: int) -> None:
    """Open every page and print its row."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=BROWSER_ARGUMENTS)
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(root)
        page.wait_for_selector("h1")
        print("| page | first time s | by address s | work of the page s | from Home s | budget s |")
        print("| --- | ---: | ---: | ---: | ---: | ---: |")
        for subject in chosen:
            address = root + subject.address.format(job=jobs[subject.job])
            first, _ = seconds(page, address, subject.ready)
            again, work = min(seconds(page, address, subject.ready) for _ in range(turns))
            inside = min(from_home(page, root, jobs[subject.job], subject) for _ in range(turns))
            cells = " | ".join(f"{value:.2f}" for value in (first, again, work, inside))
            print(f"| {subject.title} | {cells} | {subject.budget_s:.1f} |", flush=True)
        browser.close()


if __name__ == "__main__":
    main()
