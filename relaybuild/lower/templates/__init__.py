"""Kernel templates: each takes a schedule, a load and an epilogue, and yields loop IR."""
