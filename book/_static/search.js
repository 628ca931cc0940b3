// Excerpts of the search page: the text of the article alone, with formulas as plain letters.
const LETTERS = {
  alpha: "α", beta: "β", gamma: "γ", delta: "δ", epsilon: "ε", varepsilon: "ε", eta: "η",
  theta: "θ", kappa: "κ", lambda: "λ", Lambda: "Λ", mu: "μ", nu: "ν", xi: "ξ", Pi: "Π", pi: "π",
  rho: "ρ", sigma: "σ", Sigma: "Σ", tau: "τ", phi: "φ", Phi: "Φ", psi: "ψ", Psi: "Ψ", omega: "ω",
  R: "ℝ", tp: "ᵀ", le: "≤", ge: "≥", in: "∈", to: "→", times: "×", cdot: "·", sum: "∑",
  infty: "∞", pm: "±", dots: "…", ldots: "…", log: "log", max: "max", min: "min", one: "1",
};

function spell(formula) {
  return formula
    .replace(/^\\\(|\\\)$/g, "")
    .replace(/\\([A-Za-z]+)/g, (whole, name) => LETTERS[name] ?? "")
    .replace(/\\[,;!]/g, " ")
    .replace(/[{}\\^]/g, "")
    .replace(/\s+/g, " ")
    .trim();
}

Search.htmlToText = (htmlString, anchor) => {
  const page = new DOMParser().parseFromString(htmlString, "text/html");
  const article = page.querySelector("article") ?? page.querySelector('[role="main"]');
  if (!article) return "";
  article
    .querySelectorAll(".headerlink, script, style, svg, div.math, nav, summary")
    .forEach(part => part.remove());
  article.querySelectorAll("span.math").forEach(part => part.replaceWith(spell(part.textContent)));
  const section = anchor ? article.querySelector(anchor) : null;
  return (section ?? article).textContent.replace(/\s+/g, " ");
};
