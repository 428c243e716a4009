/* The names of ranks and lanes, left of them. */
(function (t) {
  "use strict";

  var LANES = { compute: "compute", communication: "", memory: "memory", cpu: "CPU", thread: "thread ", stream: "stream " };

  function laneName(row) {
    var kind = t.chart.kinds[t.chart.kind[row]], name = t.chart.names[t.chart.name[row]];
    if (kind === "communication") return /^\d+$/.test(name) ? "group " + name : name;
    return LANES[kind] + (name || "");
  }

  function gutter(pen, wide, high) {
    pen.fillStyle = t.look.panelText;
    pen.fillRect(0, t.AXIS, t.GUTTER, high - t.AXIS);
    pen.textBaseline = "middle";
    t.inParts(pen, 0, wide, high, function (groups, pinned) {
      groups.forEach(function (group) { name(pen, wide, group, pinned); });
    });
    pen.fillStyle = t.look.border;
    pen.fillRect(t.GUTTER - 1, t.AXIS, 1, high - t.AXIS);
    if (t.pinHeight) {
      pen.fillStyle = t.look.dim;
      pen.fillRect(0, t.AXIS + t.pinHeight - 1, wide, 1.5);
    }
  }

  function name(pen, wide, group, pinned) {
    var at = t.chart.placeOf.get(group.rank), up = pinned ? 0 : t.size.top, ceiling = t.AXIS + (pinned ? 0 : t.pinHeight);
    var top = t.AXIS + t.chart.y[at] - up, bottom = t.AXIS + t.chart.y[at + 1] - up;
    pen.fillStyle = t.look.border;
    if (at) pen.fillRect(0, Math.round(top), wide, 1);
    if (t.chosen === group.rank) {
      pen.fillStyle = t.look.accent;
      pen.fillRect(0, Math.max(top + 1, ceiling), 3, bottom - Math.max(top + 1, ceiling));
    }
    var y = Math.min(Math.max(top + t.PAD / 2 + 8, ceiling + 10), Math.max(bottom - 9, top + 9));
    pen.fillStyle = t.look.dim;
    twisty(pen, 14, y, group.folded);
    pen.font = t.look.bold;
    pen.fillStyle = t.look.text;
    var title = "rank " + group.rank;
    pen.fillText(title, 24, y + 0.5);
    var isPinned = t.pins.indexOf(group.rank) >= 0;
    group.pinAt = 24 + t.textWidth(pen, title) + 11;
    if (isPinned || (t.pointer && t.pointer[0] < t.GUTTER && t.pointer[1] > top && t.pointer[1] <= bottom)) pin(pen, group.pinAt, y, isPinned);
    if (group.folded) return;
    pen.font = t.look.font;
    pen.fillStyle = t.look.dim;
    for (var row = group.first; row < group.first + group.count; row++) {
      if (t.chart.level[row]) continue;
      var text = cutEnd(pen, laneName(row), t.GUTTER - 100);
      pen.fillText(text, t.GUTTER - 8 - t.textWidth(pen, text), t.placeOfRow(row).y + t.BAR / 2 + 0.5);
    }
  }

  /* A drawing pin; filled where it holds. */
  function pin(pen, x, y, holds) {
    pen.strokeStyle = pen.fillStyle = holds ? t.look.accent : t.look.dim;
    pen.lineWidth = 1.3;
    pen.beginPath();
    pen.arc(x, y - 2.5, 3.2, 0, 2 * Math.PI);
    if (holds) pen.fill();
    pen.stroke();
    pen.beginPath();
    pen.moveTo(x, y + 0.5);
    pen.lineTo(x, y + 6);
    pen.stroke();
  }

  function cutEnd(pen, text, room) {
    var wide = t.textWidth(pen, text);
    return wide <= room ? text : text.slice(0, Math.max(1, Math.floor((text.length * (room - 8)) / wide))) + "…";
  }

  function twisty(pen, at, y, folded) {
    pen.beginPath();
    if (folded) {
      pen.moveTo(at - 2, y - 4);
      pen.lineTo(at + 3, y);
      pen.lineTo(at - 2, y + 4);
    } else {
      pen.moveTo(at - 4, y - 2);
      pen.lineTo(at, y + 3);
      pen.lineTo(at + 4, y - 2);
    }
    pen.fill();
  }

  t.laneName = laneName;
  t.gutter = gutter;
})(window.studioTimeline = window.studioTimeline || {});
