/* The page: its buttons and its legend, and what Dash calls. */
(function (t) {
  "use strict";

  function showLegend() {
    document.querySelectorAll("#timeline-legend [data-category]").forEach(function (button) {
      button.setAttribute("aria-pressed", String(!t.hidden[Number(button.getAttribute("data-category"))]));
    });
    t.say(t.element("timeline-fold"), t.folds.base && !Object.keys(t.folds.list).length ? "Open all" : "Fold all");
    document.querySelectorAll("#timeline-page [data-order]").forEach(function (button) {
      button.setAttribute("aria-pressed", String(button.getAttribute("data-order") === t.order));
    });
  }

  function toggle(category) {
    t.hidden[category] = !t.hidden[category];
    var names = t.CATEGORIES.filter(function (_, at) { return t.hidden[at]; });
    t.change({ hide: names.join(",") || null });
  }

  function foldAll() {
    t.folds = { base: !(t.folds.base && !Object.keys(t.folds.list).length), list: {} };
    t.writeFolds();
  }

  var BUTTONS = {
    "timeline-fit": function () { t.fit(); }, "timeline-in": function () { t.zoom(2, null); }, "timeline-out": function () { t.zoom(0.5, null); },
    "timeline-fold": foldAll, "timeline-png": function () { t.png(); }, "timeline-csv": function () { t.csv(); }, "timeline-table": function () { t.table(); }, "timeline-svg": function () { t.svg(); }, "timeline-json": function () { t.trace(); }, "timeline-perfetto": function (button) { t.perfetto(button); }, "timeline-help": function () { t.help(); },
    "timeline-keys-close": function () { t.element("timeline-keys").close(); },
  };

  document.addEventListener("click", function (event) {
    var button = event.target.closest && event.target.closest("#timeline-page button");
    if (!button || !t.chart || !t.chart.ready) return;
    var act = BUTTONS[button.id] || t.buttons[button.id];
    if (act) act(button);
    else if (button.hasAttribute("data-order")) t.change({ order: button.getAttribute("data-order") === "rank" ? null : button.getAttribute("data-order"), top: null });
    else if (button.hasAttribute("data-category")) toggle(Number(button.getAttribute("data-category")));
  });
  document.addEventListener("keydown", t.pressed);

  var observer = new ResizeObserver(function () {
    if (t.dom && t.chart && t.chart.ready && t.chart.list) t.arrange(window.studioView.read().top);
    t.draw();
  });

  function mount() {
    var scroll = t.element("timeline-scroll");
    if (!scroll || (t.dom && t.dom.scroll === scroll)) return Boolean(scroll);
    observer.disconnect();
    scroll.textContent = "";
    var canvas = document.createElement("canvas"), spacer = document.createElement("div");
    canvas.setAttribute("aria-hidden", "true");
    scroll.appendChild(canvas);
    scroll.appendChild(spacer);
    t.dom = { scroll: scroll, canvas: canvas, spacer: spacer, status: t.element("timeline-status"), detail: t.element("timeline-detail") };
    t.topShown = "";
    t.pointer = t.drag = t.hover = null;
    t.fingers.clear();
    canvas.addEventListener("pointerdown", t.down);
    canvas.addEventListener("pointermove", t.move);
    canvas.addEventListener("pointerup", t.up);
    canvas.addEventListener("pointercancel", t.up);
    canvas.addEventListener("pointerleave", function () {
      t.pointer = t.hover = null;
      t.meet(null);
      t.contrast(t.selection && t.selection.bar);
      t.draw();
    });
    scroll.addEventListener("wheel", t.wheel, { passive: false });
    scroll.addEventListener("scroll", t.scrolled);
    observer.observe(scroll);
    return true;
  }

  function follow(view, source) {
    if (!source || source.job !== view.job || !mount()) return;
    t.source = source;
    if (!t.chart || t.chart.job !== source.job || t.chart.run !== source.run) t.load(source.job, source.run);
    else t.apply();
  }

  /* For tests and measurements: where a moment of a row is drawn, and what was drawn last. */
  t.point = function (row, at) {
    t.measure();
    var place = t.placeOfRow(row), box = t.dom.canvas.getBoundingClientRect();
    return { x: box.left + t.x(at), y: box.top + place.y + place.height / 2 };
  };
  t.stats = function () {
    return Object.assign({ bytes: t.keptBytes, tiles: t.tiles.size, from: t.shown.from, to: t.shown.to, level: t.zoomLevel() }, t.counts);
  };

  window.dash_clientside = window.dash_clientside || {};
  window.dash_clientside.studio_timeline = {
    follow: function (view, source) {
      follow(view, source);
      return window.dash_clientside.no_update;
    },
    found: function (source, view) {
      follow(view, source);
      return window.dash_clientside.no_update;
    },
    theme: function () {
      if (t.chart && t.chart.ready && t.dom) {
        t.dress();
        t.draw();
      }
      return window.dash_clientside.no_update;
    },
  };

  t.showLegend = showLegend;
})(window.studioTimeline = window.studioTimeline || {});
