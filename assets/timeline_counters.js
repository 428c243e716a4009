/* Counter rows under the lanes: what all ranks have under way, on the same time axis. */
(function (t) {
  "use strict";

  var HIGH = 30;
  var tiles = new Map(), asked = new Set();
  var series = null, failed = false, shown = true;
  var drawn = "", painted = 0;

  t.onLoad.push(function () {
    tiles.clear();
    asked.clear();
    series = null;
    failed = false;
    drawn = "";
  });

  t.onApply.push(function (view) {
    shown = view.counters !== "off";
    var button = t.element("timeline-counts"), box = t.element("timeline-counters");
    if (button) button.setAttribute("aria-pressed", String(shown));
    if (box) box.hidden = !shown;
    drawn = "";
  });

  function key(level, index) {
    return level + "/" + index;
  }

  function ask(level, index) {
    if (asked.has(key(level, index)) || failed || index < 0) return;
    asked.add(key(level, index));
    var mine = t.chart;
    t.get(t.address("/counters", { level: level, tile: index }))
      .then(function (answer) { return answer.arrayBuffer(); })
      .then(function (buffer) {
        if (mine !== t.chart) return;
        var found = window.studioUnpacked(buffer);
        if (tiles.size > 400) {
          tiles.clear();
          asked.clear();
        }
        tiles.set(key(level, index), found);
        series = found.series;
        drawn = "";
        t.draw();
      })
      .catch(function () { failed = mine === t.chart; });
  }

  function text(unit, value) {
    if (unit === "share") return (100 * value).toFixed(value < 0.0995 ? 2 : value < 0.9995 ? 1 : 0) + " %";
    if (unit === "bytes") return t.scaled(Math.round(value), t.SIZES);
    return value >= 100 || Number.isInteger(value) ? Math.round(value).toLocaleString("en") : value.toPrecision(3);
  }

  /* After every frame: what the frame showed, once the lanes have all they need. */
  function frame(complete) {
    var box = t.element("timeline-counters");
    if (!box || !shown) return;
    var level = t.zoomLevel(), span = t.tileSpan(level);
    var low = Math.max(0, Math.floor(t.shown.from / span)), last = Math.max(low, Math.floor(Math.min(t.shown.to, t.chart.own) / span));
    if (complete) {
      if (!series) ask(t.chart.top, 0);
      for (var index = low; index <= last; index++) ask(level, index);
    }
    if (!series) return;
    var canvas = canvasOf(box);
    var at = t.pointer && t.pointer[0] > t.GUTTER && !t.dragging() ? t.ns(t.pointer[0]) : null;
    var now = [t.shown.from, t.shown.to, t.size.wide, t.look.name, at, tiles.size].join();
    if (now === drawn) return;
    /* In motion the lanes come first. */
    if ((t.dragging() || t.animation) && performance.now() - painted < 45) return t.later("counters", 60, t.pointCounters);
    painted = performance.now();
    drawn = now;
    paint(canvas, level, [low, last], at);
  }

  function canvasOf(box) {
    var canvas = box.firstChild;
    if (!canvas) {
      canvas = document.createElement("canvas");
      canvas.setAttribute("role", "img");
      canvas.addEventListener("pointermove", function (event) {
        t.pointer = [event.clientX - canvas.getBoundingClientRect().left, -1];
        tell(event.clientY - canvas.getBoundingClientRect().top);
        t.draw();
      });
      canvas.addEventListener("pointerleave", function () {
        t.pointer = null;
        t.resay();
        t.draw();
      });
      box.appendChild(canvas);
    }
    var wide = Math.round(t.size.wide * t.look.ratio), high = Math.round(HIGH * series.length * t.look.ratio);
    if (canvas.width !== wide || canvas.height !== high) {
      canvas.width = wide;
      canvas.height = high;
      canvas.style.width = t.size.wide + "px";
      canvas.style.height = HIGH * series.length + "px";
      canvas.setAttribute("aria-label", "Counters over time: " + series.map(function (one) { return one.title; }).join(", "));
    }
    return canvas;
  }

  function value(row, at, level) {
    var span = t.tileSpan(level), found = tiles.get(key(level, Math.floor(at / span)));
    if (at < 0 || at > t.chart.own || !found) return null;
    var bin = Math.min(found.bins - 1, Math.floor((at % span) / Math.pow(2, level)));
    return [found.mean[row * found.bins + bin], found.peak[row * found.bins + bin]];
  }

  function tell(y) {
    var row = Math.floor(y / HIGH), at = t.ns(t.pointer[0]);
    if (!series || !series[row]) return;
    var found = value(row, at, t.zoomLevel());
    if (!found) return;
    t.say(t.dom.status, series[row].title + " · " + t.moment(at) + " · " + text(series[row].unit, found[0]) + " on average, at most " + text(series[row].unit, found[1]) + " · " + series[row].about);
  }

  /* Shares are drawn to a round one, so that runs can be compared. */
  function scale(most) {
    return [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1].find(function (one) { return one >= most; }) || most;
  }

  function paint(canvas, level, range, at) {
    var pen = canvas.getContext("2d"), wide = t.size.wide;
    pen.setTransform(t.look.ratio, 0, 0, t.look.ratio, 0, 0);
    pen.fillStyle = t.look.bg;
    pen.fillRect(0, 0, wide, HIGH * series.length);
    series.forEach(function (one, row) {
      var floor = (row + 1) * HIGH - 2, most = one.unit === "share" ? scale(one.most) : one.most || 1;
      for (var index = range[0]; index <= range[1]; index++) {
        var part = tiles.get(key(level, index)), span = t.tileSpan(level);
        if (part) bins(pen, part, row, index * span, Math.pow(2, level), floor, most);
        else {
          var whole = tiles.get(key(t.chart.top, 0));
          if (whole) bins(pen, whole, row, 0, Math.pow(2, t.chart.top), floor, most, [index * span, (index + 1) * span]);
        }
      }
      if (one.unit === "share" && one.most > 1) {
        pen.fillStyle = t.look.dim;
        pen.fillRect(t.GUTTER, floor - (HIGH - 7) / most, wide - t.GUTTER, 0.7);
      }
    });
    pen.fillStyle = t.look.panelText;
    pen.fillRect(0, 0, t.GUTTER, HIGH * series.length);
    pen.textBaseline = "middle";
    pen.font = t.look.font;
    series.forEach(function (one, row) {
      var now = at === null ? null : value(row, at, level);
      pen.fillStyle = t.look.text;
      pen.fillText(one.title, 12, row * HIGH + 10);
      pen.fillStyle = t.look.dim;
      pen.fillText(now ? text(one.unit, now[0]) : "at most " + text(one.unit, one.most), 12, row * HIGH + 22);
      pen.fillStyle = t.look.border;
      pen.fillRect(0, row * HIGH, wide, 1);
    });
    pen.fillRect(t.GUTTER - 1, 0, 1, HIGH * series.length);
    if (at !== null) {
      pen.fillStyle = t.look.text;
      pen.globalAlpha = 0.5;
      pen.fillRect(Math.round(t.x(at)), 0, 1, HIGH * series.length);
      pen.globalAlpha = 1;
    }
  }

  /* The mean as an area, the peak as a line above it. */
  function bins(pen, part, row, begin, width, floor, most, only) {
    var from = only ? only[0] : begin, to = only ? only[1] : begin + width * part.bins;
    var first = Math.max(0, Math.floor((Math.max(from, t.shown.from) - begin) / width));
    var last = Math.min(part.bins, Math.ceil((Math.min(to, t.shown.to) - begin) / width));
    /* Whole pixels: thousands of these are drawn at every step of a pan. */
    var grain = t.look.ratio;
    function column(at, y, high) {
      var left = Math.round((x0 + at * wide) * grain), right = Math.round((x0 + (at + 1) * wide) * grain);
      if (right > left) pen.fillRect(left / grain, y, (right - left) / grain, high);
    }
    var room = HIGH - 7, at, wide = (width / (t.shown.to - t.shown.from)) * t.width(), x0 = t.x(begin);
    pen.fillStyle = t.look.text;
    pen.globalAlpha = 0.42;
    for (at = first; at < last; at++) {
      var high = (part.mean[row * part.bins + at] / most) * room;
      if (high) column(at, floor - high, high);
    }
    pen.globalAlpha = 0.85;
    for (at = first; at < last; at++) {
      var peak = (part.peak[row * part.bins + at] / most) * room;
      if (peak) column(at, floor - Math.max(peak, 0.7), 1);
    }
    pen.globalAlpha = 1;
  }

  function toggle() {
    t.change({ counters: shown ? "off" : null });
  }

  var waiting = 0;

  /* The pointer has moved over the lanes, and nothing else has. */
  t.pointCounters = function () {
    if (waiting || !series || !shown) return;
    waiting = window.requestAnimationFrame(function () {
      waiting = 0;
      if (t.dom && t.chart && t.chart.ready && t.dom.canvas.isConnected) frame(false);
    });
  };

  /* The window that is marked, else the one in sight. */
  function query() {
    var asked = t.marked && t.marked[1] > t.marked[0] ? t.marked : [t.shown.from, Math.min(t.shown.to, t.chart.own)];
    var from = Math.max(0, Math.floor(asked[0]));
    return { from: from, to: Math.max(from + 1, Math.ceil(asked[1])) };
  }

  t.buttons["timeline-counters-csv"] = function () {
    t.saved(t.address("/counters/course.csv", query()), "counters-" + t.chart.job + ".csv");
  };
  t.buttons["timeline-counters-table"] = function () {
    var title = "Counters in " + (t.marked ? "the marked window" : "what is in sight");
    t.get(t.address("/counters/window", query()))
      .then(function (answer) { return answer.json(); })
      .then(function (found) { window.studioExport.open({ name: "counters-" + t.chart.job, title: title, table: JSON.stringify(found) }); })
      .catch(function (error) { window.dash_clientside.set_props("toast", { children: error.message || "The studio does not answer." }); });
  };

  t.measured = text;
  t.onFrame.push(frame);
  t.keys.k = toggle;
  t.buttons["timeline-counts"] = toggle;
})(window.studioTimeline = window.studioTimeline || {});
