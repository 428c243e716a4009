import js from "@eslint/js";

/** Types are neither switched off nor left out: `any` is for the edge to Dash alone. */
const honestTypes = {
  create(context) {
    const isEdge = /assets\/(base\/dash\.mjs|loader\.js)$/.test(context.filename.replaceAll("\\", "/"));
    return {
      Program() {
        for (const comment of context.sourceCode.getAllComments()) {
          const isOff = /@ts-(ignore|nocheck|expect-error)/.test(comment.value);
          const isAny = !isEdge && /[{<|(,:]\s*(any|\*)\s*(\[\])?\s*[}>|),]/.test(comment.value);
          if (isOff || isAny) context.report({ loc: comment.loc, message: "Give it a type." });
        }
      },
    };
  },
};

const readable = {
  "eqeqeq": "error",
  "max-len": ["error", { code: 110, ignoreUrls: true }],
  "max-lines-per-function": ["error", 100],
  "no-implicit-globals": "error",
  "no-shadow": "error",
  // tsc says it, and knows the browser.
  "no-undef": "off",
  "no-var": "error",
  "prefer-const": "error",
};

export default [
  { ignores: [".venv/", "node_modules/", "build/", "dist/"] },
  js.configs.recommended,
  {
    files: ["assets/**/*.mjs"],
    plugins: { studio: { rules: { "honest-types": honestTypes } } },
    rules: { ...readable, "studio/honest-types": "error" },
  },
  {
    files: ["assets/loader.js"],
    languageOptions: { sourceType: "script" },
    plugins: { studio: { rules: { "honest-types": honestTypes } } },
    rules: { ...readable, "studio/honest-types": "error" },
  },
  {
    files: ["tests/client/**/*.mjs"],
    rules: readable,
  },
];
