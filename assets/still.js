/* Makes elements of what studio/pages/_still.py describes: [name, attributes, parts ...] in the attribute `data-still`,
   text as text. Nothing in it is ever read as markup. */
(function () {
  "use strict";

  function made(part) {
    if (typeof part === "string") return document.createTextNode(part);
    var element = document.createElement(part[0]);
    Object.keys(part[1]).forEach(function (name) {
      if (name === "style") styled(element, part[1].style);
      else element.setAttribute(name, part[1][name]);
    });
    part.slice(2).forEach(function (child) {
      element.append(made(child));
    });
    return element;
  }

  function styled(element, style) {
    Object.keys(style).forEach(function (name) {
      element.style.setProperty(name, style[name]);
    });
  }

  /* What is folded stays folded when the same section comes with other content: its title tells, without the numbers. */
  function folds(host, visit) {
    host.querySelectorAll("details").forEach(function (one) {
      visit(one, (one.querySelector("summary") || one).textContent.replace(/[\d.,]+/g, ""));
    });
  }

  function fill(host) {
    var text = host.getAttribute("data-still"), open = {};
    if (!text || host.studioStill === text) return;
    host.studioStill = text;
    folds(host, function (one, title) { open[title] = one.open; });
    host.replaceChildren(made(JSON.parse(text)));
    folds(host, function (one, title) { if (title in open) one.open = open[title]; });
  }

  /* Before the next painting: an observer is told as soon as React has put down what came. */
  new MutationObserver(function (changes) {
    changes.forEach(function (change) {
      if (change.type === "attributes") return fill(change.target);
      change.addedNodes.forEach(function (node) {
        if (node.nodeType !== Node.ELEMENT_NODE) return;
        if (node.hasAttribute("data-still")) fill(node);
        else node.querySelectorAll("[data-still]").forEach(fill);
      });
    });
  }).observe(document.documentElement, { childList: true, subtree: true, attributes: true, attributeFilter: ["data-still"] });
})();
