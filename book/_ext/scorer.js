// The order of what the search finds. The score of a page is BM25, the usual measure of how well a
// text answers words, summed over title, headings and text. It gains where the page is called by the
// words asked for, or defines them. lml_search.py adds to the index how often pages say words, what
// they are called and what they define. The API comes after the chapters.
const Ranking = {
  fields: { title: 4, headings: 2, text: 1 }, // what a word is worth there
  named: 4, // that the page is called by the words asked for
  defined: 2, // that it defines them
  api: 0.5, // of the score of a page
  name: 3, // that a name of the API is the word asked for
  member: 0.2, // of the score of a page, for other names on it
  saturation: 1.2, // the constants k and b of BM25
  length: 0.75,

  stems(text) {
    const stemmer = new Stemmer();
    const words = splitQuery(text.replace(/<[^>]*>/g, "").toLowerCase());
    return words.filter(word => !stopwords.includes(word)).map(word => stemmer.stemWord(word));
  },

  // Bags of words of each page: of its title, and of its other headings.
  read() {
    const { docnames, titles, alltitles, lengths } = Search._index;
    const bag = words => {
      const counts = new Map();
      words.forEach(word => counts.set(word, (counts.get(word) ?? 0) + 1));
      return { length: words.length, count: word => counts.get(word) ?? 0 };
    };
    const headings = docnames.map(() => []);
    for (const [heading, places] of Object.entries(alltitles))
      for (const [page, anchor] of places)
        if (anchor !== null) headings[page].push(...this.stems(heading));
    this.pages = docnames.map((name, page) => ({
      title: bag(this.stems(titles[page])),
      headings: bag(headings[page]),
      text: { length: lengths[page], count: word => this.times(word, page) },
    }));
    for (const field in this.fields) {
      const all = this.pages.reduce((sum, page) => sum + page[field].length, 0);
      this.pages.forEach(page => (page[field].share = page[field].length * docnames.length / all));
    }
  },

  // The pages that a list of the index has for a word.
  listed: (list, word) => (Object.hasOwn(list, word) ? [list[word]].flat() : []),

  // How often the text of a page says a word; the index lists only what is said more than once.
  times(word, page) {
    const { counts, terms, titleterms } = Search._index;
    if (Object.hasOwn(counts, word) && page in counts[word]) return counts[word][page];
    return [terms, titleterms].some(list => this.listed(list, word).includes(page)) ? 1 : 0;
  },

  // A word that no page holds stands for those that it is a part of.
  meant(word) {
    const { terms, titleterms } = Search._index;
    if ([terms, titleterms].some(list => Object.hasOwn(list, word))) return [word];
    const known = new Set([...Object.keys(terms), ...Object.keys(titleterms)]);
    return [...known].filter(other => other.includes(word));
  },

  rank(query) {
    this.read();
    const asked = this.stems(query);
    const { saturation: k, length: b } = this;
    const scores = this.pages.map(() => 0);
    for (const gain of ["named", "defined"])
      for (const page of this.listed(Search._index[gain], asked.join(" ")))
        scores[page] += this[gain];
    const words = asked.map(word => {
      const forms = this.meant(word);
      const worth = this.pages.map(page => {
        const sum = Object.entries(this.fields).map(([field, weight]) => {
          const times = forms.reduce((all, form) => all + page[field].count(form), 0);
          return weight * (k + 1) * times / (times + k * (1 - b + b * page[field].share));
        });
        return sum.reduce((all, one) => all + (one || 0), 0);
      });
      const holding = worth.filter(one => one > 0).length;
      return { worth, rare: Math.log(1 + (worth.length - holding + 0.5) / (holding + 0.5)) };
    });
    const all = words.reduce((sum, { rare }) => sum + rare, 0) || 1;
    const add = page => words.reduce((sum, { worth, rare }) => sum + worth[page] * rare / all, 0);
    return new Map(Search._index.docnames.map((name, page) => [name, scores[page] + add(page)]));
  },
};

var Scorer = {
  score: ([docname, title, anchor, descr, score]) => {
    const query = (new URLSearchParams(location.search).get("q") ?? "").trim();
    if (Ranking.query !== query) Object.assign(Ranking, { query, scores: Ranking.rank(query) });
    const page = Ranking.scores.get(docname);
    const last = score / 1000; // among results of one page, what Sphinx puts first
    if (descr === null) return page * (docname.startsWith("book/api") ? Ranking.api : 1) + last;
    const named = /^[\w.]+$/.test(query) && `.${title}`.endsWith(`.${query}`);
    const inside = title.split(".").length - docname.split("/").pop().split(".").length > 2;
    return named && !inside ? Ranking.name + last : page * Ranking.member + last;
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
