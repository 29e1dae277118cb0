"""The words of the embedded English-German corpus, with their forms; ``tasks.demo.grammar`` makes sentences of them.

Nouns with gender, genitive and plural; verbs with present, participle, auxiliary, separable prefix and objects;
adjectives with comparatives; numbers in words; tables of endings.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeVar

Item = TypeVar("Item")

NOM, ACC, DAT, GEN = range(4)

# English singular and plural, German noun, gender (* : weak noun), genitive, plural, kind.
# Kinds: P person, A animal, T thing to hold, F furniture, C clothes, O opens and closes, E food, V vehicle.
NOUNS = """
man men Mann m Mannes Männer P|woman women Frau f Frau Frauen P|child children Kind n Kindes Kinder P
boy boys Junge m* Jungen Jungen P|girl girls Mädchen n Mädchens Mädchen P|teacher teachers Lehrer m Lehrers Lehrer P
doctor doctors Arzt m Arztes Ärzte P|sister sisters Schwester f Schwester Schwestern P
brother brothers Bruder m Bruders Brüder P|dog dogs Hund m Hundes Hunde A|cat cats Katze f Katze Katzen A
horse horses Pferd n Pferdes Pferde A|bird birds Vogel m Vogels Vögel A|book books Buch n Buches Bücher T
picture pictures Bild n Bildes Bilder T|key keys Schlüssel m Schlüssels Schlüssel T|bag bags Tasche f Tasche Taschen T
table tables Tisch m Tisches Tische F|chair chairs Stuhl m Stuhls Stühle F|door doors Tür f Tür Türen O
window windows Fenster n Fensters Fenster O|coat coats Mantel m Mantels Mäntel C|shirt shirts Hemd n Hemdes Hemden C
shoe shoes Schuh m Schuhs Schuhe C|apple apples Apfel m Apfels Äpfel E|egg eggs Ei n Eies Eier E
car cars Auto n Autos Autos V|bus buses Bus m Busses Busse V|train trains Zug m Zuges Züge V
"""

# English preposition, German preposition, then as above.
PLACES = """
in in garden gardens Garten m Gartens Gärten|in in city cities Stadt f Stadt Städte
in in school schools Schule f Schule Schulen|in in house houses Haus n Hauses Häuser
in in forest forests Wald m Waldes Wälder|in in kitchen kitchens Küche f Küche Küchen
in in village villages Dorf n Dorfes Dörfer|on auf bridge bridges Brücke f Brücke Brücken
at an river rivers Fluss m Flusses Flüsse|at an station stations Bahnhof m Bahnhofs Bahnhöfe
"""

# The first half of a compound: English, German, kinds of the second half.
MODIFIERS = """
kitchen Küchen FTO|school Schul TFCV|garden Garten FTO|winter Winter C|children's Kinder CFTV|wooden Holz FO
"""

# English, comparative, German, comparative, kinds (* : all, and no comparative where it is -).
ADJECTIVES = """
old older alt älter *|big bigger groß größer *|small smaller klein kleiner *|beautiful more_beautiful schön schöner *
new newer neu neuer TFCOV|red - rot - TFCOVE|blue - blau - TFCOV|green - grün - TFCOVE|black - schwarz - TFCOAV
young younger jung jünger PA|friendly friendlier freundlich freundlicher PA|clever cleverer klug klüger PA
clean cleaner sauber sauberer TFCOV
"""

# English base, third person, past; German prefix+infinitive, du, er, participle, auxiliary (h, s); object:
# acc/dat and kinds, prepositions with case and kinds, two (dative person, accusative kinds), none, or to (direction).
VERBS = """
buy buys bought kaufen kaufst kauft gekauft h acc TFCEVOA|see sees saw sehen siehst sieht gesehen h acc PATFCOEV
find finds found finden findest findet gefunden h acc PATFCEV|love loves loved lieben liebst liebt geliebt h acc PAECV
eat eats ate essen isst isst gegessen h acc E|wear wears wore tragen trägst trägt getragen h acc C
paint paints painted malen malst malt gemalt h acc PAFV|open opens opened auf+machen machst macht aufgemacht h acc O
close closes closed zu+machen machst macht zugemacht h acc O|call calls called an+rufen rufst ruft angerufen h acc P
invite invites invited ein+laden lädst lädt eingeladen h acc P
pick_up picks_up picked_up ab+holen holst holt abgeholt h acc PTV
put_on puts_on put_on an+ziehen ziehst zieht angezogen h acc C|help helps helped helfen hilfst hilft geholfen h dat PA
listen_to listens_to listened_to zu+hören hörst hört zugehört h dat P
give gives gave geben gibst gibt gegeben h two TCE|show shows showed zeigen zeigst zeigt gezeigt h two TFCVAO
play plays played spielen spielst spielt gespielt h with_mit_dat PA
wait waits waited warten wartest wartet gewartet h for_auf_acc PV
think thinks thought denken denkst denkt gedacht h of_an_acc PATV
sleep sleeps slept schlafen schläfst schläft geschlafen h none -|sing sings sang singen singst singt gesungen h none -
get_up gets_up got_up auf+stehen stehst steht aufgestanden s none -
arrive arrives arrived an+kommen kommst kommt angekommen s none -|go goes went gehen gehst geht gegangen s to -
"""

SAYING = """
know knows knew wissen weißt weiß gewusst h|say says said sagen sagst sagt gesagt h
hope hopes hoped hoffen hoffst hofft gehofft h|believe believes believed glauben glaubst glaubt geglaubt h
forget forgets forgot vergessen vergisst vergisst vergessen h
"""

# English subject and object form, German by case, person, plural.
PRONOUNS = """
I me ich mich mir 1 s|you you du dich dir 2 s|he him er ihn ihm 3 s|she her sie sie ihr 3 s|we us wir uns uns 1 p
they them sie sie ihnen 3 p
"""
FAMILY = ("Mann", "Frau", "Junge", "Mädchen", "Mutter", "Bruder", "Schwester")
NAMES = ("Anna", "Paul", "Maria", "Peter", "Clara", "Emil", "Lena", "Jakob")

TIMES = {
    "present": (("today", "heute"), ("now", "jetzt"), ("every day", "jeden Tag")),
    "past": (
        ("yesterday", "gestern"),
        ("last week", "letzte Woche"),
        ("in the morning", "am Morgen"),
        ("on Sunday", "am Sonntag"),
    ),
    "future": (
        ("tomorrow", "morgen"),
        ("soon", "bald"),
        ("next week", "nächste Woche"),
        ("in the evening", "am Abend"),
    ),
}
OFTEN = (("often", "oft"), ("always", "immer"), ("never", "nie"), ("sometimes", "manchmal"))
# English, German ich, du, er, plural.
MODALS = (
    (("can", "can"), ("kann", "kannst", "kann", "können")),
    (("must", "must"), ("muss", "musst", "muss", "müssen")),
    (("should", "should"), ("soll", "sollst", "soll", "sollen")),
    (("want to", "wants to"), ("will", "willst", "will", "wollen")),
)
HABEN = ("habe", "hast", "hat", "haben")
SEIN = ("bin", "bist", "ist", "sind")
WERDEN = ("werde", "wirst", "wird", "werden")
WAR = ("war", "warst", "war", "waren")
JOINTS = (("because", "weil"), ("although", "obwohl"), ("if", "wenn"), ("while", "während"))

# By case; columns m, f, n, plural. The endings of dieser, of ein, and of adjectives after each and after nothing.
DER = (("er", "e", "es", "e"), ("en", "e", "es", "e"), ("em", "er", "em", "en"), ("es", "er", "es", "er"))
EIN = (("", "e", "", "e"), ("en", "e", "", "e"), ("em", "er", "em", "en"), ("es", "er", "es", "er"))
WEAK = (("e", "e", "e", "en"), ("en", "e", "e", "en"), ("en",) * 4, ("en",) * 4)
MIXED = (("er", "e", "es", "en"), ("en", "e", "es", "en"), ("en",) * 4, ("en",) * 4)
STRONG = (*DER[:3], ("en", "er", "en", "er"))
THE = (
    ("der", "die", "das", "die"),
    ("den", "die", "das", "die"),
    ("dem", "der", "dem", "den"),
    ("des", "der", "des", "der"),
)
EIN_WORDS = {"my": "mein", "your": "dein", "his": "sein", "her": "ihr", "our": "unser", "their": "ihr"}
EIN_WORDS |= {"no": "kein", "a": "ein"}
CONTRACTED = {"in dem": "im", "an dem": "am", "von dem": "vom", "in das": "ins", "zu dem": "zum", "zu der": "zur"}


# English and German, from 0 and from 20.
NUMBERS = """
zero null|one ein|two zwei|three drei|four vier|five fünf|six sechs|seven sieben|eight acht|nine neun|ten zehn
eleven elf|twelve zwölf|thirteen dreizehn|fourteen vierzehn|fifteen fünfzehn|sixteen sechzehn|seventeen siebzehn
eighteen achtzehn|nineteen neunzehn
"""
TENS = """
twenty zwanzig|thirty dreißig|forty vierzig|fifty fünfzig|sixty sechzig|seventy siebzig|eighty achtzig|ninety neunzig
"""


class Draw:
    """Random choices from a seed. Uses only ``Random.random``, whose sequence Python guarantees across versions."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed).random

    def one(self, items: Sequence[Item]) -> Item:
        """One of ``items``, uniformly."""
        return items[int(self._random() * len(items))]

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self._random() < probability


@dataclass(frozen=True)
class Noun:
    """A noun with its forms; ``parts`` names the two halves of a compound, or is empty."""

    english: str
    english_plural: str
    german: str
    gender: int
    weak: bool
    genitive: str
    plural: str
    kind: str
    parts: str = ""

    def form(self, case: int, plural: bool) -> str:
        """The German form in this case."""
        if plural:
            return self.plural + "n" if case == DAT and self.plural[-1] not in "ns" else self.plural
        if case == GEN or (self.weak and case != NOM):
            return self.genitive
        return self.german


@dataclass(frozen=True)
class Adjective:
    """English and German positive and comparative; an empty comparative does not exist."""

    english: str
    english_more: str
    german: str
    german_more: str
    kinds: str


@dataclass(frozen=True)
class Verb:
    """A verb; ``present`` holds the German forms of ich, du, er and plural without ``prefix``."""

    english: tuple[str, str, str]
    prefix: str
    infinitive: str
    present: tuple[str, str, str, str]
    participle: str
    perfect: tuple[str, str, str, str]
    takes: str
    kinds: str


@dataclass(frozen=True)
class Phrase:
    """A noun phrase: English as subject and object, German by case, agreement, and the combinations that it holds."""

    english: str
    english_object: str
    german: tuple[str, ...]
    person: int = 3
    plural: bool = False
    gender: int = 0
    pronoun: bool = False
    combined: tuple[str, ...] = ()

    @property
    def agrees(self) -> int:
        """Index of the German verb form: ich, du, er or plural."""
        return 3 if self.plural else self.person - 1

    @property
    def third(self) -> bool:
        """Whether the English verb takes -s."""
        return self.person == 3 and not self.plural


def _rows(table: str) -> list[list[str]]:
    return [row.split(" ") for line in table.strip().split("\n") for row in line.split("|")]


def _noun(row: list[str], kind: str) -> Noun:
    english, english_plural, german, gender, genitive, plural = row
    return Noun(english, english_plural, german, "mfn".index(gender[0]), gender.endswith("*"), genitive, plural, kind)


def _verb(row: list[str]) -> Verb:
    base, third, past, infinitive, du, er, participle, auxiliary, *takes = row
    prefix, _, stem = infinitive.rpartition("+")
    ich = er if er == "weiß" else stem[:-1] if stem.endswith("en") else stem
    english = (base.replace("_", " "), third.replace("_", " "), past.replace("_", " "))
    perfect = HABEN if auxiliary == "h" else SEIN
    frame, kinds = takes or ["none", "-"]
    return Verb(english, prefix, prefix + stem, (ich, du, er, stem), participle, perfect, frame, kinds)


def _compounds(nouns: Sequence[Noun]) -> list[Noun]:
    made = []
    for english, german, kinds in _rows(MODIFIERS):
        for head in nouns:
            if head.kind in kinds and head.german not in FAMILY:
                singular = f"{english} {head.english}"
                plural = f"{english} {head.english_plural}"
                nominative, genitive, many = (german + f.lower() for f in (head.german, head.genitive, head.plural))
                forms = nominative, head.gender, head.weak, genitive, many
                made.append(Noun(singular, plural, *forms, head.kind, f"{english}+{head.english}"))
    return made


SIMPLE = [_noun(row[:6], row[6]) for row in _rows(NOUNS)]
COMPOUNDS = _compounds(SIMPLE)
PLACE_NOUNS = [(row[0], row[1], _noun(row[2:], "L")) for row in _rows(PLACES)]
QUALITIES = [
    Adjective(en, more.replace("_", " ").strip("-"), de, mehr.strip("-"), kinds)
    for en, more, de, mehr, kinds in _rows(ADJECTIVES)
]
ACTIONS = [_verb(row) for row in _rows(VERBS)]
SAYINGS = [_verb(row) for row in _rows(SAYING)]
SPEAKERS = [
    Phrase(i, me, (ich, mich, mir), int(person), number == "p", 1 if i == "she" else 0, True)
    for i, me, ich, mich, mir, person, number in _rows(PRONOUNS)
]


def number(n: int) -> tuple[str, str]:
    """A number from 2 to 99 in words: ``("twenty-one", "einundzwanzig")``."""
    small = _rows(NUMBERS)
    tens = _rows(TENS)
    english, german = small[n] if n < 20 else tens[n // 10 - 2]
    if n < 20 or n % 10 == 0:
        return english, german
    one, ein = small[n % 10]
    return f"{english}-{one}", f"{ein}und{german}"


def contracted(preposition: str, phrase: str) -> str:
    """Preposition and phrase, contracted to im, am, vom, ins, zum or zur where German does."""
    article, _, rest = phrase.partition(" ")
    short = CONTRACTED.get(f"{preposition} {article}")
    return f"{short} {rest}" if short else f"{preposition} {phrase}"
