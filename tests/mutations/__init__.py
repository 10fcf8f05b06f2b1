"""Each file here takes out what prevents one failure of the table in docs/caching.md."""
