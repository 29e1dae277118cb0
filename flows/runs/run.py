"""The configuration of a run: everything that decides its result."""

from dataclasses import dataclass

from flows.runs.synthetic import COUNTED_AS, BackTranslation, Distillation
from model.config import Averaging, Decoding, Model, Training, check_compatible
from model.config.keying import require, require_finite, require_name
from tasks.cleaning.filters import Filters
from tasks.corpus.catalogue import Corpus, EvaluationSet, files
from tasks.corpus.noise import NO_NOISE, Augment
from tasks.engine.limits import Limits
from tasks.stages.learn_bpe import Vocabulary
from tasks.stages.register import MIN_CHAMPION_BLEU
from tasks.stages.shard import Sharding


@dataclass(frozen=True)
class Run:
    """Everything that decides the result. The ``Site`` decides where it is computed.

    Raises ValueError with the field, its value and what is allowed if the parts do not fit together.
    """

    name: str
    """The name of its records, artifacts and registered model."""
    about: str
    """One line for ``repro show``."""
    corpus: Corpus
    """The training text."""
    sets: tuple[EvaluationSet, ...]
    """Evaluation sets. Adding one does not repeat the training."""
    dev: str
    """The set for validation during training and for the choice of ``champion``; never a test set."""
    filters: Filters
    """How the training text is cleaned; the paper names no cleaning."""
    vocabulary: Vocabulary
    """How text becomes tokens (§5.1)."""
    sharding: Sharding
    """Limits on the length of pairs, and how pairs are stored."""
    model: Model
    """The Transformer's shape (§3, Table 3)."""
    training: Training
    """Batches, schedule, optimizer, regularisation (§5)."""
    averaging: Averaging
    """The checkpoints that are averaged into the model (§6.1)."""
    decoding: Decoding
    """Search settings for evaluation sets, and the default of registered versions (§6.1)."""
    evaluate: tuple[str, ...] = ()
    """The sets to translate and score, including the dev set; empty for all. A sweep scores only the dev set."""
    min_champion_bleu: float = MIN_CHAMPION_BLEU
    """BLEU on the dev set, from 0 to 100, below which a version never becomes ``champion``; 0 for no limit."""
    expect: tuple[str, ...] = ()
    """Limits on facts of stages, such as `score.dev.bleu >= 20` or `warn train.seconds <= 3600`. A breach fails the
    stage as bad data, but keeps its artifact, or warns. They enter no key."""
    synthetic: BackTranslation | Distillation | None = None
    """How synthetic training pairs are made; None: only the pairs of the corpus."""
    augment: Augment = NO_NOISE
    """Noised copies of training pairs, which make the model robust; none without shares."""

    def __post_init__(self) -> None:
        require_name(self.name, "name")
        require_finite(self, "")
        limit = self.min_champion_bleu
        require(0 <= limit <= 100, "min_champion_bleu", limit, "a BLEU score from 0 to 100")
        Limits.parse(self.expect)
        names = [s.name for s in self.sets]
        require(len(set(names)) == len(names), "sets", names, "sets of different names")
        reserved = COUNTED_AS.keys() & set(names)
        require(not reserved, "sets", [*reserved], "sets of other names: the stages of synthetic text have these")
        require(self.dev in names, "dev", self.dev, f"one of the run's sets: {', '.join(names)}")
        for name in self.filters.exclude:
            require(name in names, "filters.exclude", name, f"one of the run's sets: {', '.join(names)}")
        allowed = f"names among {', '.join(names)}, with the dev set {self.dev}"
        fits = not self.evaluate or (set(self.evaluate) <= set(names) and self.dev in self.evaluate)
        require(fits, "evaluate", self.evaluate, allowed)
        for each in self.sets:
            scored = self.evaluate or names
            allowed = f"a set with noise beside its clean set: add {each.clean_name}"
            beside = each.name not in scored or each.clean_name in scored
            require(beside, "evaluate" if self.evaluate else "sets", each.name, allowed)
        texts = self.synthetic.monolingual if isinstance(self.synthetic, BackTranslation) else self.corpus
        sums: dict[str, tuple[str, str]] = {}
        for file in (*files(self.corpus, self.sets), *files(texts)):  # the path identifies a download
            same = sums.setdefault(file.path, (file.sha256, file.md5)) == (file.sha256, file.md5)
            require(same, "file.path", file.path, "a path of its own for each file: another has it, with another sum")
        if isinstance(self.synthetic, BackTranslation):
            self.synthetic.check(self.corpus, self.training.start)
            tag = self.synthetic.tag
            whole = not tag or not self.vocabulary.splits_words
            allowed = "empty where vocabulary.tokens is spacy or vocabulary.moses is true, which would split it"
            require(whole, "synthetic.tag", tag, allowed)
        count = self.averaging.count
        keep = self.training.keep
        patience = self.training.patience
        enough = count <= keep or self.training.keep_epochs > 0  # keep_epochs keeps checkpoints by epoch, not by count
        require(enough, "averaging.count", count, f"at most training.keep, which is {keep}")
        which = self.averaging.which
        require(which != "best" or patience > 0, "averaging.which", which, "last, where training.patience is 0")
        seed = self.training.seed
        seeds = self.decoding.ensemble
        require(not seeds or seed in seeds, "decoding.ensemble", seeds, f"seeds with training.seed, {seed}, among them")
        # The number of updates in an epoch is unknown before batching; averaging checks the count again.
        lengths = [] if self.training.epochs else [self.training.updates]
        if self.synthetic:
            updates = self.synthetic.updates
            require(updates >= 0, "synthetic.updates", updates, "0 (as long as the run's) or a whole number above")
            lengths += [updates] if updates else []
        for updates in lengths:
            self._check_saved(updates)
        continued = self.training.continue_from
        allowed = "empty where decoding.ensemble trains further seeds"
        require(not (continued and seeds), "training.continue_from", continued, allowed)
        self._check_model("model", self.model)
        if isinstance(self.synthetic, Distillation):
            self._check_model("synthetic.teacher", self.synthetic.teacher)

    def _check_saved(self, updates: int) -> None:
        """Raise ValueError unless a training of ``updates`` saves the checkpoints to average."""
        count = self.averaging.count
        fewest = fewest_updates(self.training, updates)
        saved = -(-fewest // self.training.checkpoint_every)
        allowed = (
            f"at most {saved}, the checkpoints that {fewest} updates save every training.checkpoint_every; "
            "lower this or averaging.count"
        )
        require(count <= saved, "averaging.count", count, allowed)

    def _check_model(self, name: str, model: Model) -> None:
        """Raise ValueError unless the model, the field ``name``, can be trained on the run's pairs."""
        check_compatible(model, self.training)
        joint = self.vocabulary.joint or not model.tied
        require(joint, f"{name}.tied", model.tied, "false, as vocabulary.joint is false")
        longest = self.sharding.max_pieces
        positions = model.max_positions
        sources = f"{name}.source_ends is bos+eos" if model.source_ends == "bos+eos" else ""
        two = sources or ("training.target_ends is eos+eos" if self.training.target_ends == "eos+eos" else "")
        added = 2 if two else 1
        room = f", by 2 or more where {two}" if two else ""
        fits = not model.learns_positions or longest + added <= positions
        require(fits, "sharding.max_pieces", longest, f"below {name}.max_positions, which is {positions}{room}")
        budget = self.training.batch_tokens
        within = longest + added <= budget or self.training.batch_sentences > 0
        require(within, "sharding.max_pieces", longest, f"below training.batch_tokens, which is {budget}{room}")


def fewest_updates(training: Training, updates: int) -> int:
    """Return the smallest number of updates after which a training of ``updates`` can end."""
    # The first validation is the best so far; training can stop after ``patience`` more.
    return min(updates, (training.patience + 1) * training.dev_every) if training.patience else updates
