"""Trained models in the formats of other programs.

In: a folder of weights and a vocabulary. Out: a folder for CTranslate2, Hugging Face or MLflow. Each module imports one
library, which is an extra; nothing else in ``model`` imports this sub-package.
"""
