/* What the timeline's scripts share: sizes, the state of the page, numbers as they are printed. */
(function (t) {
  "use strict";

  t.GUTTER = 176;
  t.AXIS = 26;
  t.ROW = 20;
  t.BAR = 16;
  t.THIN = 5;
  t.PAD = 7;
  t.LEAST = 15;
  t.CATEGORIES = ["compute", "collective", "send", "receive", "memory", "host"];
  t.TOKENS = ["--cs-compute", "--cs-collective", "--cs-p2p", "--cs-p2p", "--cs-memory", "--cs-host"];
  t.SEND = 2;
  t.RECEIVE = 3;
  t.HOST = 5;
  t.SHADES = [0, 0.18, 0.34];
  t.GHOSTLY = 0.5;
  t.FADED = 30; /* from this code on bars are a ghost's */
  t.NARROWEST_NS = 10;
  t.KEPT_BYTES = 96e6;
  t.ASKED_AT_ONCE = 6;
  t.OPEN_AT_MOST = 12; /* ranks that are open at first; more are folded */

  /* What the scripts of single features add: to a new run, to a change of the address, to a frame, keys, buttons. */
  t.onLoad = [];
  t.onBefore = [];
  t.onApply = [];
  t.overlays = [];
  t.onAxis = [];
  t.onFrame = [];
  t.keys = {};
  t.buttons = {};

  t.dom = null; /* scroll, canvas, spacer, status, detail of the page that is open */
  t.chart = null; /* what there is to draw: the rows of a run */
  t.shown = { from: 0, to: 1 }; /* the window, in ns after the beginning */
  t.windowKey = null; /* the window the address holds, as it was last read or written */
  t.hidden = {};
  t.folds = { base: null, list: {} };
  t.order = "rank";
  t.pins = []; /* ranks that stay above the others */
  t.marked = null; /* a selected window: [from, to] */
  t.selection = null; /* what the server says of the selected node */
  t.selectionKey = "";
  t.chosenHere = "";
  t.hover = null;
  t.pointer = null;
  t.tiles = new Map();
  t.keptBytes = 0;
  t.asked = new Set();
  t.running = 0;
  t.frame = 0;
  t.clock = 0;
  t.look = null;
  t.lastWrite = 0;
  t.animation = null;
  t.counts = { frames: 0, spent: 0, drawn: 0, binned: 0, missing: 0 };

  function element(id) {
    return document.getElementById(id);
  }

  function say(node, text) {
    if (node && node.textContent !== text) node.textContent = text;
  }

  function many(count, noun) {
    return count.toLocaleString("en") + " " + noun + (count === 1 ? "" : "s");
  }

  function digits(size) {
    if (Number(size.toFixed(2)) < 10) return size.toFixed(2);
    if (Number(size.toFixed(1)) < 100) return size.toFixed(1);
    return Math.round(size).toLocaleString("en");
  }

  function scaled(value, units) {
    var size = Math.abs(value);
    var sign = value < 0 ? "-" : "";
    if (size === 0 || (size < units[1][1] && Number.isInteger(size))) return sign + size.toLocaleString("en") + " " + units[0][0];
    for (var at = 0; at + 1 < units.length; at++) {
      var text = digits(size / units[at][1]);
      if (Number(text.replace(/,/g, "")) < Math.round(units[at + 1][1] / units[at][1])) return sign + text + " " + units[at][0];
    }
    return sign + digits(size / units[at][1]) + " " + units[at][0];
  }

  t.TIMES = [["ns", 1], ["µs", 1e3], ["ms", 1e6], ["s", 1e9], ["min", 60e9], ["h", 3600e9]];
  t.SIZES = [["B", 1], ["KiB", 1024], ["MiB", 1048576], ["GiB", 1073741824], ["TiB", 1099511627776]];

  var FIXED = { s: ["s", 1e9, 9], ms: ["ms", 1e6, 6], us: ["µs", 1e3, 3], ns: ["ns", 1, 0] };

  /* A time in the unit the user asked for, with three digits or more; null where none was asked for. */
  function asAsked(ns) {
    var unit = FIXED[window.studioView.timeUnit()];
    if (!unit) return null;
    var size = Math.abs(ns) / unit[1];
    var places = Math.max(0, Math.min(unit[2], size ? 2 - Math.floor(Math.log10(size)) : 0));
    return (ns < 0 ? "-" : "") + size.toLocaleString("en", { minimumFractionDigits: places, maximumFractionDigits: places }) + " " + unit[0];
  }

  function time(ns) {
    return asAsked(ns) || scaled(ns, t.TIMES);
  }

  /* A moment, with decimals that tell neighbours in the run apart. */
  function moment(ns) {
    var micro = t.chart.span < 1e7, unit = FIXED[window.studioView.timeUnit()];
    if (unit) {
      var places = Math.max(0, unit[2] - (micro ? 0 : 3));
      return (ns / unit[1]).toLocaleString("en", { minimumFractionDigits: places, maximumFractionDigits: places }) + " " + unit[0];
    }
    var text = (Math.round(ns / (micro ? 1 : 1e3)) / 1e3).toLocaleString("en", { minimumFractionDigits: 3, maximumFractionDigits: 3 });
    return text + (micro ? " µs" : " ms");
  }

  t.later = window.studioTimers();
  t.element = element;
  t.say = say;
  t.many = many;
  t.scaled = scaled;
  t.time = time;
  t.moment = moment;
})(window.studioTimeline = window.studioTimeline || {});
