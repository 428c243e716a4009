/* Where the lanes stand, and where in them a moment is. */
(function (t) {
  "use strict";

  t.topShown = "";

  function arrange(top) {
    var list = Array.from(t.chart.groups.values());
    if (t.order === "finish") list.sort(function (a, b) { return b.finish - a.finish || a.rank - b.rank; });
    t.chart.list = list;
    t.chart.y = new Float64Array(list.length + 1);
    t.chart.placeOf = new Map();
    list.forEach(function (group, at) {
      group.folded = t.isFolded(group.rank);
      group.pitch = group.folded ? t.THIN : t.ROW;
      t.chart.placeOf.set(group.rank, at);
      t.chart.y[at + 1] = t.chart.y[at] + t.PAD + Math.max(group.count * group.pitch, t.LEAST);
    });
    var height = t.AXIS + t.chart.y[list.length] + t.PAD;
    t.dom.spacer.style.height = Math.max(0, height - t.dom.scroll.clientHeight) + "px";
    var key = t.chart.job + t.chart.run + "/" + top;
    if (key !== t.topShown) {
      t.topShown = key;
      var place = t.chart.placeOf.get(Number(top));
      var wanted = top === undefined || place === undefined ? 0 : t.chart.y[place];
      if (Math.abs(groupAt(t.dom.scroll.scrollTop + t.PAD) - (place || 0)) > 0) t.dom.scroll.scrollTop = wanted;
    }
  }

  /* Which rank stands at a height of the whole list. */
  function groupAt(y) {
    var low = 0, high = t.chart.list.length;
    while (low < high) {
      var middle = (low + high + 1) >> 1;
      if (t.chart.y[middle] <= y) low = middle;
      else high = middle - 1;
    }
    return Math.min(low, t.chart.list.length - 1);
  }

  function rowAt(y) {
    measure();
    var list = y - t.AXIS + t.dom.scroll.scrollTop;
    if (y < t.AXIS || !t.chart.list.length) return null;
    var at = groupAt(list);
    var group = t.chart.list[at];
    var inside = Math.floor((list - t.chart.y[at] - t.PAD / 2) / group.pitch);
    return { group: group, row: inside >= 0 && inside < group.count ? group.first + inside : -1 };
  }

  function placeOfRow(row) {
    var group = t.chart.groups.get(t.chart.rank[row]);
    var at = t.chart.placeOf.get(group.rank);
    return { y: t.AXIS + t.chart.y[at] + t.PAD / 2 + (row - group.first) * group.pitch - t.size.top, height: group.folded ? t.THIN - 1 : t.BAR, group: group };
  }

  /* Asked of the browser once a frame: every answer may cost it a layout. */
  t.size = { wide: 0, high: 0, top: 0 };

  function measure() {
    t.size.wide = t.dom.scroll.clientWidth;
    t.size.high = t.dom.scroll.clientHeight;
    t.size.top = t.dom.scroll.scrollTop;
  }

  function width() {
    return t.size.wide - t.GUTTER;
  }

  function x(ns) {
    return t.GUTTER + ((ns - t.shown.from) / (t.shown.to - t.shown.from)) * width();
  }

  function ns(px) {
    return t.shown.from + ((px - t.GUTTER) / width()) * (t.shown.to - t.shown.from);
  }

  function visible(high) {
    var first = groupAt(t.size.top);
    var last = groupAt(t.size.top + high - t.AXIS);
    return t.chart.list.slice(first, last + 1);
  }

  t.arrange = arrange;
  t.groupAt = groupAt;
  t.rowAt = rowAt;
  t.placeOfRow = placeOfRow;
  t.measure = measure;
  t.width = width;
  t.x = x;
  t.ns = ns;
  t.visible = visible;
})(window.studioTimeline = window.studioTimeline || {});
