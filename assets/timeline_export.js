/* What is shown, saved. */
(function (t) {
  "use strict";

  function save(url, name) {
    var link = document.createElement("a");
    link.href = url;
    link.download = name;
    document.body.appendChild(link);
    link.click();
    link.remove();
  }

  function png() {
    t.dom.canvas.toBlob(function (blob) {
      var url = URL.createObjectURL(blob);
      save(url, "timeline-" + t.chart.job + ".png");
      window.setTimeout(function () { URL.revokeObjectURL(url); }, 10000);
    });
  }

  /* The window that is marked, else the one in sight; of the ranks in sight. */
  function spans() {
    var window_ = t.marked || [t.shown.from, t.shown.to];
    var rows = t.visible(t.dom.scroll.clientHeight).map(function (group) { return group.first + "-" + (group.first + group.count - 1); });
    return t.address("/spans.csv", { from: Math.max(0, Math.floor(window_[0])), to: Math.max(1, Math.ceil(window_[1])), rows: rows.join(",") });
  }

  function csv() {
    save(spans(), "timeline-" + t.chart.job + ".csv");
  }

  function table() {
    window.studioExport.open({ name: "timeline-" + t.chart.job, title: (t.marked ? "The marked window" : "What is in sight") + ", node by node", source: spans() });
  }

  function trace() {
    save(t.address("/trace.json", {}), "timeline-" + t.chart.job + ".json");
  }

  /* In Perfetto's own format, where what writes it is there. */
  function perfetto(button) {
    var missing = button.getAttribute("data-missing");
    if (missing) window.dash_clientside.set_props("toast", { children: missing });
    else save(t.address("/trace.pftrace", {}), "timeline-" + t.chart.job + ".pftrace");
  }

  function svg() {
    var text = t.drawnAsSvg();
    var url = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
    save(url, "timeline-" + t.chart.job + ".svg");
    window.setTimeout(function () { URL.revokeObjectURL(url); }, 10000);
  }

  t.saved = save;
  t.trace = trace;
  t.perfetto = perfetto;
  t.svg = svg;
  t.png = png;
  t.csv = csv;
  t.table = table;
})(window.studioTimeline = window.studioTimeline || {});
