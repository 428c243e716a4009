/** The one module Dash lists. It imports all others and gives the loader the callbacks of each page. */

import { callbacks as asked, watchButtons } from "./base/asked.mjs";
import { bringCallbacks, setProps, showTests } from "./base/dash.mjs";
import { byId } from "./base/dom.mjs";
import { watchExports } from "./base/export.mjs";
import { watchStatic } from "./base/still.mjs";
import * as view from "./base/view.mjs";
import { startCollectivesPage } from "./collectives/page.mjs";
import { startComparePage } from "./compare/page.mjs";
import { watchTray } from "./compare/tray.mjs";
import { callbacks as frame, followView } from "./frame/frame.mjs";
import { watchHints } from "./frame/hints.mjs";
import { watchLinks } from "./frame/links.mjs";
import { watchPalette } from "./frame/palette.mjs";
import { followSystemTheme } from "./frame/theme.mjs";
import { startGraphPage } from "./graph/page.mjs";
import { startUploads } from "./home/upload.mjs";
import { startNodesPage } from "./nodes/page.mjs";
import { callbacks as simulate } from "./simulate/simulate.mjs";
import { startTimelinePage } from "./timeline/page.mjs";

const collectives = startCollectivesPage();

bringCallbacks({
  studio_asked: asked,
  studio_collectives: collectives.callbacks,
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
watchExports();
const uploads = startUploads({
  visit: view.visit,
  imported: (job) => {
    setProps("imported", { data: job });
    if (byId("home-jobs")) setProps("home-refresh", { data: job });
  },
});

showTests({ view, uploads, collectives: collectives.page });
