"""Write the pages that come from the program itself: ``commands.md``, ``run-fields.md`` and ``python.md``.

    python docs/reference.py        (`make reference` does it)

A test compares the pages with what this program makes.
"""

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from inspect import getdoc, getsource, getsourcelines
from pathlib import Path
from textwrap import indent
from typing import Any, get_args, get_type_hints

from flows import api
from flows.cli import application
from flows.runs.plain_values import RULES
from flows.runs.run import Run
from flows.runs.synthetic import BackTranslation, Distillation
from flows.runs.toml_runs import field_documentation
from model.config import Averaging, Decoding, Model, Training
from model.config.normalise import Normalise
from tasks.cleaning.filters import Filters
from tasks.corpus.catalogue import Corpus, EvaluationSet, File, Part, Text
from tasks.stages.learn_bpe import Vocabulary
from tasks.stages.shard import Sharding

FOLDER = Path(__file__).resolve().parent
TABLES: dict[str, type] = {
    "corpus": Corpus,
    "corpus.parts": Part,
    "source, target": Text,
    "file": File,
    "sets": EvaluationSet,
    "filters": Filters,
    "filters.normalise": Normalise,
    "vocabulary": Vocabulary,
    "sharding": Sharding,
    "model": Model,
    "training": Training,
    "averaging": Averaging,
    "decoding": Decoding,
    "synthetic = BackTranslation": BackTranslation,
    "synthetic = Distillation": Distillation,
}
"""Each class of a run's configuration, by its place in a run."""
MADE = "<!-- Made by docs/reference.py: edit the program, then run `make reference`. -->\n"

HEAD = """# Fields of a run

A run in TOML has these tables and fields ([own-text.md](own-text.md)); `--set training.updates=200` sets one of them.
`repro show RUN` prints their values. Defaults are those of the classes: the paper's base model; built-in runs set
others. A field enters the keys of the stages that use it, unless the text says otherwise
([design.md](design.md#keys-and-hits)).
"""


def commands() -> str:
    """The page of all commands, from the help that each prints."""
    text = application().generate_docs(output_format="markdown", recursive=True)
    text = text.replace(f"{FOLDER.parent}/", "")  # of defaults that are paths
    text = re.sub(r"^## Table of Contents\n.*?(?=^\*\*Commands)", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"\]\(#repro-+([a-z-]+)\)", r"](#repro-\1)", text)
    text = text.replace("## repro --install-completion", "## repro install-completion")
    text = re.sub(r"^(Example: )(repro .*)$", r"\1`\2`", text, flags=re.MULTILINE)
    # Examples are the last paragraphs of a docstring; as Markdown they are code.
    text = re.sub(r"(?<=^For example:\n\n).*?(?=^\*\*|^## )", _indented, text, flags=re.DOTALL | re.MULTILINE)
    head = "# Commands\n\nEvery command with its options, as `repro COMMAND --help` prints them.\n"
    return MADE + head + text.partition("\n")[2].rstrip() + "\n"


def _indented(found: "re.Match[str]") -> str:
    return indent(found[0], "    ")


def run_fields() -> str:
    """The page of every field of a run, from the classes and the text below each field."""
    lines = HEAD.splitlines()
    lines += ["", "## run", "", *_table(Run)]
    for name, kind in TABLES.items():
        lines += ["", f"## {name}", "", *_about(kind), "", *_table(kind)]
    lines += [
        "",
        "## filters.rules",
        "",
        "A rule is a table with `rule`, one of these names, and the rule's own fields.",
    ]
    for name, kind in RULES.items():
        lines += ["", f"### {name}", "", *_about(kind), *(["", *_table(kind)] if fields(kind) else [])]
    return MADE + "\n".join(lines) + "\n"


def python_interface() -> str:
    """The page of ``flows.api``, from its docstrings and signatures."""
    lines = ["# The Python interface", "", *_about(api)]
    functions = sorted((getattr(api, name) for name in api.__all__), key=lambda each: getsourcelines(each)[1])
    for each in functions:
        code = ["```python", f"{each.__name__}{_signature(each)}", "```"]
        lines += ["", f"## {each.__name__}", "", *code, "", *_about(each)]
    return MADE + "\n".join(lines) + "\n"


def _signature(function: Callable[..., object]) -> str:
    """The signature with types as the source writes them, a parameter per line if it is long."""
    (node,) = ast.parse(getsource(function)).body
    assert isinstance(node, ast.FunctionDef)
    returned = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    parts = [part.replace("=", " = ", 1) for part in re.split(r", (?=\*|\w+:)", ast.unparse(node.args))]
    text = f"({', '.join(parts)}){returned}"
    return text if len(text) < 90 else "(\n" + "".join(f"    {part},\n" for part in parts) + f"){returned}"


def _about(kind: object) -> list[str]:
    return (getdoc(kind) or "").replace("``", "`").splitlines()


def _table(kind: type) -> Iterator[str]:
    documented, hints = field_documentation(kind), get_type_hints(kind)
    head = "| field | values | default |"
    yield from (head + " meaning |", "|---|---|---|---|") if documented else (head, "|---|---|---|")
    for field in fields(kind):
        meaning = documented.get(field.name, "").replace("``", "`").replace("|", "\\|")
        row = f"| `{field.name}` | {_values(hints[field.name])} | {_default(field)} |"
        yield f"{row} {meaning} |" if documented else row


def _values(kind: Any) -> str:
    """The values of a field in words."""
    words = {str: "text", int: "whole number", float: "number", bool: "true or false", type(None): "none"}
    if kind in words:
        return words[kind]
    if isinstance(kind, type) and is_dataclass(kind):
        return f"table `{kind.__name__}`"
    inner = [each for each in get_args(kind) if each is not Ellipsis]
    if kind.__class__.__name__ == "_LiteralGenericAlias":
        return ", ".join(f"`{each}`" for each in inner)
    if getattr(kind, "__origin__", None) is tuple:
        return f"list of {_values(inner[0])}"
    return " or ".join(map(_values, inner)) if inner else "rule"


def _default(field: "Field[Any]") -> str:
    value = field.default
    if value is MISSING:
        return "required"
    if is_dataclass(value):
        return "the defaults of its table"
    if isinstance(value, bool):
        return f"`{value}`".lower()
    if value is None or value == ():
        return "none"
    if isinstance(value, tuple):
        return f"`{list(value)}`"
    return "empty" if value == "" else f"`{value:_}`" if isinstance(value, int) else f"`{value}`"


PAGES = {"commands.md": commands, "run-fields.md": run_fields, "python.md": python_interface}
"""What makes each page."""

if __name__ == "__main__":
    for page, make in PAGES.items():
        (FOLDER / page).write_text(make())
