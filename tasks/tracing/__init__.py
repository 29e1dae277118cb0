"""One sentence pair followed through the pipeline, from the raw line to its score.

In: finished artifacts and a pair id. Out: one value for each step. Makes no artifact and does not draw;
``flows.views`` does.
"""
