// What the search page puts first: chapters before the API, titles before text.
var Scorer = {
  score: ([docname, title, anchor, descr, score]) =>
    docname.startsWith("book/api/") ? score - 20 : score,
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
