/* A run comes from the server: its rows, packed as studio/server/timeline.py describes. */
(function (t) {
  "use strict";


  function address(path, more) {
    var base = "/api/jobs/" + encodeURIComponent(t.chart.job) + "/timeline" + path;
    return window.studioView.address(base, Object.assign({ run: t.chart.run }, more));
  }

  function get(url) {
    return fetch(url).then(function (answer) {
      if (answer.ok) return answer;
      return answer.json().then(function (found) { throw found.error; }, function () { throw { message: "The studio refuses: " + answer.status, hint: "" }; });
    });
  }

  function load(job, run) {
    var mine = { job: job, run: run, ready: false };
    t.chart = mine;
    t.tiles.clear();
    t.asked.clear();
    t.running = 0;
    t.keptBytes = 0;
    t.selection = t.hover = t.windowKey = null;
    t.selectionKey = "";
    t.onLoad.forEach(function (act) { act(); });
    t.later("slow", 300, function () {
      if (t.chart === mine && !mine.ready) t.say(t.dom.status, "Reading the timeline…");
    });
    get(address("", {}))
      .then(function (answer) { return answer.arrayBuffer(); })
      .then(function (buffer) {
        if (t.chart !== mine) return;
        Object.assign(mine, window.studioUnpacked(buffer), { ready: true });
        prepare(mine);
        report(null);
        t.apply();
      })
      .catch(function (error) {
        if (t.chart === mine) report(error);
      });
  }

  function prepare(one) {
    var first = new Map();
    for (var row = 0; row < one.rank.length; row++) {
      var known = first.get(one.rank[row]);
      if (known) known.count++;
      else first.set(one.rank[row], { rank: one.rank[row], first: row, count: 1, finish: 0 });
    }
    for (var at = 0; at < one.ranks.length; at++) {
      if (first.has(one.ranks[at])) first.get(one.ranks[at]).finish = one.finish[at];
    }
    one.groups = first;
    one.own = one.span;
    one.top = Math.max(1, Math.ceil(Math.log2(one.span / one.bins)));
    /* Comm groups of a rank are told apart by shade; the same role has the same shade on every rank. */
    one.shade = new Uint8Array(2 * one.rank.length);
    first.forEach(function (group) {
      var names = [];
      for (var row = group.first; row < group.first + group.count; row++) {
        if (one.kinds[one.kind[row]] !== "communication") continue;
        if (names.indexOf(one.name[row]) < 0) names.push(one.name[row]);
        one.shade[row] = one.shade[row + one.rank.length] = names.indexOf(one.name[row]) % t.SHADES.length;
      }
    });
  }

  /* The time axis reaches to the end of the run, and to that of another one shown with it. */
  function reach(other) {
    var span = Math.max(t.chart.own, other);
    if (span === t.chart.span) return;
    t.chart.span = span;
    t.chart.top = Math.max(1, Math.ceil(Math.log2(span / t.chart.bins)));
  }

  t.reach = reach;

  function report(error) {
    var box = t.element("timeline-error");
    if (!box) return;
    box.textContent = "";
    box.className = error ? "cs-error" : "";
    t.element("timeline-body").hidden = Boolean(error);
    if (!error) return;
    ["The timeline cannot be shown", error.message || "The studio does not answer.", error.hint === undefined ? "Is it still running?" : error.hint].forEach(function (text, index) {
      var line = document.createElement(index ? "p" : "strong");
      line.textContent = text || "";
      box.appendChild(line);
    });
  }

  t.address = address;
  t.get = get;
  t.load = load;
})(window.studioTimeline = window.studioTimeline || {});
