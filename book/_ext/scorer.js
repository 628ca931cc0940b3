// What the search page puts first: pages whose titles say the words, and say little else; chapters
// before the API.
var Scorer = {
  score: ([docname, title, anchor, descr, score]) => {
    const query = (new URLSearchParams(location.search).get("q") ?? "").toLowerCase().trim();
    const words = query.split(/\s+/).filter(word => title.toLowerCase().includes(word));
    const said = words.join("").length / Math.max(title.length, 1);
    return score + 20 * words.length + 20 * said - (docname.startsWith("book/api/") ? 25 : 0);
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
