"""Times the Graph page in a browser: `python benchmarks/graph.py [NODES ...]`.

A rank of so many nodes (training steps of 96 layers, two dependencies a node, a collective in every fifth) is put into a
workspace of its own and opened in Chromium by a studio that has just started. Printed is the table of
`benchmarks/README.md`: seconds from the address to the drawing, milliseconds from the key to the drawing for opening a
block, a neighbourhood and a search, and frames per second while the drawing is dragged and zoomed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from playwright.sync_api import Page, Playwright, sync_playwright

from scripts.serving import BROWSER_ARGUMENTS, chromium, most_frames, root_of, serve_workspace
from studio.store.workspace import Workspace
from studio.trace import Attributes, Dependencies, Graph, NodeType, Rank, Strings, Trace, ValueKind

LAYERS, OPERATIONS = 96, ("norm", "attention.qkv", "attention.scores", "mlp.up", "mlp.all_reduce")
KEYS = ("comm_type", "comm_size", "stream")
CY = "document.getElementById('graph-cy')._cyreg.cy"
FRAMES = """() => new Promise(done => {
    const cy = CYTOSCAPE, times = [], began = performance.now(), zoom = cy.zoom();
    function tick(now) {
        times.push(now);
        const turn = (now - began) / 400;
        ACT
        if (now - began < 3000) requestAnimationFrame(tick);
        else done((times.length - 1) / (times[times.length - 1] - times[0]) * 1000);
    }
    requestAnimationFrame(tick);
})"""
MOVES = {
    "drag": "cy.panBy({x: 6 * Math.cos(turn), y: 6 * Math.sin(turn)});",
    "zoom": "cy.zoom({level: zoom * (1 + 0.4 * Math.sin(turn)), renderedPosition: {x: 600, y: 350}});",
}


def rank_of(nodes: int) -> Trace:
    """A job of one rank."""
    row = np.arange(nodes)
    operation, layer, step = row % 5, row // 5 % LAYERS, row // (5 * LAYERS)
    names = [
        f"step{number}.layer{two}.{OPERATIONS[three]}"
        for number, two, three in zip(step.tolist(), layer.tolist(), operation.tolist(), strict=True)
    ]
    communicates = operation == 4
    each = np.where(communicates, 3, 1)
    offsets = np.concatenate(([0], np.cumsum(each)))
    key, value = np.full(int(offsets[-1]), nodes + 2, np.int32), np.full(int(offsets[-1]), 7, np.int64)
    first = offsets[:-1][communicates]
    key[first], key[first + 1] = nodes, nodes + 1
    value[first], value[first + 1] = 0, 1 << 20
    far = np.maximum(row - 5, 0)
    waits = np.column_stack((row - 1, far))[1:].ravel()
    graph = Graph(
        id=row.astype(np.uint64),
        type=np.where(communicates, NodeType.COMM_COLL, NodeType.COMP).astype(np.int32),
        name=row.astype(np.int32),
        start_ns=row * 12_000,
        duration_ns=4_000 + row * 7_919 % 7_000,
        ctrl=Dependencies(np.zeros(nodes + 1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.uint64)),
        data=Dependencies(
            np.concatenate(([0], np.arange(nodes) * 2)), waits.astype(np.int32), np.zeros(0, np.uint64)
        ),
        io=np.zeros((0, 6), np.int32),
        attrs=Attributes(
            offsets=offsets,
            key=key,
            doc=np.full(len(key), -1, np.int32),
            kind=np.full(len(key), ValueKind.INT64, np.uint8),
            value=value,
            length=np.zeros(len(key), np.int32),
            slot=np.zeros(len(key), np.bool_),
            items=np.zeros(0, np.int64),
        ),
        slot_key=np.zeros(0, np.int32),
        extra_row=np.zeros(0, np.int32),
        extra=np.zeros(0, np.int32),
        strings=Strings.of([*names, *KEYS]),
    )
    return Trace((graph,), (Rank(0, 0),))


def ready_s(page: Page, address: str) -> float:
    """Open the page and return the seconds until it is drawn."""
    began = time.perf_counter()
    page.goto(address, wait_until="commit")
    page.wait_for_selector("#graph-canvas[data-ready]", timeout=120_000)
    return time.perf_counter() - began


def after_ms(page: Page, act: str, drawn: str) -> float:
    """Do something in the page and return the milliseconds until a condition holds, looked at every frame."""
    script = f"""() => new Promise(done => {{
        const began = performance.now();
        {act};
        (function look() {{
            if ({drawn}) done(performance.now() - began);
            else if (performance.now() - began > 20000) done(NaN);
            else requestAnimationFrame(look);
        }})();
    }})"""
    elapsed: float = page.evaluate(script)
    assert elapsed == elapsed, f"nothing came of {act}"
    page.wait_for_timeout(400)
    return elapsed


def browse(playwright: Playwright, address: str, nodes: int) -> str:
    """Return a row of the table."""
    browser = playwright.chromium.launch(executable_path=chromium(), args=BROWSER_ARGUMENTS)
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(address.split("/graph", maxsplit=1)[0])
    page.wait_for_selector("h1")
    cold = ready_s(page, address)
    warm = min(ready_s(page, address) for _ in range(3))
    page.wait_for_timeout(1000)
    key = "document.getElementById('graph-canvas').dataset.ready"
    press = "document.getElementById('graph-canvas').dispatchEvent(new KeyboardEvent('keydown', {key: '%s', bubbles: true}))"
    page.evaluate(f"() => {{ window.before = {key}; {press % 'ArrowDown'} }}")
    page.wait_for_timeout(700)
    opened = []
    for _ in range(3):
        page.evaluate(f"() => {{ window.before = {key} }}")
        opened.append(after_ms(page, press % "Enter", f"{key} !== window.before"))
        page.evaluate(f"() => {{ {press % 'ArrowDown'} }}")
        page.wait_for_timeout(500)
        inside = f"{CY}.nodes('[kind = \"block\"]')"
        page.evaluate(
            f"() => {{ const all = {inside}; window.studio.view.changeView({{block: all[all.length - 1].data('block')}}) }}"
        )
        page.wait_for_timeout(500)
    frames = {act: page.evaluate(FRAMES.replace("CYTOSCAPE", CY).replace("ACT", MOVES[act])) for act in MOVES}
    elements = page.evaluate(f"{CY}.elements().length")
    near = []
    for share in (2, 3, 5, 7):
        page.evaluate(f"() => {{ window.before = {key} }}")
        change = f"window.studio.view.changeView({{show: 'near', node: '{nodes // share}'}})"
        near.append(after_ms(page, change, f"{key} !== window.before"))
        page.wait_for_timeout(1500)
    finds = []
    for text in (f"layer{LAYERS // 2}.mlp", "/attention.[qk]/", "type:compute"):
        search = f"window.studio.view.changeView({{q: '{text}'}}); window.hits = document.querySelector('.cs-graph-count')?.textContent"
        finds.append(
            after_ms(
                page,
                search,
                "document.querySelector('.cs-graph-count') && document.querySelector('.cs-graph-count').textContent !== window.hits",
            )
        )
    most = most_frames(browser)
    browser.close()
    return (
        f"| {nodes:,} | {cold:.2f} | {warm:.2f} | {max(opened):.0f} | {near[0]:.0f}, {max(near[1:]):.0f} | {max(finds):.0f} "
        f"| {elements} | {frames['drag']:.0f} | {frames['zoom']:.0f} | {most:.0f} |"
    )


def measure(nodes: int, folder: str) -> str:
    """Return the row of a rank of so many nodes."""
    job = Workspace(folder).save(rank_of(nodes), f"graph {nodes}")
    with serve_workspace(folder) as address, sync_playwright() as playwright:
        return browse(playwright, f"{root_of(address)}/graph?job={job}", nodes)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("nodes", type=int, nargs="*", default=[1_000, 100_000, 1_000_000])
    print(
        "| nodes | ready cold s | warm s | open ms | neighbourhood ms | search ms | elements | drag fps | zoom fps | of an empty page |"
    )
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for nodes in parser.parse_args().nodes:
        with tempfile.TemporaryDirectory() as folder:
            print(measure(nodes, folder), flush=True)


if __name__ == "__main__":
    main()
