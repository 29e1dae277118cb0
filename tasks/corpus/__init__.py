"""Corpora: which files they consist of, how these are downloaded, and how they are read as aligned lines.

``catalogue`` lists the known corpora; ``fetching`` downloads files; ``reading`` turns files into frames of sentence
pairs with the help of ``archives`` (files to bytes), ``plain``, ``table_columns`` and ``tmx`` (bytes to lines). Depends
on no stage and no filter.
"""
