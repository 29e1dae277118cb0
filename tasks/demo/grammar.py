"""A small English-German grammar that generates random sentence pairs; ``tasks.demo.corpus`` writes them to files.

It covers number and person agreement, four German cases and three genders with articles and adjective endings, weak
nouns, verb-second and verb-final clauses, separable verbs, compounds, comparatives and numbers. The German translation
is a function of the English sentence.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tasks.demo.lexicon import (
    ACC,
    ACTIONS,
    COMPOUNDS,
    DAT,
    DER,
    EIN,
    EIN_WORDS,
    GEN,
    JOINTS,
    MIXED,
    MODALS,
    NAMES,
    NOM,
    OFTEN,
    PLACE_NOUNS,
    QUALITIES,
    SAYINGS,
    SEIN,
    SIMPLE,
    SPEAKERS,
    STRONG,
    THE,
    TIMES,
    WAR,
    WEAK,
    WERDEN,
    Adjective,
    Draw,
    Noun,
    Phrase,
    Verb,
    contracted,
    number,
)

CASES = (NOM, ACC, DAT, GEN)
_BY_KIND = {kind: [noun for noun in SIMPLE if noun.kind == kind] for kind in "PATFOCEV"}
_COMPOUND_BY_KIND = {kind: [noun for noun in COMPOUNDS if noun.kind == kind] for kind in "PATFOCEV"}
_ADJECTIVES = {kind: [a for a in QUALITIES if kind in a.kinds or a.kinds == "*"] for kind in "PATFOCEVL"}
_DETERMINERS = ("the",) * 8 + ("a",) * 4 + ("this", "this", "every", "my", "my", "your", "his", "her", "our", "their")
_SURE = ("the",) * 6 + ("this", "my", "your", "his", "her", "our", "their")


@dataclass(frozen=True)
class Pair:
    """An English sentence, its German translation, and the word combinations that it holds."""

    source: str
    target: str
    combined: tuple[str, ...]


@dataclass(frozen=True)
class Clause:
    """A clause without word order. ``ask`` and ``bare`` form the English question; an empty ``ask`` means none."""

    subject: Phrase
    english: str
    """Finite verb and everything after it, except the time."""
    ask: str
    bare: str
    time: tuple[str, str]
    finite: str
    middle: tuple[str, ...]
    """German between subject and ``closing``, except the time."""
    first: str
    """A pronoun object, which precedes the time."""
    closing: str
    joined: str
    """The end of the clause if the finite verb is last."""
    combined: tuple[str, ...]


def _words(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def _declined(stem: str, ending: str) -> str:
    return stem + (ending[1:] if stem.endswith("e") and ending.startswith("e") else ending)


def _sentence(source: str, target: str, combined: tuple[str, ...], mark: str = ".") -> Pair:
    return Pair(source[0].upper() + source[1:] + mark, target[0].upper() + target[1:] + mark, combined)


def noun_phrase(draw: Draw, noun: Noun, determiners: Sequence[str], several: float = 0.25) -> Phrase:
    """A phrase of ``noun`` in all cases: determiner or number, at most one adjective, the noun."""
    plural = draw.chance(several)
    determiner = "the" if plural and draw.chance(0.4) else draw.one(determiners)
    adjectives = _ADJECTIVES[noun.kind]
    quality = draw.one(adjectives) if draw.chance(0.25) else Adjective("", "", "", "", "")
    combined = [f"adjective {quality.english}+{noun.english.split(' ')[-1]}"] if quality.english else []
    combined += [f"compound {noun.parts}"] if noun.parts else []
    gender = 3 if plural else noun.gender
    head_english = noun.english_plural if plural else noun.english
    count = ("", "")
    if determiner in ("a", "every") and plural:
        count = number(2 + int(draw.chance(0.5)) + int(draw.chance(0.5)))
        determiner = "the" if determiner == "every" else ""
    elif determiner == "name":
        determiner = f"{draw.one(NAMES)}'s"
    german = []
    for case in CASES:
        article, ending = _article(determiner, case, gender)
        adjective = _declined(quality.german, ending) if quality.english else ""
        german.append(_words(article, count[1], adjective, noun.form(case, plural)))
    described = _words(count[0], quality.english, head_english)
    shown = {"a": "an" if described[0] in "aeio" else "a", "this": "these" if plural else "this"}.get(
        determiner, determiner
    )
    english = _words(shown, described)
    return Phrase(english, english, tuple(german), 3, plural, noun.gender, False, tuple(combined))


def _article(determiner: str, case: int, gender: int) -> tuple[str, str]:
    """The German determiner and the ending of an adjective after it."""
    if determiner == "the":
        return THE[case][gender], WEAK[case][gender]
    if determiner in ("this", "every"):
        return ("dies" if determiner == "this" else "jed") + DER[case][gender], WEAK[case][gender]
    if determiner in EIN_WORDS:
        return EIN_WORDS[determiner] + EIN[case][gender], MIXED[case][gender]
    return determiner.replace("'", ""), STRONG[case][gender]


def _pick(draw: Draw, kinds: str) -> Noun:
    kind = draw.one(kinds)
    compounds = _COMPOUND_BY_KIND[kind]
    return draw.one(compounds) if compounds and draw.chance(0.05 if kind == "P" else 0.3) else draw.one(_BY_KIND[kind])


def _name(draw: Draw) -> Phrase:
    name = draw.one(NAMES)
    return Phrase(name, name, (name, name, name, name + "s"))


def subject(draw: Draw) -> Phrase:
    """A subject: a pronoun, a name or a phrase for a person."""
    if draw.chance(0.35):
        spoken = draw.one(SPEAKERS)
        return Phrase(spoken.english, spoken.english_object, spoken.german, spoken.person, spoken.plural, 0, True)
    if draw.chance(0.25):
        return _name(draw)
    return noun_phrase(draw, _pick(draw, "P"), (*_DETERMINERS, "name"))


def thing(draw: Draw, kinds: str, sure: bool) -> Phrase:
    """An object: a phrase for one of ``kinds``, sometimes a pronoun, a name or with a genitive."""
    if "P" in kinds and draw.chance(0.3):
        return draw.one(SPEAKERS[2:4] + SPEAKERS[5:]) if draw.chance(0.6) else _name(draw)
    noun = _pick(draw, kinds)
    if draw.chance(0.06):
        head = noun_phrase(draw, noun, ("the",), 0.2)
        owner = noun_phrase(draw, draw.one(_BY_KIND["P"]), ("the", "the", "my", "this"), 0.2)
        english = f"{head.english} of {owner.english}"
        german = tuple(f"{form} {owner.german[GEN]}" for form in head.german)
        return Phrase(english, english, german, 3, head.plural, noun.gender, False, head.combined + owner.combined)
    return noun_phrase(draw, noun, (*(_SURE if sure else (*_DETERMINERS, "no")), "name"))


def _place(draw: Draw, direction: bool = False) -> tuple[str, str, tuple[str, ...]]:
    english, german, noun = draw.one([p for p in PLACE_NOUNS if p[0] == "in"] if direction else PLACE_NOUNS)
    phrase = noun_phrase(draw, noun, _SURE, 0.1)
    where = "into" if direction else english
    return f"{where} {phrase.english}", contracted(german, phrase.german[ACC if direction else DAT]), phrase.combined


def _objects(draw: Draw, verb: Verb, sure: bool) -> tuple[str, list[str], str, tuple[str, ...]]:
    """English objects, German objects in order, a pronoun that precedes them, combinations."""
    if verb.takes == "none":
        return "", [], "", ()
    if verb.takes == "to":
        english, german, combined = _place(draw, direction=True)
        return english, [german], "", combined
    if verb.takes == "two":
        person = thing(draw, "P", True)
        given = noun_phrase(draw, _pick(draw, verb.kinds), _SURE if sure else _DETERMINERS)
        first, rest = (person.german[DAT], []) if person.pronoun else ("", [person.german[DAT]])
        english = f"{person.english_object} {given.english}"
        return english, [*rest, given.german[ACC]], first, person.combined + given.combined
    if verb.takes in ("acc", "dat"):
        taken = thing(draw, verb.kinds, sure)
        german = taken.german[ACC if verb.takes == "acc" else DAT]
        return taken.english_object, [] if taken.pronoun else [german], german if taken.pronoun else "", taken.combined
    with_, mit, case = verb.takes.split("_")
    taken = thing(draw, verb.kinds, sure)
    german = contracted(mit, taken.german[ACC if case == "acc" else DAT])
    return f"{with_} {taken.english_object}", [german], "", taken.combined


def clause(draw: Draw, who: Phrase, verb: Verb, timed: float = 0.3, tail: bool = True, deny: float = 0.15) -> Clause:
    """A clause of ``who`` and ``verb``: a tense or modal, maybe "not", objects, maybe a place and a time."""
    tense = draw.one(("present", "present", "present", "past", "past", "future", "modal"))
    base, third, past = verb.english
    negated = tail and draw.chance(deny) and tense != "modal"
    objects, german, first, combined = _objects(draw, verb, negated) if tail else ("", [], "", ())
    if first and base.endswith((" up", " along")):  # picks him up, not: picks up him
        base, particle = base.split(" ")
        third = third.split(" ")[0]
        past = past.split(" ")[0]
        objects = f"{objects} {particle}"
    middle = list(german)
    often = ("", "")
    if tense == "present" and tail and not negated and draw.chance(0.15):
        often = draw.one(OFTEN)
    if tail and not negated and verb.takes != "to" and draw.chance(0.15):
        place, ort, more = _place(draw)
        objects = _words(objects, place)
        combined = combined + more
        middle.insert(0, ort)
    elif negated:
        at_end = verb.takes in ("acc", "dat", "two", "none")
        middle.insert(len(middle) if at_end else 0, "nicht")
    agrees = who.agrees
    does = "does" if who.third else "do"
    ask = does
    bare = base
    closing = verb.infinitive
    if tense == "present":
        present = verb.present[agrees]
        finite = present
        closing = verb.prefix
        joined = verb.prefix + present
        english = f"{does} not {base}" if negated else _words(often[0], third if who.third else base)
    elif tense == "past":
        ask = "did"
        finite = verb.perfect[agrees]
        closing = verb.participle
        english = f"did not {base}" if negated else past
        joined = f"{closing} {finite}"
    elif tense == "future":
        ask = "will"
        finite = WERDEN[agrees]
        english = f"will not {base}" if negated else f"will {base}"
        joined = f"{closing} {finite}"
    else:
        (plain, threes), forms = draw.one(MODALS)
        modal = threes if who.third else plain
        finite = forms[agrees]
        ask, bare = (does, f"{plain} {base}") if plain == "want to" else (modal, base)
        english = f"{modal} {base}"
        joined = f"{closing} {finite}"
    time = ("", "")
    if tail and not often[0] and draw.chance(timed):
        time = draw.one(TIMES["present" if tense == "modal" else tense])
    if often[0]:
        middle.insert(0, often[1])
        bare = f"{often[0]} {bare}"
    ask = "" if negated else ask
    english = _words(english, objects)
    bare = _words(bare, objects)
    combined = who.combined + combined
    return Clause(who, english, ask, bare, time, finite, tuple(middle), first, closing, joined, combined)


def _plain(c: Clause) -> tuple[str, str]:
    """English and German main clause, subject first."""
    german = _words(c.subject.german[NOM], c.finite, c.first, c.time[1], *c.middle, c.closing)
    return _words(c.subject.english, c.english, c.time[0]), german


def _inverted(c: Clause) -> str:
    """German with the verb before the subject, as after a fronted phrase."""
    return _words(c.finite, c.subject.german[NOM], c.first, c.time[1], *c.middle, c.closing)


def _final(c: Clause) -> str:
    """German with the verb last, without the subject."""
    return _words(c.first, c.time[1], *c.middle, c.joined)


def statement(draw: Draw) -> Pair:
    """The man will buy a book tomorrow. / Tomorrow the man will buy a book."""
    c = clause(draw, subject(draw), draw.one(ACTIONS))
    if c.time[0] and draw.chance(0.5):
        bare = replace(c, time=("", ""))
        return _sentence(f"{c.time[0]} {_plain(bare)[0]}", f"{c.time[1]} {_inverted(bare)}", c.combined)
    return _sentence(*_plain(c), c.combined)


def question(draw: Draw) -> Pair:
    """Does the man buy a book? / Why does the man buy a book?"""
    c = clause(draw, subject(draw), draw.one(ACTIONS), timed=0.2)
    if not c.ask:
        return _sentence(*_plain(c), c.combined)
    wh, w = draw.one((("why", "warum"), ("when", "wann"))) if draw.chance(0.3) and not c.time[0] else ("", "")
    english = _words(wh, c.ask, c.subject.english, c.bare, c.time[0])
    return _sentence(english, _words(w, _inverted(c)), c.combined, "?")


def joint(draw: Draw) -> Pair:
    """The man sleeps because he works. / If the man sleeps, the woman works. / The man sleeps and the woman works."""
    main = clause(draw, subject(draw), draw.one(ACTIONS), timed=0.1)
    other = clause(draw, subject(draw), draw.one(ACTIONS), timed=0.1, deny=0.0)
    both = main.combined + other.combined
    left, links = _plain(main)
    right, rechts = _plain(other)
    if draw.chance(0.3):
        english, german = draw.one(((" and", " und"), (", but", ", aber")))
        return _sentence(f"{left}{english} {right}", f"{links}{german} {rechts}", both)
    english, german = draw.one(JOINTS)
    final = f"{german} {other.subject.german[NOM]} {_final(other)}"
    if draw.chance(0.4):
        return _sentence(f"{english} {right}, {left}", f"{final}, {_inverted(main)}", both)
    return _sentence(f"{left} {english} {right}", f"{links}, {final}", both)


def saying(draw: Draw) -> Pair:
    """The woman knows that the man buys a book."""
    outer = clause(draw, subject(draw), draw.one(SAYINGS), tail=False)
    inner = clause(draw, subject(draw), draw.one(ACTIONS), timed=0.2)
    left, links = _plain(outer)
    right, _ = _plain(inner)
    german = f"{links}, dass {inner.subject.german[NOM]} {_final(inner)}"
    return _sentence(f"{left} that {right}", german, outer.combined + inner.combined)


def relative(draw: Draw) -> Pair:
    """We see the man who buys a book."""
    verb = draw.one([v for v in ACTIONS if v.takes == "acc" and "P" in v.kinds])
    person = noun_phrase(draw, draw.one(_BY_KIND["P"]), _SURE)
    who = subject(draw)
    outer = clause(draw, who, verb, tail=False)
    relator = Phrase("who", "who", (THE[NOM][3 if person.plural else person.gender],) * 4, 3, person.plural)
    inner = clause(draw, relator, draw.one(ACTIONS), timed=0.1)
    english = f"{who.english} {outer.english} {person.english} {_plain(inner)[0]}"
    main = _words(who.german[NOM], outer.finite, person.german[ACC], outer.closing)
    german = f"{main}, {relator.german[NOM]} {_final(inner)}"
    return _sentence(english, german, who.combined + person.combined + inner.combined)


def being(draw: Draw) -> Pair:
    """The red coat is new. / The dog was bigger than the cat."""
    kind = draw.one("PPATFCVO")
    who = noun_phrase(draw, _pick(draw, kind), (*_DETERMINERS, "name"))
    if kind == "P" and draw.chance(0.5):
        who = subject(draw)
    past = draw.chance(0.3)
    first = who.person == 1 and not who.plural
    english = ("was" if first or who.third else "were") if past else "am" if first else "is" if who.third else "are"
    german = (WAR if past else SEIN)[who.agrees]
    quality = draw.one(_ADJECTIVES[kind])
    if quality.english_more and draw.chance(0.4):
        other = noun_phrase(draw, _pick(draw, kind), _SURE)
        source = f"{who.english} {english} {quality.english_more} than {other.english}"
        target = f"{who.german[NOM]} {german} {quality.german_more} als {other.german[NOM]}"
        return _sentence(source, target, who.combined + other.combined)
    very, sehr = draw.one((("very", "sehr"), ("not", "nicht"), ("", "")))
    source = _words(who.english, english, very, quality.english)
    return _sentence(source, _words(who.german[NOM], german, sehr, quality.german), who.combined)


def counted(draw: Draw) -> Pair:
    """Anna is thirty-four years old. / The coat costs twenty-one euros."""
    n = 2 + int(draw.one(range(98)))
    english, german = number(n)
    combined = (f"number {n}",)
    if draw.chance(0.5):
        who = subject(draw)
        to_be = "am" if who.english == "I" else "is" if who.third else "are"
        source = f"{who.english} {to_be} {english} years old"
        return _sentence(source, f"{who.german[NOM]} {SEIN[who.agrees]} {german} Jahre alt", combined + who.combined)
    goods = noun_phrase(draw, _pick(draw, "TFCEV"), _SURE)
    source = f"{goods.english} {'costs' if goods.third else 'cost'} {english} euros"
    target = f"{goods.german[NOM]} {'kostet' if goods.third else 'kosten'} {german} Euro"
    return _sentence(source, target, combined + goods.combined)


_KINDS = (*(statement,) * 12, *(question,) * 2, joint, saying, relative, *(being,) * 2, counted)


def pair(draw: Draw) -> Pair:
    """One sentence and its translation."""
    return draw.one(_KINDS)(draw)


def combinations() -> dict[str, list[str]]:
    """All combinations that can be held out, by kind: adjective and noun, compound, two-digit number."""
    simple = {noun.english: noun.kind for noun in SIMPLE} | {noun.english: "L" for _, _, noun in PLACE_NOUNS}
    return {
        "adjective": [f"adjective {a.english}+{n}" for n, kind in simple.items() for a in _ADJECTIVES[kind]],
        "compound": [f"compound {noun.parts}" for noun in COMPOUNDS],
        "number": [f"number {n}" for n in range(21, 100) if n % 10],
    }
