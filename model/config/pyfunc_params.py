"""The params of a registered model's ``predict``, with their defaults: the model's signature in MLflow lists them."""

from . import Decoding, Sampling


def translator_params(decoding: Decoding) -> dict[str, bool | int | float | str]:
    """The settings of a search (``decoding`` gives their defaults) and of sampling, and what ``predict`` returns.

    ``split`` is long, always or never; ``prefix`` is how each translation begins; ``sample`` draws tokens instead of
    searching for them; ``engine`` is auto, own or ctranslate2 (``model.decoding.search_engine``); with ``scores``, or
    ``n_best`` above 1, the output has a dict for each hypothesis.
    """
    search = {name: value for name, value in decoding.search().items() if name not in ("numerics", "precision")}
    output = {"n_best": 1, "scores": False, "sample": False, "prefix": "", "split": "always", "engine": "auto"}
    return {**search, **output, **vars(Sampling())}
