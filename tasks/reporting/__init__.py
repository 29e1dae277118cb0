"""The page of one run: its pictures, its example sentences, and the HTML template."""
