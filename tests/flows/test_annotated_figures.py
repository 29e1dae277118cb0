"""The figures of docs/annotated are drawn from the numbers beside them, and the numbers are what the page says."""

import math
import xml.etree.ElementTree as ET

import pytest
import torch
from figures import DATA, DRAW, FIGURES, Numbers, read
from scipy import stats
from transformer import causal_mask, learning_rate, positional_encoding

MADE = sorted(path.stem for path in FIGURES.glob("*.svg"))
MOST_BYTES = 150_000


def tensor(values: list[object]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("name", MADE)
def test_a_figure_is_what_its_numbers_draw(name: str) -> None:
    drawn = DRAW[name](read(name)).svg()
    assert (FIGURES / f"{name}.svg").read_text() == drawn, "run `python docs/annotated/figures.py`"
    assert len(drawn.encode()) < MOST_BYTES
    assert "prefers-color-scheme:dark" in drawn
    root = ET.fromstring(drawn)
    assert root.get("viewBox", "").startswith("0 0 360 ")
    assert root[0].text, "a title for those who do not see it"


def test_every_file_of_numbers_has_a_figure() -> None:
    assert {path.stem for path in DATA.glob("*.json")} - {"trainings"} == set(MADE)


def test_positions_are_the_papers() -> None:
    data = read("positions")
    encoding = positional_encoding(len(data["encoding"]), len(data["encoding"][0]))
    assert torch.allclose(tensor(data["encoding"]).float(), encoding, atol=0.0051)
    assert torch.allclose(tensor(data["products"]).float(), encoding @ encoding.T, atol=0.0051)


def test_masks_hide_padding_and_the_future_alone() -> None:
    for each in read("masks")["masks"]:
        visible = tensor(each["visible"]).bool()
        piece = torch.tensor([key != "<pad>" for key in each["keys"]])
        allowed = causal_mask(len(piece)) if each["name"] == "Decoder" else torch.ones_like(visible)
        assert visible.equal(piece & allowed), each["name"]
        assert not piece.all()


def test_weights_of_the_head_follow_from_its_queries_and_keys() -> None:
    data = read("qkv")
    q, k, v = (tensor(data[name]) for name in "QKV")
    scores = q @ k.T / math.sqrt(q.shape[1])
    assert torch.allclose(tensor(data["scores"]), scores, atol=0.01)
    assert torch.allclose(tensor(data["weights"]), tensor(data["scores"]).softmax(dim=-1), atol=0.001)
    assert len(data["pieces"]) == len(q) == len(v)


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_weights_of_every_query_sum_to_one(kind: str) -> None:
    data = read(f"attention-{kind}")
    weights = tensor(data["weights"])
    assert weights.shape[2:] == (len(data["queries"]), len(data["keys"]))
    assert torch.allclose(weights.sum(-1), torch.ones(weights.shape[:3]).double(), atol=1e-3)
    future = ~causal_mask(weights.shape[-1])
    if kind == "decoder":
        assert not weights[..., future].any()


def looks(kind: str, row: str, key: str) -> set[tuple[int, int]]:
    """The layers and heads, counted from 1, whose largest weight in a row lies on a key."""
    data = read(f"attention-{kind}")
    most = tensor(data["weights"])[:, :, data["queries"].index(row)].argmax(-1)
    return {(layer + 1, head + 1) for layer, head in (most == data["keys"].index(key)).nonzero().tolist()}


def test_the_heads_look_where_the_page_says() -> None:
    assert looks("cross", "▁kaufen", "▁buy") == {(1, 1), (1, 2), (2, 1), (2, 2), (2, 4)}
    assert [len(looks("cross", piece, "▁trains")) for piece in ("z", "üge")] == [7, 6]
    assert looks("decoder", "▁kaufen", "▁muss") == {(2, 1), (2, 4)}
    rows = read("attention-decoder")["queries"]
    for head in (1, 3):
        assert sum((2, head) in looks("decoder", row, "▁muss") for row in rows) == len(rows) / 2 == 5


def test_smoothing_gives_one_epsilon_to_all_entries_alike() -> None:
    data = read("smoothing")
    for kind in ("hard", "smoothed", "model"):
        assert sum(data[kind]) == pytest.approx(1, abs=1e-5), kind
        assert len(data[kind]) == len(data["pieces"])
    each = data["epsilon"] / data["vocabulary"]
    assert data["smoothed"][:2] == pytest.approx([1 - data["epsilon"] + each, each], abs=1e-6)


def test_the_rate_is_greatest_at_the_end_of_the_warmup() -> None:
    for curve in read("schedule")["curves"]:
        steps = [step for step, _ in curve["points"]]
        rates = [rate for _, rate in curve["points"]]
        assert rates == pytest.approx([learning_rate(s, curve["d_model"], curve["warmup"]) for s in steps], rel=1e-4)
        assert steps[rates.index(max(rates))] == curve["warmup"]


def live(step: list[Numbers]) -> list[Numbers]:
    return [node for node in step if not node["ended"]]


def test_the_beam_keeps_the_likeliest_prefixes_and_its_answer_has_the_best_score() -> None:
    data = read("beam")
    written = ""
    above: list[Numbers] = [{"log_p": 0.0, "best": True}]
    for length, step in enumerate(data["steps"], start=1):
        assert len(live(step)) == data["beam"]
        for node in step:
            parent = above[node["parent"]]
            assert node["log_p"] <= parent["log_p"], "a longer prefix is no likelier"
            assert parent["best"] or not node["best"]
            if node["ended"]:
                assert node["score"] == pytest.approx(node["log_p"] / ((5 + length) / 6) ** data["alpha"], abs=1e-3)
        written += "".join(node["piece"] for node in step if node["best"])
        above = live(step)
    ended = [node for step in data["steps"] for node in step if node["ended"]]
    assert max(ended, key=lambda node: node["score"])["best"]
    assert written.replace("▁", " ").strip() == data["answer"] + "</s>"


def test_the_command_says_which_figures_there_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import figures

    monkeypatch.setattr("sys.argv", ["figures.py", "beams"])
    with pytest.raises(SystemExit):
        figures.main()
    assert "NAME is 'beams', allowed is positions, masks" in capsys.readouterr().err


@pytest.mark.parametrize("measure", ["bleu", "nats"])
def test_differences_of_the_ablations_follow_from_the_trainings(measure: str) -> None:
    data = read("ablations")
    rows = {(row["recipe"], row["seed"]): row for row in read("trainings")["trainings"]}
    assert len(data["seeds"]) >= 2, "an interval needs two"

    def values(name: str, last: bool = False) -> list[float]:
        if measure == "nats":
            return [math.log(rows[name, seed]["perplexity"]) for seed in data["seeds"]]
        return [rows[name, seed]["bleu_last" if last else "bleu"] for seed in data["seeds"]]

    base = values("all")
    assert data["base"][measure] == pytest.approx(base, abs=0.001)
    for each in data[measure]:
        averaging = each["name"] == "averaging"
        without = values("all", last=True) if averaging else values(each["name"])
        difference = [value - before for value, before in zip(without, base, strict=True)]
        assert each["difference"] == pytest.approx(difference, abs=0.002), each["name"]
        assert each["mean"] == pytest.approx(sum(difference) / len(base), abs=0.002)
        ends = stats.ttest_1samp(difference, 0).confidence_interval(0.95)
        assert [each["low"], each["high"]] == pytest.approx([ends.low, ends.high], rel=1e-3, abs=0.02)


def test_post_ln_ends_with_positions_more_alike_than_pre_ln() -> None:
    data = read("collapse")
    last = {(curve["norm"], curve["trained"]): curve["cosine"][-1] for curve in data["curves"]}
    assert all(len(curve["cosine"]) == data["layers"] + 1 for curve in data["curves"])
    assert last["post", True] > last["pre", True]
