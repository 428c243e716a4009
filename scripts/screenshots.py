"""Take the screenshots of the README: `make screenshots`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from playwright.sync_api import Page, sync_playwright

from scripts.serving import BROWSER_ARGUMENTS, ROOT, chromium, serve_workspace

PICTURES = ROOT / "docs" / "pictures"


def main() -> None:
    """Take all screenshots, or those of the pages named."""
    pages = (overview, graph, nodes, simulate, timeline, collectives, compare, findings, home)
    wanted = sys.argv[1:] or [page.__name__ for page in pages]
    PICTURES.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as workspace,
        serve_workspace(workspace, "--sample") as address,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=chromium(), args=BROWSER_ARGUMENTS)
        for scheme in ("light", "dark"):
            page = browser.new_page(viewport={"width": 1440, "height": 900}, color_scheme=scheme)
            for shown in (page for page in pages if page.__name__ in wanted):
                shown(page, address)
                shoot(page, f"{shown.__name__}-{scheme}")
            page.close()
        browser.close()


def overview(page: Page, address: str) -> None:
    """The job's overview."""
    page.goto(address.split("/overview", maxsplit=1)[0])
    page.click("text=Mixture of experts, out of balance")
    page.wait_for_url("**/overview?job=*")
    page.wait_for_selector("#overview-bars .bars")
    page.wait_for_selector("#overview-advice li")


def graph(page: Page, address: str) -> None:
    """The graph of a rank with a node selected."""
    page.goto(address.replace("/overview", "/graph") + "&rank=0&node=40")
    page.wait_for_selector("#inspector h2")


def nodes(page: Page, address: str) -> None:
    """The list of nodes."""
    page.goto(address.replace("/overview", "/nodes") + "&rank=0&node=40")
    page.wait_for_selector(".ag-row")


def simulate(page: Page, address: str) -> None:
    """A system in the form, and the run on it."""
    page.goto(address.replace("/overview", "/simulate"))
    page.wait_for_selector("#sim-drawing svg")
    page.wait_for_selector("#sim-run:enabled")
    page.click("#sim-run")
    page.wait_for_selector(".sim-result .js-plotly-plot", timeout=120_000)


def timeline(page: Page, address: str) -> None:
    """The recorded timeline around a node."""
    page.goto(address.replace("/overview", "/timeline") + "&rank=0&node=131&from=19600000&to=22600000")
    page.wait_for_selector("#timeline-scroll[data-ready]")
    page.wait_for_selector("#inspector h2")


def collectives(page: Page, address: str) -> None:
    """The sample that is out of balance, its heaviest rank selected."""
    page.goto(address.split("/overview", maxsplit=1)[0])
    page.click("text=Mixture of experts, out of balance")
    page.wait_for_url("**/overview?job=*")
    page.goto(page.url.replace("/overview", "/collectives"))
    page.wait_for_selector("#collectives-heat[data-ready]")
    page.click(".cs-worst-name")
    page.wait_for_selector("#inspector h2")


def compare(page: Page, address: str) -> None:
    """The recording beside the run that `simulate` has made."""
    page.goto(address.replace("/overview", "/compare") + "&run=recorded")
    page.click(".cs-compare-list a")
    page.wait_for_selector("#compare-waterfall .bars")
    page.wait_for_selector("#compare-canvas[data-ready]")


def findings(page: Page, address: str) -> None:
    """What is wrong with the job, or that nothing is."""
    page.goto(address.replace("/overview", "/findings"))
    page.wait_for_selector("#findings-list")


def home(page: Page, address: str) -> None:
    """Where to drop traces, with the jobs that the others have opened."""
    page.goto(address.split("/overview", maxsplit=1)[0])
    page.wait_for_selector("#home-drop[data-upload-ready]")


def shoot(page: Page, name: str) -> None:
    """Take the picture once the page is at rest."""
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(1500)
    page.screenshot(path=PICTURES / f"{name}.png")
    print(f"{name}.png")


if __name__ == "__main__":
    main()
