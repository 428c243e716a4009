/* The selected node's ring, and the arrows of its dependencies. */
(function (t) {
  "use strict";

  function boxOf(bar) {
    if (!t.chart.groups.has(bar.rank)) return null;
    var place = t.placeOfRow(bar.row);
    return { left: t.x(bar.start), right: Math.max(t.x(bar.end), t.x(bar.start) + 1.5), y: place.y, height: place.height, behind: place.behind };
  }

  function ring(pen) {
    var box = t.selection && t.selection.bar && boxOf(t.selection.bar);
    if (!box || box.behind) return;
    var left = Math.max(box.left, t.GUTTER - 6), right = Math.min(box.right, t.size.wide + 6);
    if (right < t.GUTTER || box.y + box.height < t.AXIS) return;
    pen.save();
    pen.beginPath();
    pen.rect(t.GUTTER, t.AXIS, t.size.wide, t.size.high);
    pen.clip();
    pen.lineWidth = 2;
    pen.strokeStyle = t.look.accent;
    pen.strokeRect(left - 2, box.y - 2, Math.max(right - left, 2) + 4, box.height + 4);
    pen.restore();
  }

  /* Direct dependencies of the selected node: what it waits for, and what waits for it. */
  function arrows(pen, wide, high) {
    var box = t.selection && t.selection.bar && boxOf(t.selection.bar);
    if (!box) return;
    pen.save();
    pen.beginPath();
    pen.rect(t.GUTTER, t.AXIS, wide - t.GUTTER, high - t.AXIS);
    pen.clip();
    pen.fillStyle = t.look.text;
    if (!t.chain(pen)) {
      t.selection.up.forEach(function (one) { arrow(pen, boxOf(one), box, one.data); });
      t.selection.down.forEach(function (one) { arrow(pen, box, boxOf(one), one.data); });
    }
    pen.restore();
  }

  function arrow(pen, from, to, data) {
    if (!from || !to) return;
    var x0 = limit(from.right), x1 = limit(to.left), head = 1;
    var y1, curve;
    if (from.y === to.y) {
      /* Along one lane it goes below the bars, which it would strike out. */
      var low = from.y + from.height + 1, bow = low + Math.min(12, 5 + Math.abs(x1 - x0) / 40);
      y1 = low;
      curve = [x0, low, x0 + 3, bow, x1 - 3, bow, x1 + 1, low + 4];
    } else {
      var y0 = from.y + from.height / 2, bend = Math.min(60, Math.max(14, Math.abs(x1 - x0) / 2));
      y1 = to.y + to.height / 2;
      head = 0;
      curve = [x0, y0, x0 + bend, y0, x1 - bend, y1, x1 - 4, y1];
    }
    pen.beginPath();
    pen.moveTo(curve[0], curve[1]);
    pen.bezierCurveTo(curve[2], curve[3], curve[4], curve[5], curve[6], curve[7]);
    pen.setLineDash([]);
    pen.strokeStyle = t.look.bg;
    pen.lineWidth = 3.5;
    pen.stroke();
    pen.setLineDash(data ? [] : [4, 3]);
    pen.strokeStyle = t.look.text;
    pen.lineWidth = 1.3;
    pen.stroke();
    pen.setLineDash([]);
    pen.beginPath();
    pen.moveTo(head ? x1 + 1 : x1, y1);
    pen.lineTo(head ? x1 - 2.5 : x1 - 6, head ? y1 + 6 : y1 - 3.5);
    pen.lineTo(head ? x1 + 4.5 : x1 - 6, head ? y1 + 6 : y1 + 3.5);
    pen.fill();
  }

  function limit(px) {
    return Math.min(Math.max(px, t.GUTTER - 5000), t.size.wide + 5000);
  }

  t.ring = ring;
  t.boxOf = boxOf;
  t.limit = limit;
  t.arrows = arrows;
})(window.studioTimeline = window.studioTimeline || {});
