"""Sixteen sentences under the paper's protocol, tokenised by hand as Moses' ``tokenizer.perl`` does German.

The rules they cover: every character that is neither letter, digit, blank, period, apostrophe, comma nor hyphen is a
token; so is a comma, unless digits surround it; a word's last period is split off, except after the numbers 1 to 99,
which are ordinals in German; an apostrophe is a token; runs of periods stay together. Then a hyphen between two
characters that are not blanks becomes " ##AT##-##AT## ".
"""

SENTENCES = """
Die Rad-Rennfahrer sind müde.
Die Radrennfahrer sind sehr müde.
Die Rad ##AT##-##AT## Rennfahrer sind müde .
Die Radrennfahrer sind sehr müde .

Er sagte: "Das ist gut."
Er sagte: "Das ist sehr gut."
Er sagte : " Das ist gut . "
Er sagte : " Das ist sehr gut . "

Das 30-jährige Haus kostet 1,5 Millionen Euro.
Das 30-jährige Haus kostet 1,5 Millionen.
Das 30 ##AT##-##AT## jährige Haus kostet 1,5 Millionen Euro .
Das 30 ##AT##-##AT## jährige Haus kostet 1,5 Millionen .

Gestern (am Sonntag) regnete es stark.
Gestern (Sonntag) hat es stark geregnet.
Gestern ( am Sonntag ) regnete es stark .
Gestern ( Sonntag ) hat es stark geregnet .

Warum so spät? Weil der Zug nicht kam!
Warum so spät? Weil kein Zug kam!
Warum so spät ? Weil der Zug nicht kam !
Warum so spät ? Weil kein Zug kam !

Die Süd-, Ost- und Westküste sind gesperrt.
Die Süd-, Ost- und Westküste bleiben gesperrt.
Die Süd- , Ost- und Westküste sind gesperrt .
Die Süd- , Ost- und Westküste bleiben gesperrt .

Der Anteil stieg auf 12,7 %.
Der Anteil stieg auf 12,7%.
Der Anteil stieg auf 12,7 % .
Der Anteil stieg auf 12,7 % .

Das ist Peter's Café.
Das ist Peters Café.
Das ist Peter ' s Café .
Das ist Peters Café .

Ein "Nein-Danke"-Aufkleber klebt am Auto.
Am Auto klebt ein "Nein-danke"-Aufkleber.
Ein " Nein ##AT##-##AT## Danke " -Aufkleber klebt am Auto .
Am Auto klebt ein " Nein ##AT##-##AT## danke " -Aufkleber .

Die U-Bahn fährt alle fünf Minuten; der Bus nicht.
Die U-Bahn fährt alle fünf Minuten, der Bus nicht.
Die U ##AT##-##AT## Bahn fährt alle fünf Minuten ; der Bus nicht .
Die U ##AT##-##AT## Bahn fährt alle fünf Minuten , der Bus nicht .

Berlin/München - Die Züge fahren wieder.
Berlin/München - Züge fahren wieder.
Berlin / München - Die Züge fahren wieder .
Berlin / München - Züge fahren wieder .

Und dann ... war alles still.
Und dann ... wurde alles still.
Und dann ... war alles still .
Und dann ... wurde alles still .

"Ja", antwortete er, "morgen".
"Ja", sagte er, "morgen."
" Ja " , antwortete er , " morgen " .
" Ja " , sagte er , " morgen . "

Die Start-up-Szene in Köln wächst & gedeiht.
In Köln wächst die Start-up-Szene.
Die Start ##AT##-##AT## up ##AT##-##AT## Szene in Köln wächst & gedeiht .
In Köln wächst die Start ##AT##-##AT## up ##AT##-##AT## Szene .

Er wohnt in der Karl-Marx-Allee 7.
Er wohnt in der Karl-Marx-Allee 7.
Er wohnt in der Karl ##AT##-##AT## Marx ##AT##-##AT## Allee 7.
Er wohnt in der Karl ##AT##-##AT## Marx ##AT##-##AT## Allee 7.

Das Spiel endete 2:1.
Das Spiel ging 2:1 aus.
Das Spiel endete 2 : 1.
Das Spiel ging 2 : 1 aus .
"""
ROWS = [tuple(row.split("\n")) for row in SENTENCES.strip("\n").split("\n\n")]
"""Each row: hypothesis, reference, and the tokens of both."""
