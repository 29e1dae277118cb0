"""From source lines to translations: beam search (section 6.1), sampling, sentence splitting.

In: a folder of weights, a vocabulary and text. Out: hypotheses with scores. Knows neither training nor export.
"""
