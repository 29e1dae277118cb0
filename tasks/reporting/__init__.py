"""The page of one run: its pictures, its example sentences, and the HTML template.

Input: files and facts of artifacts. Output: PNG pictures and one self-contained page. Depends on no stage.
"""
