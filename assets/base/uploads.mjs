/**
 * Names of upload components. The file input inside one takes no label of its own, and comes when Dash has
 * loaded the component: what stands around it says the name, in `data-upload-name`.
 */

/** @param {Element} node */
function name(node) {
  const inputs = node.matches("input[type=file]") ? [node] : node.querySelectorAll("input[type=file]");
  for (const input of inputs) {
    const said = input.closest("[data-upload-name]")?.getAttribute("data-upload-name");
    if (said) input.setAttribute("aria-label", said);
  }
}

/** Name the file inputs of upload components from now on. */
export function watchUploads() {
  name(document.documentElement);
  new MutationObserver((changes) => {
    for (const { addedNodes } of changes) {
      for (const node of addedNodes) if (node instanceof Element) name(node);
    }
  }).observe(document.documentElement, { childList: true, subtree: true });
}
