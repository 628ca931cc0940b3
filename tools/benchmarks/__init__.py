"""Measured side by side: this package and what users would otherwise pick (``make bench``)."""
