"""Backends beside the host, from the flags that switch them on to the sources of their regions in a library."""
