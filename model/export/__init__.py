"""Export of trained models to CTranslate2, Hugging Face Transformers and MLflow.

In: a folder of weights and a vocabulary. Out: a folder in the format of the library. Each module imports one optional
library; nothing else in ``model`` may import this sub-package.
"""
