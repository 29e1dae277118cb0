"""Explore a root in a browser: ``make notebook`` opens this notebook of marimo. It uses flows/api.py."""

import marimo

app = marimo.App(width="medium", app_title="Explore a root")


@app.cell
def _():
    from contextlib import suppress

    import marimo as mo
    import matplotlib.pyplot as plt
    import polars as pl

    from flows import api
    from infra.errors import BadConfiguration

    return BadConfiguration, api, mo, pl, plt, suppress


@app.cell
def _(api, mo):
    versions = api.versions()
    mo.stop(versions.is_empty(), mo.md("No model is registered in this root: `repro run demo` registers one."))
    mo.vstack([mo.md("# Registered versions"), mo.ui.table(versions.drop("run_id"), selection=None)])
    return (versions,)


@app.cell
def _(mo, versions):
    names = versions["name"].to_list()
    version_a = mo.ui.dropdown(names, names[-1], label="version A")
    version_b = mo.ui.dropdown(names, names[0], label="version B")
    mo.hstack([version_a, version_b], justify="start")
    return version_a, version_b


@app.cell
def _(BadConfiguration, api, mo, suppress, version_a, version_b):
    curves = {}
    for _name in dict.fromkeys((version_a.value, version_b.value)):
        with suppress(BadConfiguration):  # `repro gc` removed the training
            curves[_name] = api.curves(_name)
    mo.stop(not curves, mo.md("The trainings of these versions were removed."))
    _columns = dict.fromkeys(name for table in curves.values() for name in table.columns)
    metrics = [name for name in _columns if name not in ("update", "time")]
    metric = mo.ui.dropdown(metrics, "dev_perplexity", label="metric")
    mo.vstack([mo.md("# Curves of the trainings"), metric])
    return curves, metric


@app.cell
def _(curves, metric, mo, plt):
    _figure, _axes = plt.subplots(figsize=(8, 3), layout="constrained")
    for _name, _table in curves.items():
        if metric.value in _table.columns:
            _measured = _table.drop_nulls(metric.value)
            _axes.plot(_measured["update"], _measured[metric.value], marker=".", label=_name)
    _axes.set(xlabel="update", ylabel=metric.value)
    if metric.value.endswith("perplexity"):
        _axes.set_yscale("log")
    _axes.legend()
    mo.vstack([_figure])
    return


@app.cell
def _(api, mo, pl, version_a, version_b):
    _same = ["set", "pair_id", "source", "reference"]
    both = api.sentences(version_a.value).join(api.sentences(version_b.value), on=_same, suffix="_b")
    both = both.with_columns(gain=pl.col("chrf_b") - pl.col("chrf"))
    differences = both.filter(pl.col("hypothesis") != pl.col("hypothesis_b")).sort("gain")
    _sentence = f"{len(differences):,} of {len(both):,} sentences; those that B translates worst come first."
    mo.vstack([mo.md(f"# Sentences that differ\n\n{_sentence}"), mo.ui.table(differences, selection=None)])
    return (differences,)


@app.cell
def _(api, mo, pl, version_b):
    _run = version_b.value.rpartition("/")[0]
    rejected = pl.read_parquet(api.artifact(f"{_run}/clean").path() / "rejected.parquet")
    by_filter = rejected.group_by("filter").len("pairs").sort("pairs", descending=True)
    chosen_filter = mo.ui.dropdown(["all", *by_filter["filter"]], "all", label="filter")
    mo.vstack([mo.md(f"# Pairs that the filters of {_run} rejected"), by_filter, chosen_filter])
    return chosen_filter, rejected


@app.cell
def _(chosen_filter, mo, rejected):
    _shown = rejected if chosen_filter.value == "all" else rejected.filter(filter=chosen_filter.value)
    mo.ui.table(_shown, selection=None)
    return


@app.cell
def _(api, mo, version_b):
    model = api.load(version_b.value)
    sentence = mo.ui.text("The old woman sees a dog.", label="sentence", full_width=True)
    mo.vstack([mo.md(f"# Attention of {version_b.value}"), sentence])
    return model, sentence


@app.cell
def _(api, mo, model, sentence):
    translation = api.translate([sentence.value], model)["hypothesis"][0]
    maps = api.attention(sentence.value, model)
    _layers = max(len(each.weights) for each in maps.values())
    _heads = maps["cross"].weights.shape[1]
    kind = mo.ui.dropdown(list(maps), "cross", label="attention")
    layer = mo.ui.slider(1, _layers, value=_layers, label="layer", show_value=True)
    head = mo.ui.slider(1, _heads, label="head", show_value=True)
    mo.vstack([mo.md(f"**{translation}**"), mo.hstack([kind, layer, head], justify="start")])
    return head, kind, layer, maps, translation


@app.cell
def _(head, kind, layer, maps, mo, plt):
    _map = maps[kind.value]
    _figure, _axes = plt.subplots(figsize=(6, 5), layout="constrained")
    _layer = min(layer.value, len(_map.weights))  # encoder and decoder may have different depths
    _axes.imshow(_map.weights[_layer - 1, head.value - 1], vmin=0, vmax=1)
    _axes.set_title(f"layer {_layer}, head {head.value}")
    _axes.set_xticks(range(len(_map.columns)), _map.columns, rotation=90)
    _axes.set_yticks(range(len(_map.rows)), _map.rows)
    mo.vstack([_figure])
    return


if __name__ == "__main__":
    app.run()
