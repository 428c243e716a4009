/** The one module Dash lists. It imports all others and gives the loader the callbacks of each page. */

import { callbacks as asked, watchButtons } from "./base/asked.mjs";
import { parseCsv } from "./base/csv.mjs";
import { bringCallbacks, keepOldNames, setProps, showTests } from "./base/dash.mjs";
import { byId } from "./base/dom.mjs";
import * as exporting from "./base/export.mjs";
import { formatTime } from "./base/format.mjs";
import { watchStatic } from "./base/still.mjs";
import * as view from "./base/view.mjs";
import { startComparePage } from "./compare/page.mjs";
import { watchTray } from "./compare/tray.mjs";
import { callbacks as frame, followView } from "./frame/frame.mjs";
import { watchHints } from "./frame/hints.mjs";
import { watchLinks } from "./frame/links.mjs";
import { watchPalette } from "./frame/palette.mjs";
import { followSystemTheme } from "./frame/theme.mjs";
import { startUploads } from "./home/upload.mjs";
import { startGraphPage } from "./graph/page.mjs";
import { startNodesPage } from "./nodes/page.mjs";
import { callbacks as simulate } from "./simulate/simulate.mjs";
import { startTimelinePage } from "./timeline/page.mjs";

bringCallbacks({
  studio_asked: asked,
  studio_compare: startComparePage(),
  studio_frame: frame,
  studio_graph: startGraphPage(),
  studio_nodes: startNodesPage(),
  studio_simulate: simulate,
  studio_timeline: startTimelinePage(),
});

followView();
followSystemTheme();
watchStatic();
watchLinks();
watchButtons();
watchHints();
watchPalette();
watchTray();
exporting.watchExports();
const uploads = startUploads({
  visit: view.visit,
  imported: (job) => {
    setProps("imported", { data: job });
    if (byId("home-jobs")) setProps("home-refresh", { data: job });
  },
});

showTests({ view, uploads });

// For the scripts that are no modules yet.
keepOldNames({
  studioTimeline: { time: formatTime },
  studioView: {
    read: view.readView, change: view.changeView, address: view.addressOf, isTouched: view.isTouched,
    visit: view.visit, go: view.goTo, timeUnit: view.timeUnit, say: view.announce, copied: view.copyText,
  },
  studioExport: {
    open: exporting.openTable, parsed: parseCsv, register: exporting.registerFigure, save: exporting.saveFile,
  },
});
