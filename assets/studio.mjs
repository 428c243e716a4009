/** The one module Dash lists. It gives the loader the callbacks; a page's modules come when it is opened. */

import { callbacks as asked, watchButtons } from "./base/asked.mjs";
import { bringCallbacks, loadCallbacks, setProps, showTests } from "./base/dash.mjs";
import { byId } from "./base/dom.mjs";
import { watchExports } from "./base/export.mjs";
import { watchStatic } from "./base/still.mjs";
import { watchUploads } from "./base/uploads.mjs";
import * as view from "./base/view.mjs";
import { watchTray } from "./compare/tray.mjs";
import { callbacks as frame, followView } from "./frame/frame.mjs";
import { watchHints } from "./frame/hints.mjs";
import { watchLinks } from "./frame/links.mjs";
import { watchPalette } from "./frame/palette.mjs";
import { followSystemTheme } from "./frame/theme.mjs";
import { startUploads } from "./home/upload.mjs";

bringCallbacks({
  studio_asked: asked,
  studio_frame: frame,
  studio_collectives: async () => (await import("./collectives/page.mjs")).startCollectivesPage(),
  studio_compare: async () => (await import("./compare/page.mjs")).startComparePage(),
  studio_explain: async () => (await import("./explain/page.mjs")).callbacks,
  studio_graph: async () => (await import("./graph/page.mjs")).startGraphPage(),
  studio_nodes: async () => (await import("./nodes/page.mjs")).startNodesPage(),
  studio_ranks: async () => (await import("./ranks/page.mjs")).callbacks,
  studio_simulate: async () => (await import("./simulate/page.mjs")).callbacks,
  studio_sql: async () => (await import("./sql/page.mjs")).startSqlPage(),
  studio_sweep: async () => (await import("./sweep/page.mjs")).callbacks,
  studio_timeline: async () => (await import("./timeline/page.mjs")).startTimelinePage(),
  studio_trends: async () => (await import("./trends/page.mjs")).callbacks,
  studio_validate: async () => (await import("./validate/page.mjs")).callbacks,
  studio_workloads: async () => (await import("./workloads/page.mjs")).callbacks,
});
// The page that is opened need not wait for Dash to ask.
loadCallbacks(`studio_${location.pathname.split("/")[1]}`);

followView();
followSystemTheme();
watchStatic();
watchUploads();
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

showTests({ view, uploads });
