/** The button "Report": saves the shown run, or the comparison, as one HTML file. */

import { saveFile } from "../base/export.mjs";
import { announce, readView } from "../base/view.mjs";

/** Clicks on the button that are carried out. */
let counted = 0;

/**
 * Save a report by a request of our own, so that an error is shown here and not as a page.
 *
 * @param {string} run
 */
async function saveReport(run) {
  const view = readView();
  const others = window.location.pathname === "/compare" && view.with ? view.with.split(",") : [];
  const sides = [`${view.job}/${run}`, ...others].map((side) => ["side", side]);
  announce("Writing the report…");
  try {
    const answer = await fetch(`/api/report?${new URLSearchParams(sides)}`);
    if (!answer.ok) {
      const { error } = await answer.json();
      throw new Error(error?.message ?? `The studio answered with ${answer.status}.`);
    }
    const name = /filename="([^"]+)"/.exec(answer.headers.get("Content-Disposition") ?? "")?.[1];
    saveFile(name ?? "report.html", await answer.blob());
    announce("Report saved.");
  } catch (error) {
    announce(error instanceof Error ? error.message : String(error));
  }
}

/**
 * Save a report at a click; the button is disabled while there is no run.
 *
 * @param {number | null} clicks
 * @param {string | null} run
 * @returns {boolean}
 */
export function report(clicks, run) {
  // Dash may report a click together with the run that has come meanwhile.
  if ((clicks ?? 0) > counted && run) void saveReport(run);
  counted = clicks ?? 0;
  return !run;
}
