/* Colours of the theme. */
(function (t) {
  "use strict";

  function rgb(text) {
    var found = /^#(..)(..)(..)$/.exec(text.trim());
    return found ? [parseInt(found[1], 16), parseInt(found[2], 16), parseInt(found[3], 16)] : [128, 128, 128];
  }

  function mix(a, b, share) {
    return a.map(function (value, at) { return Math.round(value + (b[at] - value) * share); });
  }

  function css(colour) {
    return "rgb(" + colour.join(",") + ")";
  }

  function luminance(colour) {
    var parts = colour.map(function (value) {
      var one = value / 255;
      return one <= 0.03928 ? one / 12.92 : Math.pow((one + 0.055) / 1.055, 2.4);
    });
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
  }

  function readable(colour) {
    return 1.05 / (luminance(colour) + 0.05) >= (luminance(colour) + 0.05) / 0.055 ? "#ffffff" : "#0d1014";
  }

  function hatch(colour, stroke, falling, alpha) {
    var one = document.createElement("canvas");
    one.width = one.height = 8;
    var pen = one.getContext("2d");
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 8, 8);
    pen.strokeStyle = stroke;
    pen.lineWidth = 1.2;
    pen.globalAlpha = alpha || 0.3;
    pen.beginPath();
    for (var at = -8; at <= 8; at += 8) {
      pen.moveTo(at - 1, falling ? -1 : 9);
      pen.lineTo(at + 9, falling ? 9 : -1);
    }
    pen.stroke();
    var pattern = pen.createPattern(one, "repeat");
    pattern.picture = one; /* for the pen that writes SVG */
    return pattern;
  }

  /* Everything that depends on the theme and on what is hidden; tiles are painted anew when it changes. */
  function dress() {
    var style = getComputedStyle(document.documentElement);
    var ratio = window.devicePixelRatio || 1;
    var hide = Object.keys(t.hidden).join();
    var name = document.documentElement.getAttribute("data-mantine-color-scheme") + "/" + ratio + "/" + hide;
    if (t.look && t.look.name === name) return;
    function token(one) { return style.getPropertyValue(one).trim(); }
    var text = rgb(token("--cs-text")), panel = rgb(token("--cs-panel"));
    var base = t.TOKENS.map(function (one) { return rgb(token(one)); });
    var colours = base.map(function (colour, category) {
      return t.SHADES.map(function (share) { return category === 1 ? mix(colour, text, share) : colour; });
    });
    t.look = {
      name: name, ratio: ratio, panel: panel,
      font: "11px " + token("--cs-font"), bold: "600 12px " + token("--cs-font"),
      bg: token("--cs-bg"), raised: token("--cs-raised"), border: token("--cs-border"), text: token("--cs-text"), dim: token("--cs-dim"),
      accent: token("--cs-accent"), soft: token("--cs-accent-soft"), panelText: token("--cs-panel"),
      colours: colours,
      fills: colours.map(function (shades, category) {
        return shades.map(function (colour) {
          if (category === t.SEND || category === t.RECEIVE) return hatch(css(colour), readable(colour), category === t.RECEIVE);
          return css(colour);
        });
      }),
      waiting: hatch("rgb(0 0 0 / 0%)", token("--cs-bg"), false, 0.6),
      inks: colours.map(function (shades) { return shades.map(readable); }),
    };
  }

  t.css = css;
  t.dress = dress;
})(window.studioTimeline = window.studioTimeline || {});
