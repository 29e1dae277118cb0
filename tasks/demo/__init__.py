"""The embedded demo corpus: a small parallel text as compressed files. Imports no other sub-package."""
