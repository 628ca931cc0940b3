"""The link from the HTML of an estimator to its entry in the book."""

from importlib.metadata import PackageNotFoundError

import pytest
from registry import ENTRIES
from sklearn.base import BaseEstimator

import lml.utils.documentation
from lml.evaluation import LifelongKNeighborsClassifier
from lml.lifelong import LifelongMetricLearner
from lml.neighbors import MetricKNeighborsClassifier
from lml.plda import LifelongPLDA
from lml.single_task import TaskTransformer
from lml.utils.documentation import DocumentedMixin, book_address
from lml.weak_supervision import OpenSetClassifier, PairClassifier

READERS = [
    LifelongKNeighborsClassifier(None),
    MetricKNeighborsClassifier(),
    OpenSetClassifier(None),
    PairClassifier(None),
    TaskTransformer(LifelongMetricLearner()),
]


@pytest.fixture
def published(tmp_path, monkeypatch):
    """A function that installs a package whose metadata have these lines."""

    def install(*lines):
        said = tmp_path / "lifelong_metric_learning-1.dist-info" / "METADATA"
        said.parent.mkdir(exist_ok=True)
        head = ["Metadata-Version: 2.1", "Name: lifelong-metric-learning", "Version: 1"]
        said.write_text("\n".join([*head, *lines, ""]))
        monkeypatch.syspath_prepend(tmp_path)

    return install


@pytest.mark.parametrize(
    "lines",
    [
        (),
        ("Project-URL: Source, https://example.org/code",),
        ("Home-page: https://example.org", "Project-URL: documentation,"),
    ],
)
def test_without_an_address_there_is_no_link(lines, published):
    published(*lines)
    assert book_address() == ""
    assert LifelongPLDA()._get_doc_link() == ""
    assert "href" not in LifelongPLDA()._repr_html_().split("</style>")[-1]


def test_a_package_that_is_not_installed_has_no_address(monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(lml.utils.documentation, "metadata", missing)
    assert book_address() == ""


@pytest.mark.parametrize("estimator", [*(e.make() for e in ENTRIES), *READERS], ids=repr)
def test_the_link_leads_to_the_entry_of_the_class(estimator, published):
    published("Project-URL: Documentation, https://example.org/lml/")
    kind = type(estimator)
    module = kind.__module__
    page = f"book/api/{module.partition('.')[2]}"
    link = f"https://example.org/lml/{page}.html#{module}.{kind.__name__}"
    assert estimator._get_doc_link() == link
    assert f'href="{link}"' in estimator._repr_html_()
    root = lml.utils.documentation.__file__.rpartition("/lml/")[0]
    with open(f"{root}/{page}.md", encoding="utf-8") as source:  # the page that is built of it
        assert module in source.read()


def test_a_class_of_somebody_else_has_no_link_to_this_book(published):
    published("Project-URL: Documentation, https://example.org/lml")

    class Own(DocumentedMixin, BaseEstimator):
        pass

    assert Own()._get_doc_link() == ""
