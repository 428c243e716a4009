/* Where the lanes stand, and where in them a moment is. */
(function (t) {
  "use strict";

  t.topShown = "";

  function arrange(top) {
    var chart = t.chart, list = Array.from(chart.groups.values());
    if (t.order === "finish") list.sort(function (a, b) { return b.finish - a.finish || a.rank - b.rank; });
    if (t.order === "idle" && chart.idle) list.sort(function (a, b) { return chart.idle.get(b.rank) - chart.idle.get(a.rank) || a.rank - b.rank; });
    /* Pinned ranks stand first, in the order they were pinned in. */
    list = t.pins.map(function (rank) { return chart.groups.get(rank); }).filter(Boolean).concat(list.filter(function (group) { return t.pins.indexOf(group.rank) < 0; }));
    chart.list = list;
    chart.y = new Float64Array(list.length + 1);
    chart.placeOf = new Map();
    list.forEach(function (group, at) {
      group.folded = t.isFolded(group.rank);
      group.pitch = group.folded ? t.THIN + (t.ghost ? 3 : 0) : t.ROW;
      chart.placeOf.set(group.rank, at);
      chart.y[at + 1] = chart.y[at] + t.PAD + Math.max(group.count * group.pitch, t.LEAST);
    });
    /* They stay in sight while the others scroll, unless they would leave too little of them. */
    var room = (t.dom.scroll.clientHeight - t.AXIS) * 0.6;
    chart.pinned = t.pins.filter(function (rank) { return chart.groups.has(rank); }).length;
    while (chart.pinned && chart.y[chart.pinned] > room) chart.pinned--;
    t.pinHeight = chart.y[chart.pinned];
    var height = t.AXIS + chart.y[list.length] + t.PAD;
    t.dom.spacer.style.height = Math.max(0, height - t.dom.scroll.clientHeight) + "px";
    var key = chart.job + chart.run + "/" + top;
    if (key !== t.topShown) {
      t.topShown = key;
      var place = chart.placeOf.get(Number(top));
      var wanted = top === undefined || place === undefined || place < chart.pinned ? 0 : chart.y[place] - t.pinHeight;
      if (Math.abs(groupAt(t.dom.scroll.scrollTop + t.pinHeight + t.PAD) - (place || 0)) > 0) t.dom.scroll.scrollTop = wanted;
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
    var list = y - t.AXIS + (y - t.AXIS < t.pinHeight ? 0 : t.dom.scroll.scrollTop);
    if (y < t.AXIS || !t.chart.list.length) return null;
    var at = groupAt(list);
    var group = t.chart.list[at];
    var inside = Math.floor((list - t.chart.y[at] - t.PAD / 2) / group.pitch);
    return { group: group, row: inside >= 0 && inside < group.count ? group.first + inside : -1 };
  }

  function placeOfRow(row) {
    var group = t.chart.groups.get(t.chart.rank[row]);
    var at = t.chart.placeOf.get(group.rank);
    var pinned = at < t.chart.pinned, y = t.AXIS + t.chart.y[at] + t.PAD / 2 + (row - group.first) * group.pitch - (pinned ? 0 : t.size.top);
    var height = group.folded ? t.THIN - 1 : t.ghost ? 10 : t.BAR;
    return { y: y, height: height, group: group, behind: !pinned && y + height <= t.AXIS + t.pinHeight };
  }

  /* The other run stands below, lower and paler. */
  function ghostPlace(place) {
    return { y: place.y + place.height + (place.group.folded ? 0.5 : 1), height: place.group.folded ? 2.5 : 6, group: place.group, behind: place.behind };
  }

  t.ghostPlace = ghostPlace;

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

  /* Ranks in sight, those that are pinned last. */
  function visible(high) {
    var first = Math.max(t.chart.pinned, groupAt(t.size.top + t.pinHeight));
    var last = groupAt(t.size.top + high - t.AXIS);
    return t.chart.list.slice(first, last + 1).concat(t.chart.list.slice(0, t.chart.pinned));
  }

  /* Draw what is pinned and what is not, each where it may be. */
  function inParts(pen, left, wide, high, act) {
    [false, true].forEach(function (pinned) {
      if (pinned && !t.pinHeight) return;
      pen.save();
      pen.beginPath();
      if (pinned) pen.rect(left, t.AXIS, wide - left, t.pinHeight);
      else pen.rect(left, t.AXIS + t.pinHeight, wide - left, high - t.AXIS - t.pinHeight);
      pen.clip();
      act(visible(high).filter(function (group) { return t.chart.placeOf.get(group.rank) < t.chart.pinned === pinned; }), pinned);
      pen.restore();
    });
  }

  t.pinHeight = 0;
  t.inParts = inParts;
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
