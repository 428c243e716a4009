/* A collective is one event on many lanes: the bars of all who take part, and how far apart they arrived. */
(function (t) {
  "use strict";

  var known = new Map(); /* answers of the server, by rank and node */
  var shown = null; /* what is lit: the answer for the bar under the pointer, else for the selected one */
  var wanted = "";

  t.onLoad.push(function () {
    known.clear();
    shown = null;
    wanted = "";
  });

  function communicates(bar) {
    return bar.category === undefined ? /^COMM_/.test(bar.type || "") : bar.category >= 1 && bar.category <= 3;
  }

  function keyOf(bar) {
    return bar && communicates(bar) ? bar.rank + "/" + bar.index : "";
  }

  /* Light the peers of the bar under the pointer; without one, those of the selected node. */
  function meet(bar) {
    var of = bar || (t.selection && t.selection.bar);
    var key = keyOf(of);
    if (key === wanted) return;
    wanted = key;
    shown = known.get(key) || null;
    t.draw();
    if (!key || shown) return;
    t.later("peers", 40, function () { ask(key, of); });
  }

  function ask(key, bar) {
    var mine = t.chart;
    if (key !== wanted) return;
    t.get(t.address("/peers", { rank: bar.rank, index: bar.index }))
      .then(function (answer) { return answer.json(); })
      .then(function (answer) {
        if (mine !== t.chart) return;
        if (known.size > 300) known.clear();
        known.set(key, summary(answer));
        if (key !== wanted) return;
        shown = known.get(key);
        t.resay();
        t.draw();
      })
      .catch(function () { /* The bar alone is shown. */ });
  }

  function summary(answer) {
    var bars = answer.peers.map(function (one) { return { rank: one[0], row: one[1], start: one[2], end: one[3], index: one[4] }; });
    if (bars.length < 2) return { bars: [] };
    var last = bars[bars.length - 1];
    return { bars: bars, members: answer.members, first: bars[0].start, arrived: last.start, last: last.rank, group: answer.group, message: answer.position < 0 };
  }

  /* What the sentence about a bar adds: how long it waited, and for whom. */
  function waited(bar) {
    var found = known.get(keyOf(bar));
    if (!found || !found.bars.length) return "";
    if (found.message) return " · with rank " + found.bars.map(function (one) { return one.rank; }).filter(function (rank) { return rank !== bar.rank; }).join();
    var away = Math.min(found.arrived, bar.end) - bar.start;
    var words = away > 0 ? ", of which " + t.time(away) + " waiting for rank " + found.last : "";
    if (found.arrived === found.first) return words + " · " + found.bars.length + " ranks begin together";
    return words + " · " + found.bars.length + " ranks arrive within " + t.time(found.arrived - found.first);
  }

  function overlay(pen, wide, high) {
    if (!shown || !shown.bars.length) return;
    var look = t.look, top = Infinity, bottom = -Infinity;
    var boxes = shown.bars.map(function (bar) {
      var box = t.boxOf(bar);
      if (!box) return null;
      top = Math.min(top, box.y);
      bottom = Math.max(bottom, box.y + box.height);
      return box;
    });
    pen.save();
    pen.beginPath();
    pen.rect(t.GUTTER, t.AXIS, wide - t.GUTTER, high - t.AXIS);
    pen.clip();
    var from = t.limit(t.x(shown.first)), to = t.limit(t.x(shown.arrived));
    if (!shown.message && to - from > 1.5) {
      pen.fillStyle = look.text;
      pen.globalAlpha = 0.07;
      pen.fillRect(from, Math.max(top - 4, t.AXIS), to - from, Math.min(bottom, high) - Math.max(top - 4, t.AXIS) + 4);
      pen.globalAlpha = 0.75;
      pen.fillRect(Math.round(to), Math.max(top - 4, t.AXIS), 1, Math.min(bottom, high) - Math.max(top - 4, t.AXIS) + 4);
      pen.globalAlpha = 1;
    }
    var line = [];
    boxes.forEach(function (box, at) {
      if (!box || box.behind || box.y + box.height < t.AXIS || box.y > high) return;
      var left = Math.max(box.left, t.GUTTER - 4), right = Math.min(box.right, wide + 4);
      if (right < t.GUTTER || left > wide) return;
      if (!shown.message) {
        var until = Math.min(t.limit(t.x(shown.arrived)), right);
        if (until - left > 2) {
          pen.fillStyle = look.waiting;
          pen.fillRect(left, box.y, until - left, box.height);
        }
        line.push([box.left, box.y, box.height]);
      }
      pen.lineWidth = box.height < t.BAR ? 1 : 1.5;
      pen.strokeStyle = look.text;
      if (right - left > 3) pen.strokeRect(left + 0.5, box.y + 0.5, right - left - 1, box.height - 1);
      else {
        pen.fillStyle = look.text;
        pen.fillRect(left, box.y, Math.max(2, right - left), box.height);
      }
    });
    spread(pen, line);
    pen.restore();
  }

  /* The line of arrivals, from lane to lane. */
  function spread(pen, line) {
    if (line.length < 2) return;
    line.sort(function (a, b) { return a[1] - b[1]; });
    [[t.look.bg, 4], [t.look.text, 1.4]].forEach(function (stroke) {
      pen.beginPath();
      line.forEach(function (one, at) {
        var px = t.limit(one[0]);
        if (at) pen.lineTo(px, one[1]);
        else pen.moveTo(px, one[1]);
        pen.lineTo(px, one[1] + one[2]);
      });
      pen.strokeStyle = stroke[0];
      pen.lineWidth = stroke[1];
      pen.stroke();
    });
  }

  function onAxis(pen, wide) {
    if (!shown || !shown.bars.length || shown.message || shown.arrived === shown.first) return;
    var from = t.x(shown.first), to = t.x(shown.arrived);
    if (to < t.GUTTER || from > wide) return;
    var text = "arrive within " + t.time(shown.arrived - shown.first) + ", rank " + shown.last + " last";
    pen.font = t.look.font;
    var room = t.textWidth(pen, text) + 12;
    var left = Math.min(Math.max((Math.max(from, t.GUTTER) + Math.min(to, wide)) / 2 - room / 2, t.GUTTER + 2), wide - room - 4);
    pen.fillStyle = t.look.text;
    pen.fillRect(left, t.AXIS - 20, room, 18);
    pen.fillStyle = t.look.bg;
    pen.textBaseline = "middle";
    pen.fillText(text, left + 6, t.AXIS - 10.5);
  }

  t.overlays.push(overlay);
  t.onAxis.push(onAxis);
  t.meet = meet;
  t.waited = waited;
})(window.studioTimeline = window.studioTimeline || {});
