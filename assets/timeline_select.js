/* The selected node, and walking from it to others. */
(function (t) {
  "use strict";

  function choose(bar) {
    if (!bar) return;
    t.chosenHere = bar.rank + "/" + bar.node;
    t.hover = null;
    t.change({ rank: bar.rank, node: bar.node });
  }

  function select(view) {
    var wanted = view.node ? (view.rank === undefined ? t.chart.ranks[0] : view.rank) + "/" + view.node : "";
    if (wanted === t.selectionKey) return;
    t.selectionKey = wanted;
    t.selection = t.waiting = null;
    if (!wanted) return;
    var mine = t.chart, byHand = wanted === t.chosenHere;
    t.chosenHere = "";
    t.get(t.address("/node", { rank: wanted.split("/")[0], node: view.node }))
      .then(function (answer) { return answer.json(); })
      .then(function (answer) {
        if (mine !== t.chart || wanted !== t.selectionKey) return;
        t.selection = answer;
        if (answer.bar) reveal(answer.bar, byHand);
        t.meet(null);
        t.contrast(answer.bar);
        t.draw();
        if (t.waiting) t.waiting();
        t.waiting = null;
      })
      .catch(function () {
        /* The inspector says what is wrong with the node. */
        if (mine === t.chart && wanted === t.selectionKey) t.selection = { bar: null, up: [], down: [] };
      });
  }

  /* Bring a bar into sight; what is in sight already stays where it is. */
  function reveal(bar, byHand) {
    var group = t.chart.groups.get(bar.rank);
    if (!group) return;
    t.measure();
    var place = t.placeOfRow(bar.row);
    if (place.behind || place.y < t.AXIS + 4 || place.y + place.height > t.dom.scroll.clientHeight - 4) {
      t.dom.scroll.scrollTop += place.y - t.dom.scroll.clientHeight / 2;
    }
    var span = t.shown.to - t.shown.from;
    if (bar.end < t.shown.from || bar.start > t.shown.to) {
      var wide = Math.min(Math.max(span, (bar.end - bar.start) * 1.2), t.whole().to - t.whole().from);
      var middle = (bar.start + bar.end) / 2;
      if (bar.end - bar.start > wide) middle = bar.start + wide * 0.4;
      t.go(middle - wide / 2, middle + wide / 2, !byHand);
    }
  }

  function pick(px, py) {
    var found = t.under(px, py);
    if (!found || (found.ghost && !found.bar)) return;
    var query = found.bar ? { rank: found.bar.rank, index: found.bar.index } : { row: found.row, at: Math.round(found.at), within: Math.ceil(found.within) };
    pickWhere(query);
  }

  function pickNode(rank, index) {
    pickWhere({ rank: rank, index: index });
  }

  var picks = 0;
  function pickWhere(query) {
    var mine = t.chart, number = (picks += 1);
    t.get(t.address("/node", query))
      .then(function (answer) { return answer.json(); })
      .then(function (answer) { if (mine === t.chart && number === picks && answer.bar) choose(answer.bar); })
      .catch(function () { /* The view stays as it is. */ });
  }

  t.pickNode = pickNode;

  /* What a key is to do with a selection the server has not told about yet. */
  t.waiting = null;

  function walk(kind) {
    if (t.selectionKey && !t.selection) {
      t.waiting = function () { walk(kind); };
      return;
    }
    if (!t.selection || !t.selection.bar) return pickFirst();
    if (kind === "previous" || kind === "next") return choose(t.selection[kind]);
    var found = t.selection[kind].slice().sort(function (a, b) { return kind === "up" ? b.end - a.end : a.start - b.start; });
    if (found.length) choose(found[0]);
    else t.say(t.dom.status, kind === "up" ? "This node waits for nothing that has times." : "Nothing that has times waits for this node.");
  }

  /* Nothing is selected yet: begin with the first bar in sight. */
  function pickFirst() {
    var group = t.visible(t.dom.scroll.clientHeight)[0];
    if (!group) return;
    var middle = Math.max(0, Math.round((Math.max(t.shown.from, 0) + t.shown.to) / 2));
    pickWhere({ row: group.first, at: middle, within: Math.ceil((t.shown.to - t.shown.from) / 2) });
  }

  t.select = select;
  t.pick = pick;
  t.walk = walk;
})(window.studioTimeline = window.studioTimeline || {});
