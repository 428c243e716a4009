/* The window, folds, order and hidden categories, as the address holds them. */
(function (t) {
  "use strict";

  /* What this page changes it shows at once; the others follow. */
  function change(patch, options) {
    window.studioView.change(patch, options);
    apply();
  }

  function apply() {
    if (!t.chart || !t.chart.ready || !t.dom) return;
    t.measure();
    var view = window.studioView.read();
    t.onBefore.forEach(function (act) { act(view); });
    /* The address may be behind the hand: only a window that is new to it is taken from there. */
    var window_ = (view.from || "") + "/" + (view.to || "");
    if (window_ !== t.windowKey) {
      var from = Number(view.from), to = Number(view.to);
      t.windowKey = window_;
      t.animation = null;
      t.shown = view.to !== undefined && to > from ? clamp(from, to) : whole();
    }
    t.hidden = {};
    (view.hide || "").split(",").forEach(function (name) { if (t.CATEGORIES.indexOf(name) >= 0) t.hidden[t.CATEGORIES.indexOf(name)] = true; });
    t.order = view.order === "finish" || view.order === "idle" ? view.order : "rank";
    t.chosen = view.rank === undefined ? null : Number(view.rank);
    t.pins = (view.pin || "").split(",").filter(function (one) { return /^\d+$/.test(one); }).map(Number);
    var mark = /^(\d+)-(\d+)$/.exec(view.mark || "");
    if (!t.marking()) t.marked = mark ? [Math.min(Number(mark[1]), t.chart.span), Math.min(Number(mark[2]), t.chart.span)] : null;
    readFolds(view.fold);
    t.dress();
    if (t.order === "idle" && !t.chart.idle) askIdle(t.chart);
    t.arrange(view.top);
    t.showLegend();
    t.select(view);
    t.onApply.forEach(function (act) { act(view); });
    t.draw();
  }

  /* How long each rank was idle: asked for when the order needs it. */
  function askIdle(mine) {
    mine.idle = new Map();
    t.get(t.address("/idle", {}))
      .then(function (answer) { return answer.json(); })
      .then(function (answer) {
        answer.idle.forEach(function (idle, at) { mine.idle.set(mine.ranks[at], idle); });
        if (mine === t.chart) apply();
      })
      .catch(function () { mine.idle = null; });
  }

  function whole() {
    var margin = t.chart.span * 0.01;
    return { from: -margin, to: t.chart.span + margin };
  }

  function clamp(from, to) {
    var all = whole();
    var width = Math.min(Math.max(to - from, t.NARROWEST_NS), all.to - all.from);
    var middle = (from + to) / 2;
    from = Math.min(Math.max(middle - width / 2, all.from), all.to - width);
    return { from: from, to: from + width };
  }

  function readFolds(text) {
    var parts = (text || "").split(",").filter(Boolean);
    t.folds = { base: t.chart.groups.size > t.OPEN_AT_MOST, list: {} };
    parts.forEach(function (part) {
      if (part === "all" || part === "none") t.folds.base = part === "all";
      else if (/^\d+$/.test(part)) t.folds.list[part] = true;
    });
  }

  function writeFolds() {
    var usual = t.chart.groups.size > t.OPEN_AT_MOST;
    var parts = Object.keys(t.folds.list).filter(function (rank) { return t.folds.list[rank]; });
    if (t.folds.base !== usual) parts.unshift(t.folds.base ? "all" : "none");
    change({ fold: parts.join(",") || null });
  }

  function isFolded(rank) {
    return t.folds.base !== Boolean(t.folds.list[rank]);
  }

  /* The window goes into the address when it comes to rest; one gesture is one step back. */
  function rested() {
    t.later("rest", 250, function () {
      if (!t.chart || !t.chart.ready || t.animation || t.dragging()) return rested();
      var all = whole();
      var fits = t.shown.to - t.shown.from >= (all.to - all.from) * 0.9999;
      var now = Date.now();
      var patch = { from: fits ? null : Math.round(t.shown.from), to: fits ? null : Math.round(t.shown.to) };
      t.windowKey = fits ? "/" : patch.from + "/" + patch.to;
      change(patch, { replace: now - t.lastWrite < 1200 });
      t.lastWrite = now;
    });
  }

  function scrolled() {
    t.draw();
    t.later("scrolled", 400, function () {
      if (!t.chart || !t.chart.ready || !t.dom) return;
      var group = t.chart.list[Math.max(0, t.groupAt(t.dom.scroll.scrollTop + t.pinHeight + t.PAD))];
      var top = t.dom.scroll.scrollTop > 2 && group ? String(group.rank) : null;
      if ((window.studioView.read().top || null) !== top) change({ top: top }, { replace: true });
    });
  }

  t.change = change;
  t.apply = apply;
  t.whole = whole;
  t.clamp = clamp;
  t.writeFolds = writeFolds;
  t.isFolded = isFolded;
  t.rested = rested;
  t.scrolled = scrolled;
})(window.studioTimeline = window.studioTimeline || {});
