"""The search of the book: what its index is told, and the order of what it finds."""

from __future__ import annotations

import json
from types import SimpleNamespace

import lml_search
import pytest
from browser import browser_path, launch, serve
from docutils import nodes
from tangle import ROOT

SCORER = (ROOT / "book" / "_ext" / "scorer.js").read_text(encoding="utf-8")


def page(title, *parts):
    """The document of a page: texts become paragraphs."""
    document = nodes.section("", nodes.title("", title))
    for part in parts:
        document += nodes.paragraph("", part) if isinstance(part, str) else part
    return document


def section(title, *parts):
    return page(title, *parts)


def entry(name, text, *targets, ids=("term-x",)):
    """An item of a list of definitions, an entry of a glossary if its name has an address."""
    said = nodes.paragraph("", text)
    for target in targets:
        said += nodes.inline("", "there", reftarget=target)
    term = nodes.term("", name, ids=list(ids))
    return nodes.definition_list_item("", term, nodes.definition("", said))


def test_words_are_counted_in_the_text_alone():
    code = nodes.literal_block("", "atoms = atoms + atoms")
    raw = nodes.raw("", "atoms atoms", format="html")
    document = page("Two atoms", "An atom, and the atoms.", code, raw, nodes.comment("", "atom"))
    assert lml_search.count_words(document)["atom"] == 3


def test_a_page_is_called_by_its_address_and_by_its_title_up_to_a_colon():
    document = page("The data: collections of tasks", section("Not a name"))
    assert lml_search.page_names(document, "book/few_sets") == {"few set", "data"}
    assert lml_search.page_names(page("OASIS"), "book/oasis") == {"oasi"}


def test_headings_slanted_words_and_the_glossary_define_terms():
    slanted = nodes.paragraph("", "", nodes.emphasis("", "soft threshold"))
    heavy = nodes.paragraph("", "", nodes.strong("", "a claim that is too long to be any term"))
    glossary = nodes.definition_list(
        "",
        entry("forgetting", "What is lost: look", "book/evaluation"),
        entry("base learner", "Two of them are", "book/oasis", "book/scml"),
        entry("plain", "A list of definitions", ids=()),
    )
    document = page("Title", section("The hinge, and its sign", slanted, heavy), glossary)
    assert lml_search.defined_terms(document, "book/a") == {
        "hing": {"book/a"},
        "soft threshold": {"book/a"},
        "forget": {"book/a", "book/evaluation"},
        "base learner": {"book/a"},
    }


def app_of(folder):
    env = SimpleNamespace(docname="")
    return SimpleNamespace(env=env, outdir=str(folder))


def read(app, **documents):
    for name, document in documents.items():
        app.env.docname = name.replace("__", "/")
        lml_search.read_page(app, document)


def test_the_index_gets_what_was_read_of_pages_that_are_there(tmp_path):
    app = app_of(tmp_path)
    read(app, a=page("Atoms", "An atom."), b=page("Old", section("Atom")), c=page("C"))
    read(app, book__api__x=page("atom", section("Atom")))
    other = app_of(tmp_path)
    read(other, d=page("Two words", "atom, atom, once"))
    lml_search.merge_pages(app, app.env, ["d"], other.env)
    lml_search.forget_page(app, app.env, "b")
    index = {"docnames": ["d", "a", "book/api/x", "unread"], "terms": {"atom": [0, 1]}}
    file = tmp_path / "searchindex.js"
    file.write_text(f"Search.setIndex({json.dumps(index)})")
    lml_search.write_ranking(app, ValueError())
    assert "counts" not in file.read_text()
    lml_search.write_ranking(SimpleNamespace(env=app.env, outdir=str(tmp_path / "pdf")), None)
    assert not (tmp_path / "pdf").exists()  # a builder without an index
    for _ in range(2):  # a second build finds the index as the first left it
        lml_search.write_ranking(app, None)
    written = json.loads(file.read_text()[len("Search.setIndex(") : -1])
    assert written == index | {
        "lengths": [5, 3, 2, 0],
        "counts": {"atom": {"0": 2, "1": 2, "2": 2}},
        "named": {"atom": [1], "d": [0], "two word": [0]},
        "defined": {},
    }


#: A book of ten pages. Each line: address, title, headings, and how often the text says words.
PAGES = [
    ("book/oasis", "OASIS: one step", ["The step"], {"oasis": 5, "step": 9}),
    ("book/omtrsl", "OMTRSL: OASIS again", ["It is OASIS in a larger space"], {"oasis": 9}),
    ("book/coding", "Coding", ["One soft threshold"], {"soft": 4, "threshold": 9, "code": 1}),
    ("book/penalties", "The penalty", [], {"soft": 2, "threshold": 2}),
    ("book/rare", "Rarely", [], {"kernel": 1, "step": 1}),
    ("book/often", "Often", [], {"kernel": 9, "step": 1}),
    ("book/api/oasis", "<code>lml.oasis</code>", [], {"oasis": 9, "kernel": 9}),
    ("book/code", "The code", [], {"code": 3, "penalty": 2}),
    ("book/only", "The only", [], {"only": 3, "penalty": 2}),
    ("book/long", "At length", [], {"kernel": 9, "words": 900}),
]
# What the scripts of Sphinx give to the scorer, here with words as they are.
BEFORE = """
var stopwords = ["the", "and", "a"];
class Stemmer { stemWord(word) { return word; } }
var splitQuery = text => text.split(/[^\\w]+/).filter(word => word);
"""
RANK = """([index, query, results]) => {
  Search = {_index: index};
  Ranking.query = null;
  history.replaceState(null, '', '?q=' + encodeURIComponent(query));
  return results.map(result => Scorer.score(result));
}"""


def index_of(pages, named, defined):
    """The index of a book, as Sphinx and `lml_search` write it."""
    terms, counts, headings = {}, {}, {}
    for number, (_, title, sections, said) in enumerate(pages):
        for word, times in said.items():
            terms.setdefault(word, []).append(number)
            if times > 1:
                counts.setdefault(word, {})[str(number)] = times
        headings[title] = [[number, None]]
        headings |= {heading: [[number, "x"]] for heading in sections}
    return {
        "docnames": [name for name, *_ in pages],
        "titles": [title for _, title, *_ in pages],
        "alltitles": headings,
        "terms": terms,
        "titleterms": {"often": 5},
        "lengths": [sum(said.values()) for *_, said in pages],
        "counts": counts,
        "named": named,
        "defined": defined,
    }


@pytest.fixture(scope="module")
def ranked(tmp_path_factory):
    """Scores of the pages, and of names of the API, for what is asked."""
    if browser_path() is None:
        pytest.skip("no Chromium on this machine")
    folder = tmp_path_factory.mktemp("search")
    text = f"<!DOCTYPE html><title>Search</title><script>{BEFORE}{SCORER}</script>"
    (folder / "search.html").write_text(text, encoding="utf-8")
    with serve(folder) as base, launch() as browser:
        tab = browser.new_page()
        tab.goto(f"{base}search.html")

        def rank(query, *names, named=(), defined=()):
            results = [[name, title, "", None, 5] for name, title, *_ in PAGES]
            results += [["book/api/oasis", name, "#x", "a name", 5] for name in names]
            index = index_of(PAGES, dict(named), dict(defined))
            scores = tab.evaluate(RANK, [index, query, results])
            said = [name.rpartition("book/")[2] for name, *_ in PAGES] + list(names)
            return dict(zip(said, scores, strict=True))

        yield rank


def test_a_page_that_is_called_so_comes_before_one_that_says_so(ranked):
    scores = ranked("OASIS")
    assert scores["omtrsl"] > scores["oasis"] > scores["api/oasis"]  # by the words alone
    scores = ranked("OASIS", named={"oasis": [0]})
    assert max(scores, key=scores.get) == "oasis"


def test_a_page_that_defines_a_term_comes_before_one_that_says_it_more_often(ranked):
    scores = ranked("soft  Threshold")
    assert max(scores, key=scores.get) == "coding"
    scores = ranked("soft  Threshold", defined={"soft threshold": [3]})
    assert max(scores, key=scores.get) == "penalties"


def test_what_is_said_often_and_in_few_words_comes_first(ranked):
    scores = ranked("kernel")
    assert scores["often"] > scores["long"] > 0
    assert scores["often"] > scores["rare"]
    assert scores["often"] > 1.8 * scores["api/oasis"]
    part = ranked("kern")  # of a word
    assert part == scores


@pytest.mark.parametrize("query", ["constructor", "nowhere", "the", "?"])
def test_a_word_that_no_page_says_ranks_none(ranked, query):
    assert set(ranked(query).values()) == {0.005}  # what Sphinx gave


def test_a_rare_word_weighs_more(ranked):
    assert ranked("code")["code"] == pytest.approx(ranked("only")["only"])
    both = ranked("code only")
    assert both["only"] > 1.2 * both["code"] > 3


def test_a_name_of_the_api_is_found_by_its_name(ranked):
    names = ("lml.oasis.OASIS", "lml.oasis.OASIS.step", "lml.oasis.OASISLike")
    scores = ranked("OASIS", *names, named={"oasis": [0]})
    assert scores["oasis"] > scores[names[0]] > scores["api/oasis"] > scores[names[2]]
    scores = ranked("step", *names)
    assert scores["oasis"] > 1 > scores[names[1]]  # a method of that name is inside
    assert ranked("OASISLike", *names)[names[2]] > 2.9
