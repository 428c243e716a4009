/* The Collectives page: it fetches what the address asks for, and turns what hands do into the address. */
(function () {
  "use strict";

  var CONTROLS = ["tab", "metric", "rel", "scale", "by", "fold", "sort", "order", "with"];
  /* What an address names when nothing is chosen needs no place in it. */
  var DEFAULTS = { tab: "heat", by: "none", fold: "0", sort: "max", order: "number" };
  var SHAPES = ["tab", "of", "job", "run", "metric", "rel", "by", "fold", "only", "sort", "order", "rows", "cols"];
  var map = null, second = null, beside = null, drawn = null, asking = null, found = null, themed = null, ringing = null, spoken = "";

  function element(id) {
    return document.getElementById(id);
  }

  var later = window.studioTimers();

  function shapeOf(view) {
    var parts = {};
    SHAPES.forEach(function (name) { if (view[name]) parts[name] = view[name]; });
    return parts;
  }

  function address(view, path, more) {
    var parts = Object.assign(shapeOf(view), more), what = view.tab === "traffic" ? "/traffic" : "/collectives";
    delete parts.job;
    delete parts.tab;
    return window.studioView.address("/api/jobs/" + encodeURIComponent(view.job) + what + path, parts);
  }

  /* What a heatmap is compared with: the same, of another job or run, in the order of the first. */
  function otherAddress(view, first) {
    var at = view.with.indexOf("/"), job = at < 0 ? view.with : view.with.slice(0, at), run = at < 0 ? null : view.with.slice(at + 1);
    var like = view.job + (view.run ? "/" + view.run : "");
    return address(Object.assign({}, view, { job: job, run: run }), "", { metric: first.metric, rel: first.relative ? "1" : "0", like: like });
  }

  function get(url) {
    return fetch(url).then(function (answer) {
      if (answer.ok) return answer;
      return answer.json().then(function (said) { throw said.error; }, function () { throw { message: "The studio refuses: " + answer.status, hint: "" }; });
    });
  }

  function report(error, title) {
    var box = element("collectives-error");
    if (!box) return;
    box.replaceChildren();
    if (!error) return;
    var card = document.createElement("div");
    card.className = "cs-error";
    [["strong", title || "The heatmap cannot be shown"], ["p", error.message || "The studio does not answer."], ["p", error.hint === undefined ? "Is it still running?" : error.hint]].forEach(function (part) {
      var one = document.createElement(part[0]);
      one.textContent = part[1];
      card.append(one);
    });
    box.append(card);
  }

  function say(text) {
    var box = element("collectives-status");
    if (box && box.textContent !== text) box.textContent = text;
  }

  /* --- drawing ------------------------------------------------------------------------------------------------ */

  function mount() {
    var host = element("collectives-heat");
    if (!host || host.querySelector("canvas")) return host;
    drawn = null;
    found = null;
    map = window.studioHeatmap.make(host, {
      measure: function () { return sortOf(window.studioView.read()); },
      point: point,
      choose: choose,
      open: open,
      zoom: zoom,
      goal: goal,
    });
    host.addEventListener("keydown", key);
    second = null;
    window.studioExport.register("collectives-other", { png: function () { return second.png(); }, svg: function () { return second.svg(); } });
    window.studioExport.register("collectives-heat", { png: function () { return map.png(); }, svg: function () { return map.svg(); } });
    return host;
  }

  function sortOf(view) {
    return view.sort && view.sort !== "time" ? view.sort : "max";
  }

  /* A page that is opened asks for its picture before Dash has begun: what arrives until then is taken, once. */
  var ahead = null;
  function begin() {
    var view = window.studioView.read();
    if (!/\/collectives$/.test(window.location.pathname) || !view.job || view.tab === "groups") return;
    var url = address(view, "");
    ahead = { url: url, answer: requested(url) };
    ahead.answer.catch(function () { /* Told where it is asked for. */ });
  }

  function fetched(url) {
    var early = ahead;
    ahead = null;
    return early && early.url === url ? early.answer : requested(url);
  }

  function requested(url) {
    return get(url).then(function (answer) { return answer.arrayBuffer(); }).then(window.studioUnpacked);
  }

  function draw(view) {
    if (!mount() || !view.job || view.tab === "groups") return;
    var wanted = JSON.stringify([shapeOf(view), view.tab === "traffic" ? null : view.with || null]);
    if (wanted === asking || wanted === drawn) return paint(view);
    asking = wanted;
    later("slow", 300, function () { if (asking === wanted) say("The heatmap is being made…"); });
    fetched(address(view, ""))
      .then(function (first) {
        if (!view.with || view.tab === "traffic") return [first, null];
        /* What cannot be compared with leaves the picture of the page's own job as it is. */
        return fetched(otherAddress(view, first)).then(function (other) { return [first, other]; }, function (error) { return [first, null, error]; });
      })
      .then(function (both) {
        if (asking !== wanted) return;
        asking = null;
        drawn = wanted;
        found = both[0];
        beside = both[1];
        report(both[2] || null, "What it is compared with cannot be shown");
        paint(window.studioView.read());
        ring(window.studioView.read());
      })
      .catch(function (error) {
        if (asking !== wanted) return;
        asking = null;
        if (map) map.wipe();
        report(error);
      });
  }

  /* One scale for both. */
  function together(one, other) {
    if (!other || other.range.most === null) return one.range;
    function least(a, b) { return a === null ? b : b === null ? a : Math.min(a, b); }
    return { least: least(one.range.least, other.range.least), most: Math.max(one.range.most, other.range.most), positive: least(one.range.positive, other.range.positive) };
  }

  var painted = null;
  function paint(view) {
    if (!found || !map) return;
    var log = view.scale === "log" || (view.scale !== "linear" && found.unit !== "ratio");
    var how = JSON.stringify([drawn, log, themed]);
    if (how === painted && map.data() === found) return;
    painted = how;
    if (found.range.most === null) {
      map.wipe();
      element("collectives-heat").dataset.ready = "";
      return say("No collective of this job has such a figure.");
    }
    var scale = window.studioHeatmap.scaleOf(together(found, beside), found.unit === "ratio", log);
    map.show(found, scale, { lines: beside ? beside.shape[0] : 0 });
    if (beside) {
      if (!second) second = window.studioHeatmap.make(element("collectives-other"), { measure: function () { return "max"; }, point: pointOther, choose: function () {}, open: open, zoom: zoom, goal: goal });
      second.show(beside, scale, { narrow: true, lines: found.shape[0] });
    }
    map.legend(element("collectives-legend"));
    say(resting());
    detail();
  }

  function number(count) {
    return count.toLocaleString("en");
  }

  function pointOther(bin) {
    if (bin) map.ring(bin.line, bin.column);
    else ringing = null, ring(window.studioView.read());
  }

  function detail() {
    var shown = found.window[1] - found.window[0], rows = (found.folded ? " row" : " collective") + (shown === 1 ? "" : "s");
    if (found.pairs) rows = shown === 1 ? " rank" : " ranks";
    var text = shown < found.lines ? number(shown) + " of " + number(found.lines) + rows : number(shown) + rows;
    text += " × " + number(found.window[3] - found.window[2]) + (found.ranks === 1 ? " rank" : " ranks");
    if (found.down > 1 || found.across > 1) text += "; a cell is the largest of " + found.down + " × " + found.across;
    element("collectives-detail").textContent = text;
  }

  function resting() {
    if (found.pairs) return "Point at a cell to read it; drag to look closer.";
    return found.timed ? "Point at a cell to read it; click to select its node; drag to look closer." : "This job has no times yet: sizes are shown. Simulate it to see durations and waiting.";
  }

  /* --- selection ---------------------------------------------------------------------------------------------- */

  function ring(view) {
    if (!map || !found) return;
    if (!view.node || found.pairs) {
      ringing = null;
      return map.ring(null);
    }
    var wanted = JSON.stringify([drawn, view.rank, view.node]);
    if (ringing === wanted) return;
    ringing = wanted;
    get(address(view, "/find", { rank: view.rank || 0, node: view.node }))
      .then(function (answer) { return answer.json(); })
      .then(function (said) {
        if (ringing !== wanted) return;
        map.ring(said.line, said.column);
        if (second) second.ring(said.line, said.column);
      })
      .catch(function () { map.ring(null); });
  }

  function point(bin) {
    if (second && beside) {
      if (bin) second.ring(bin.line, bin.column);
      else second.ring(null);
    }
    if (found.pairs) return;
    if (!bin) return later("point", 60, function () { if (found) say(resting()); });
    var view = window.studioView.read();
    spoken = JSON.stringify(bin);
    var mine = spoken;
    later("point", 60, function () {
      var where = bin.high - bin.line > 1 || bin.right - bin.column > 1 ? bin : { line: bin.line, column: bin.column };
      get(address(view, "/cell", where))
        .then(function (answer) { return answer.json(); })
        .then(function (said) { if (spoken === mine) say(said.words); })
        .catch(function () { /* The tip has told already. */ });
    });
  }

  function choose(line, column) {
    var view = window.studioView.read();
    if (found.pairs) return;
    get(address(view, "/cell", { line: line, column: column }))
      .then(function (answer) { return answer.json(); })
      .then(function (said) {
        say(said.words);
        if (said.node !== null) window.studioView.change({ rank: said.rank, node: said.node });
        else if (said.count > 1) window.studioView.change({ rank: said.rank, node: null, fold: null, only: said.section, rows: null, cols: null });
      })
      .catch(report);
  }

  /* A bin is opened with as much around it as can be drawn cell by cell. */
  function open(bin) {
    var high = Math.min(512, found.lines), wide = Math.min(1024, found.ranks);
    var low = Math.min(Math.max(0, Math.floor((bin.line + bin.high - high) / 2)), found.lines - high);
    var left = Math.min(Math.max(0, Math.floor((bin.column + bin.right - wide) / 2)), found.ranks - wide);
    zoom(low, low + high, left, left + wide);
  }

  function zoom(low, high, left, right, replace) {
    low = Math.max(0, Math.round(low));
    left = Math.max(0, Math.round(left));
    high = Math.min(found.lines, Math.max(low + 1, Math.round(high)));
    right = Math.min(found.ranks, Math.max(left + 1, Math.round(right)));
    var change = {
      rows: low === 0 && high === found.lines ? null : low + "-" + (high - 1),
      cols: left === 0 && right === found.ranks ? null : left + "-" + (right - 1),
    };
    zooming = replace ? change : null;
    if (!replace) return window.studioView.change(change);
    later("zoom", 40, function () {
      if (zooming !== change) return; /* overtaken */
      zooming = null;
      window.studioView.change(change, { replace: true });
    });
  }

  /* The window that is asked for, which the drawing may not have yet: the next step starts from there. */
  var zooming = null;
  function goal(data) {
    var view = Object.assign(window.studioView.read(), zooming);
    function span(text, end) {
      var parts = /^(\d+)-(\d+)$/.exec(text || "");
      return parts && +parts[1] <= +parts[2] && +parts[2] < end ? [+parts[1], +parts[2] + 1] : [0, end];
    }
    return span(view.rows, data.lines).concat(span(view.cols, data.ranks));
  }

  var held = {};
  var MOVES = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  var cursor = null;
  function key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !found) return;
    if (event.key === "Escape") {
      var view = window.studioView.read();
      if (view.rows || view.cols) window.studioView.change({ rows: null, cols: null });
      else if (view.node) window.studioView.change({ node: null });
      return;
    }
    var move = MOVES[event.key];
    if (!move) return;
    event.preventDefault();
    var at = cursor || { line: found.window[0] - move[0], column: found.window[2] - move[1] };
    cursor = {
      line: Math.min(Math.max(at.line + move[0], found.window[0]), found.window[1] - 1),
      column: Math.min(Math.max(at.column + move[1], found.window[2]), found.window[3] - 1),
    };
    map.ring(cursor.line, cursor.column);
    later("key", 120, function () { choose(cursor.line, cursor.column); });
  }

  function listed(options, value) {
    return (options || []).some(function (one) { return one.value === value; });
  }

  var page = null, shown = {}; /* what the controls of this page were last told */
  document.addEventListener("DOMContentLoaded", begin);

  /* --- what Dash calls ---------------------------------------------------------------------------------------- */

  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    studio_collectives: {
      follow: function (view, theme) {
        themed = theme;
        var now = window.studioView.read();
        draw(now);
        ring(now);
        return window.dash_clientside.no_update;
      },
      controls: function (settled, others) {
        var told = (settled && settled.controls) || {}, values = Array.prototype.slice.call(arguments, 2), now = window.studioView.read();
        if (page !== element("collectives-tab")) shown = {};
        page = element("collectives-tab");
        return CONTROLS.map(function (name, at) {
          var before = shown[name];
          shown[name] = told[name];
          if (told[name] === undefined || told[name] === values[at]) return window.dash_clientside.no_update;
          /* A choice that is not yet among the others would be given up by its control. */
          if (name === "with") return told[name] && !listed(others, told[name]) ? window.dash_clientside.no_update : told[name];
          /* What was chosen a moment ago and is on its way to the address is not taken back. */
          var chosen = told[name] === before && values[at] !== (now[name] || DEFAULTS[name]);
          return chosen ? window.dash_clientside.no_update : told[name];
        });
      },
      write: function () {
        var settled = arguments[CONTROLS.length], told = (settled && settled.controls) || {}, change = {}, changed = false;
        for (var at = 0; at < CONTROLS.length; at++) {
          var name = CONTROLS[at], value = arguments[at] || null, now = told[name] || null;
          /* Until a control has shown what is settled, what it says is its own beginning and nobody's wish. */
          if (value === now) held[name] = now;
          if (value === now || held[name] !== now || told[name] === undefined || (!value && name !== "with")) continue;
          if (name === "with" && !value && !window.studioView.isTouched("collectives-with")) {
            window.dash_clientside.set_props("collectives-with", { value: now });
            continue;
          }
          changed = true;
          change[name] = DEFAULTS[name] === value ? null : value;
        }
        if (changed) {
          /* Lines stand elsewhere in another order: a window of them means nothing then. */
          if (change.sort !== undefined || change.by !== undefined || change.fold !== undefined || change.metric !== undefined || change.rel !== undefined) change.rows = null;
          if (change.by !== undefined) change.only = null;
          if (change.order !== undefined || change.tab !== undefined) change.cols = null;
          if (change.tab !== undefined) change.rows = null;
          if (change.metric !== undefined) Object.assign(change, { rel: null, scale: null });
          if (change.rel !== undefined && change.scale === undefined) change.scale = null;
          window.studioView.change(change);
        }
        return window.dash_clientside.no_update;
      },
    },
  });

  window.studioCollectives = {
    point: function (line, column) { return map && map.point(line, column); },
    data: function () { return found; },
  };
})();
