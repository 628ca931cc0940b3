"""Settings of the kernel that runs the chapters; `make` copies this file into .venv/ipython.

Figures are stored as SVG without a date, so that a second run gives the same bytes. Images inside
keep their pixels; what a cell marks `rasterized=True` is stored at twice the size of the screen.
"""

c = get_config()  # noqa: F821
c.IPKernelApp.log_level = "ERROR"
c.HistoryManager.enabled = False
c.InlineBackend.figure_formats = {"svg"}
c.InlineBackend.print_figure_kwargs = {
    "bbox_inches": "tight",
    "dpi": 192,
    "metadata": dict.fromkeys(("Creator", "Date", "Format", "Type")),
}
