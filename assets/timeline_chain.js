/* The whole chain of the selected node: all it waits for, directly or not, and all that waits for it. */
(function (t) {
  "use strict";

  var whole = false;
  var found = null;
  var key = "";

  t.onLoad.push(function () {
    found = null;
    key = "";
  });
  t.onApply.push(function (view) {
    whole = view.deps === "chain";
    var button = t.element("timeline-chain");
    if (button) button.setAttribute("aria-pressed", String(whole));
    if (!whole || !t.selectionKey || t.selectionKey === key) return;
    ask();
  });

  function ask() {
    var mine = t.chart, wanted = (key = t.selectionKey), part = wanted.split("/");
    found = null;
    t.get(t.address("/chain", { rank: part[0], node: part.slice(1).join("/") }))
      .then(function (answer) { return answer.json(); })
      .then(function (answer) {
        if (mine !== t.chart || wanted !== key) return;
        found = answer;
        t.describe();
        t.draw();
      })
      .catch(function () { /* The direct ones are drawn. */ });
  }

  function toggle() {
    t.change({ deps: whole ? null : "chain" });
  }

  /* Draw it, and say whether it was there to draw. */
  function chain(pen) {
    if (!whole || !found || key !== t.selectionKey) return false;
    var boxes = found.bars.map(function (bar) { return t.boxOf({ rank: found.rank, row: bar[0], start: bar[1], end: bar[2] }); });
    [true, false].forEach(function (data) {
      pen.beginPath();
      found.edges.forEach(function (edge) {
        if (edge[2] === data) curve(pen, boxes[edge[0]], boxes[edge[1]]);
      });
      pen.setLineDash([]);
      pen.strokeStyle = t.look.bg;
      pen.lineWidth = 3;
      pen.globalAlpha = 0.7;
      pen.stroke();
      pen.setLineDash(data ? [] : [4, 3]);
      pen.strokeStyle = t.look.accent;
      pen.lineWidth = 1.2;
      pen.globalAlpha = 1;
      pen.stroke();
    });
    pen.setLineDash([]);
    pen.strokeStyle = t.look.accent;
    pen.lineWidth = 1;
    pen.beginPath();
    boxes.forEach(function (box) {
      if (box && box.right > t.GUTTER && box.left < t.size.wide && box.right - box.left > 3) pen.rect(box.left + 0.5, box.y + 0.5, box.right - box.left - 1, box.height - 1);
    });
    pen.stroke();
    return true;
  }

  function curve(pen, from, to) {
    if (!from || !to) return;
    var x0 = t.limit(from.right), x1 = t.limit(to.left);
    if (Math.max(x0, x1) < t.GUTTER || Math.min(x0, x1) > t.size.wide) return;
    if (from.y === to.y) {
      if (x1 - x0 < 3) return; /* One right after the other: no line is needed to see it. */
      var low = from.y + from.height + 1;
      pen.moveTo(x0, low);
      pen.bezierCurveTo(x0 + 2, low + 6, x1 - 2, low + 6, x1, low);
      return;
    }
    var y0 = from.y + from.height / 2, y1 = to.y + to.height / 2, bend = Math.min(50, Math.max(8, Math.abs(x1 - x0) / 2));
    pen.moveTo(x0, y0);
    pen.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1);
  }

  function chainWords() {
    if (!whole || !found || key !== t.selectionKey) return "";
    return " · chain of " + t.many(found.bars.length, "node") + (found.more ? ", those nearest" : "");
  }

  t.keys.c = toggle;
  t.buttons["timeline-chain"] = toggle;
  t.chain = chain;
  t.chainWords = chainWords;
})(window.studioTimeline = window.studioTimeline || {});
