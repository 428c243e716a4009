"""Times the Timeline page in a browser: `python benchmarks/timeline.py [--ranks N] [--layers N]`.

A transformer on N ranks (eight nodes a layer) is simulated and kept in a workspace of its own, and its timeline opened
in Chromium. Printed is one row of `benchmarks/README.md`: how long until everything in sight is drawn, the first time and
with the run warm in the server, and frames per second while dragging, zooming and scrolling.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from playwright.sync_api import Page, Playwright, sync_playwright

from scripts.serving import BROWSER_ARGUMENTS, chromium, most_frames, root_of, serve_workspace
from studio.sim import simulate
from studio.sim.parts import Parts, interpret
from studio.store.runs import Run
from studio.store.workspace import Workspace
from studio.trace import CommGroup, Rank, Trace
from tests.handmade import collective, node, trace_of

TENSOR = 8
FRAMES = """() => new Promise(done => {
    const times = [], stats = () => window.studio.timeline.stats(), before = stats();
    const began = performance.now();
    function tick(now) {
        times.push(now);
        if (now - began < SECONDS * 1000) requestAnimationFrame(tick);
        else {
            const after = stats();
            const gaps = times.slice(1).map((one, at) => one - times[at]).sort((a, b) => a - b);
            done({ticks: times.length / SECONDS, drawn: (after.frames - before.frames) / SECONDS,
                  spent: (after.spent - before.spent) / Math.max(1, after.frames - before.frames),
                  slow: gaps[Math.floor(gaps.length * 0.95)], missing: after.missing});
        }
    }
    requestAnimationFrame(tick);
})"""


def transformer(ranks: int, layers: int) -> Trace:
    """Ranks that share one graph: tensor parallel in eights, data parallel across them."""
    data = ranks // TENSOR
    nodes, last = [], ()
    for layer in range(layers):
        index = 8 * layer
        for offset, part in enumerate(("qkv", "attention", "out", "up"), start=1):
            micros = 20 + (index + offset) * 7 % 13
            nodes.append(node(index + offset, "COMP", *last, name=f"layer{layer}.{part}.fwd", micros=micros))
            last = (index + offset,)
        nodes.append(
            collective(index + 5, "ALL_REDUCE", 1 << 20, *last, group="1", name=f"layer{layer}.all_reduce")
        )
        nodes.append(node(index + 6, "COMP", index + 5, name=f"layer{layer}.norm", micros=5))
        nodes.append(
            collective(
                index + 7, "ALL_REDUCE", 1 << 18, index + 6, group="2", name=f"layer{layer}.grads.all_reduce"
            )
        )
        nodes.append(node(index + 8, "COMP", index + 6, name=f"layer{layer}.down", micros=30))
        last = (index + 8,)
    job = trace_of({0: nodes})
    members = [range(first, first + TENSOR) for first in range(0, ranks, TENSOR)]
    members += [range(first, ranks, TENSOR) for first in range(TENSOR)]
    groups = tuple(CommGroup(str(number), tuple(group)) for number, group in enumerate(members, start=1))

    def of(number: int) -> Rank:
        names = {"1": str(1 + number // TENSOR), "2": str(1 + data + number % TENSOR)}
        return Rank(number, 0, tuple(names[str(slot)] for slot in job.ranks[0].slots))

    return Trace(job.graphs, tuple(map(of, range(ranks))), groups)


def parts(ranks: int) -> Parts:
    """Two switches."""
    network = {
        "topology": ["Switch", "Switch"],
        "npus_count": [TENSOR, ranks // TENSOR],
        "bandwidth": [400, 50],
        "latency": [500, 2000],
    }
    system = {
        "scheduling-policy": "LIFO",
        "collective-optimization": "baseline",
        "preferred-dataset-splits": 1,
        "all-reduce-implementation": ["halvingDoubling", "halvingDoubling"],
    }
    return Parts(network, system)


def ready_s(page: Page, address: str) -> float:
    """Open the page and return the seconds until all that is in sight is drawn."""
    began = time.perf_counter()
    page.goto(address)
    page.wait_for_selector("#timeline-scroll[data-ready]")
    return time.perf_counter() - began


def measure(page: Page, seconds: float, act: str) -> dict[str, float]:
    """Return frames per second and time spent on one while something is done over and over."""
    page.evaluate(f"() => {{ window.moving = setInterval(() => {{ {act} }}, 8); window.turn = 0; }}")
    figures: dict[str, float] = page.evaluate(FRAMES.replace("SECONDS", str(seconds)))
    page.evaluate("() => clearInterval(window.moving)")
    page.wait_for_timeout(1500)
    return figures


POINTER = (
    "const canvas = document.querySelector('#timeline-scroll canvas'), box = canvas.getBoundingClientRect();"
    "const send = (kind, x, y) => canvas.dispatchEvent(new PointerEvent(kind, {clientX: box.left + x, "
    "clientY: box.top + y, pointerId: 1, button: 0, bubbles: true}));"
)
MOVES = {
    "drag": POINTER + "HTMLElement.prototype.setPointerCapture = () => {};"
    "if (!window.turn) send('pointerdown', 700, 300); window.turn++;"
    "send('pointermove', 700 + 400 * Math.sin(window.turn / 40), 300);",
    "zoom": POINTER + "window.turn++; canvas.dispatchEvent(new WheelEvent('wheel', {clientX: box.left + 700, "
    "clientY: box.top + 300, ctrlKey: true, deltaY: window.turn % 200 < 100 ? -8 : 8, bubbles: true, cancelable: true}));",
    "scroll": "document.querySelector('#timeline-scroll').scrollTop += 12;",
}


def main() -> None:
    """Print the row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=125)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--workspace", help="where to keep the run, to be used again")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        keeper = Workspace(options.workspace or folder)
        name = f"transformer {options.ranks} x {options.layers}"
        job = next((job.id for job in keeper.jobs() if job.name == name), None)
        if job is None:
            trace, tables = transformer(options.ranks, options.layers), parts(options.ranks)
            run = Run("two switches", simulate(trace, interpret(tables).config), tables)
            job = keeper.save(trace, name)
            keeper.save_run(job, run)
        with serve_workspace(keeper.root) as address, sync_playwright() as playwright:
            browse(playwright, f"{root_of(address)}/timeline?job={job}", options.seconds)


def browse(playwright: Playwright, address: str, seconds: float) -> None:
    """Measure and print."""
    arguments = (*BROWSER_ARGUMENTS, "--enable-precise-memory-info")
    browser = playwright.chromium.launch(executable_path=chromium(), args=arguments)
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(address.split("/timeline", maxsplit=1)[0])
    page.wait_for_selector("h1")
    cold = ready_s(page, address)
    warm = min(ready_s(page, address) for _ in range(3))
    bars = page.inner_text("#timeline-detail")
    cells = [f"{cold:.2f}", f"{warm:.2f}"]
    for start, fold in (("", "all"), ("&from=40000000&to=60000000", "none")):
        ready_s(page, f"{address}{start}&fold={fold}")
        for act in MOVES.values():
            figures = measure(page, seconds, act)
            cells.append(f"{figures['drawn']:.0f} ({figures['spent']:.1f})")
    memory = page.evaluate("() => performance.memory.usedJSHeapSize / 1e6")
    kept = page.evaluate("() => window.studio.timeline.stats().bytes / 1e6")
    print(bars)
    print(
        "| ready cold s | warm s | whole: drag | zoom | scroll | near: drag | zoom | scroll | heap MB | tiles MB |"
    )
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    print(f"| {' | '.join(cells)} | {memory:.0f} | {kept:.1f} |")
    print(
        f"\nframes drawn a second (milliseconds of script a frame); an empty page gets {most_frames(browser):.0f}"
    )
    browser.close()


if __name__ == "__main__":
    main()
