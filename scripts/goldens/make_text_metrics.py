"""Writes tests/goldens/metrics/: stems and text metrics as their published implementations give them.

Usage: make_text_metrics.py stems
"""

import random
import sys

from nltk.stem.porter import PorterStemmer
from provenance import ROOT, versions, write_json

FOLDER = ROOT / "metrics"

ROOTS = """
abil agree analog archae bl cann car communi conform connect controll d decis di digit do eat electr enjo f fall feud fil fizz fl formal geo
happ hiss hop hopp howe inn l lo lov meet motor n new oper out plast pon predic proc radic rat re relat revol roll s sens sing siz sk snow spy
succe t tann theo tr troubl us v val vietnam y yy
""".split()
SUFFIXES = """
a able al alism aliti alize alli ance anci ant ate ated ates ational ative ator bli bliti biliti e ed eed eli ement enci ence ent entli er es ful
fulli fulness ial ible ic ical icate iciti ied ier ies iing ing ings ion ise ism iti iveness ive iviti ization ize ized izer izing ll lli logi
ly lly ment ness ning oo ou ousli ousness ous s sed ses ss sses ted tional tted x y yed ying yy zed zzed
""".split()
WORDS = """
A I is as Is the THE being cats Caresses ponies ties caress feed agreed plastered bled motoring sing conflated troubled sized hopping tanned falling
hissing fizzed failing filing happy sky skies dying lying tying news innings outings cannings howe proceed exceed succeed dies died lies spied flies
generalizations oscillators relational conditional rational valenci hesitanci digitizer conformabli radicalli differentli vileli analogousli
vietnamization predication operator feudalism decisiveness hopefulness callousness formaliti sensitiviti sensibiliti triplicate formative formalize
electriciti electrical hopeful goodness revival allowance inference airliner gyroscopic adjustable defensible irritant replacement adjustment
dependent adoption homologou communism activate angulariti homologous effective bowdlerize probate rate cease controll roll yyyy yyyed yying syzygy
toy by a*ded x*ding 2016 3d 1990s u.s. don't 's n't e-mails re-reading naïve café cafés résumés éés ééed ñandúes über ÜBUNGEN Σίσυφος ΟΔΥΣΣΕΥΣ
İstanbul straße 東京 東京ing हिन्दी 😀s ied eed ed ing ion sion y s ss ee aed oing ooing iing eying
""".split()


def stems():
    rng = random.Random(11)
    made = sorted({root + suffix for root in ROOTS for suffix in SUFFIXES})
    words = WORDS + rng.sample(made, 2000)
    stemmer = PorterStemmer()
    value = {"made_with": versions("nltk"), "stems": [[word, stemmer.stem(word)] for word in words]}
    write_json(FOLDER / "stems.json", value)


if __name__ == "__main__":
    {"stems": stems}[sys.argv[1]](*sys.argv[2:])
