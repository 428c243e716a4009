/* A pen that writes SVG: it knows what the timeline draws with, no more. */
(function (t) {
  "use strict";

  var TWIN = document.createElement("canvas").getContext("2d"); /* measures texts */

  function escaped(text) {
    return String(text).replace(/[^\x09\x0a\x0d\x20-\ud7ff\ue000-\ufffd]/g, "\ufffd").replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/"/g, "&quot;");
  }

  function short(value) {
    return String(Math.round(value * 100) / 100);
  }

  function Pen(wide, high) {
    this.parts = [];
    this.defs = [];
    this.patterns = new Map();
    this.wide = wide;
    this.high = high;
    this.path = "";
    this.state = { fillStyle: "#000000", strokeStyle: "#000000", lineWidth: 1, globalAlpha: 1, font: t.look.font, dash: [] };
    this.saved = [];
    this.depth = 0;
  }

  Object.assign(Pen.prototype, {
    save: function () {
      this.saved.push([Object.assign({}, this.state), this.depth]);
    },
    restore: function () {
      var before = this.saved.pop();
      while (this.depth > before[1]) {
        this.parts.push("</g>");
        this.depth--;
      }
      this.state = before[0];
    },
    beginPath: function () { this.path = ""; },
    moveTo: function (x, y) { this.path += "M" + short(x) + " " + short(y); },
    lineTo: function (x, y) { this.path += "L" + short(x) + " " + short(y); },
    bezierCurveTo: function (a, b, c, d, x, y) { this.path += "C" + [a, b, c, d, x, y].map(short).join(" "); },
    rect: function (x, y, wide, high) { this.path += "M" + short(x) + " " + short(y) + "h" + short(wide) + "v" + short(high) + "h" + short(-wide) + "z"; },
    arc: function (x, y, r) { this.path += "M" + short(x - r) + " " + short(y) + "a" + r + " " + r + " 0 1 0 " + 2 * r + " 0a" + r + " " + r + " 0 1 0 " + -2 * r + " 0"; },
    clip: function () {
      var id = "c" + this.defs.length;
      this.defs.push('<clipPath id="' + id + '"><path d="' + this.path + '"/></clipPath>');
      this.parts.push('<g clip-path="url(#' + id + ')">');
      this.depth++;
    },
    setLineDash: function (dash) { this.state.dash = dash; },
    paint: function (style) {
      if (typeof style === "string") return escaped(style);
      if (!this.patterns.has(style)) {
        var id = "p" + this.patterns.size;
        this.patterns.set(style, "url(#" + id + ")");
        this.defs.push('<pattern id="' + id + '" width="8" height="8" patternUnits="userSpaceOnUse"><image width="8" height="8" href="' + style.picture.toDataURL() + '"/></pattern>');
      }
      return this.patterns.get(style);
    },
    alpha: function () { return this.state.globalAlpha < 1 ? ' opacity="' + short(this.state.globalAlpha) + '"' : ""; },
    fill: function () {
      if (this.path) this.parts.push('<path d="' + this.path + '" fill="' + this.paint(this.state.fillStyle) + '"' + this.alpha() + "/>");
    },
    stroke: function () {
      var dash = this.state.dash.length ? ' stroke-dasharray="' + this.state.dash.join(" ") + '"' : "";
      if (this.path) this.parts.push('<path d="' + this.path + '" fill="none" stroke="' + this.paint(this.state.strokeStyle) + '" stroke-width="' + this.state.lineWidth + '"' + dash + this.alpha() + "/>");
    },
    box: function (x, y, wide, high) { return '<rect x="' + short(x) + '" y="' + short(y) + '" width="' + short(Math.max(0, wide)) + '" height="' + short(Math.max(0, high)) + '"'; },
    fillRect: function (x, y, wide, high) { this.parts.push(this.box(x, y, wide, high) + ' fill="' + this.paint(this.state.fillStyle) + '"' + this.alpha() + "/>"); },
    strokeRect: function (x, y, wide, high) {
      this.parts.push(this.box(x, y, wide, high) + ' fill="none" stroke="' + this.paint(this.state.strokeStyle) + '" stroke-width="' + this.state.lineWidth + '"' + this.alpha() + "/>");
    },
    measureText: function (text) {
      TWIN.font = this.state.font;
      return TWIN.measureText(text);
    },
    fillText: function (text, x, y) {
      this.parts.push('<text x="' + short(x) + '" y="' + short(y) + '" style="font:' + escaped(this.state.font) + '" dominant-baseline="central" fill="' + this.paint(this.state.fillStyle) + '"' + this.alpha() + ">" + escaped(text) + "</text>");
    },
    drawImage: function (image, sx, sy, sw, sh, x, y, wide, high) {
      var part = document.createElement("canvas");
      part.width = Math.max(1, sw);
      part.height = Math.max(1, sh);
      part.getContext("2d").drawImage(image, sx, sy, sw, sh, 0, 0, part.width, part.height);
      this.parts.push('<image x="' + short(x) + '" y="' + short(y) + '" width="' + short(wide) + '" height="' + short(high) + '" preserveAspectRatio="none" style="image-rendering:pixelated" href="' + part.toDataURL() + '"' + this.alpha() + "/>");
    },
  });
  ["fillStyle", "strokeStyle", "lineWidth", "globalAlpha", "font"].forEach(function (name) {
    Object.defineProperty(Pen.prototype, name, {
      get: function () { return this.state[name]; },
      set: function (value) { this.state[name] = value; },
    });
  });

  t.drawnAsSvg = function () {
    t.measure();
    var pen = new Pen(t.size.wide, t.size.high);
    t.picture(pen);
    return '<svg xmlns="http://www.w3.org/2000/svg" width="' + pen.wide + '" height="' + pen.high + '" viewBox="0 0 ' + pen.wide + " " + pen.high + '"><defs>' + pen.defs.join("") + "</defs>" + pen.parts.join("\n") + "</svg>\n";
  };
})(window.studioTimeline = window.studioTimeline || {});
