"""Caches on other machines: what they are asked, by which protocol, and what is believed of their answers."""
