"""Draws directed graphs: places boxes in layers, and writes a page that can be searched and moved; knows no program."""
