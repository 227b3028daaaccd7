"""Which words are put into the sentences? Lists written for this package, of common words, so that vocabularies have
most of them as single tokens."""


def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    """'hot/cold wet/dry' as pairs."""
    pairs = [entry.split("/") for entry in text.split()]
    return tuple((first, second) for first, second in pairs)


SINGULAR = tuple(
    """
    key box lamp table chair boat church school farm village coat hat chain clock cup bottle basket bag bell candle
    carriage machine pen coin stick rope pot plate dress shirt lake cart roof mill castle palace cottage tent cave sword
    """.split()
)
PLURAL = tuple(
    """
    doors windows houses books letters ships horses dogs birds trees flowers stones walls fields rivers hills mountains
    towns streets rooms fires guns shoes pictures wheels papers cards boots islands clouds stars leaves branches roots
    bears gates stairs temples cities tables
    """.split()
)
PERSONS = tuple(
    """
    doctor teacher farmer soldier lady king queen prince captain nurse lawyer priest merchant painter writer servant
    judge guard child mother father daughter sister brother uncle cousin friend stranger guest poet artist student clerk
    officer thief prisoner minister governor visitor owner
    """.split()
)
PLACES = tuple("behind near beside before against with".split())
VERBS = tuple(
    """
    smiled laughed sang slept spoke waited died fell walked turned ran rose stopped cried worked sat stood listened
    looked answered
    """.split()
)
CHOOSING = tuple("chose wanted took liked bought found".split())
SYNONYMS = _pairs(
    """
    big/large quick/rapid begin/start sick/ill happy/glad angry/furious hard/difficult road/street stone/rock
    gift/present sea/ocean forest/wood picture/image story/tale job/task area/region trouble/problem answer/reply
    error/mistake noise/sound joy/delight grief/sorrow power/strength law/rule house/home strange/odd huge/vast
    speak/talk help/aid try/attempt choose/select gather/collect hide/conceal allow/permit kill/murder
    destroy/ruin remain/stay enemy/foe doctor/physician danger/peril
    """
)
ANTONYMS = _pairs(
    """
    hot/cold big/small good/bad high/low long/short young/old rich/poor strong/weak light/dark early/late
    fast/slow hard/soft wet/dry full/empty true/false right/wrong happy/sad thick/thin near/far first/last
    black/white sweet/bitter public/private dead/alive safe/dangerous day/night war/peace love/hate friend/enemy
    north/south summer/winter morning/evening success/failure question/answer always/never above/below
    inside/outside buy/sell win/lose laugh/weep
    """
)
ANTECEDENTS: tuple[tuple[str, str, str, str], ...] = tuple(
    (first, pronoun, second, other)
    for (first, pronoun), (second, other) in (
        tuple(tuple(word.split(":")) for word in entry.split("/"))
        for entry in """
        man:he/woman:she king:he/queen:she boy:he/girl:she father:he/mother:she brother:he/sister:she uncle:he/aunt:she
        husband:he/wife:she prince:he/princess:she son:he/daughter:she lord:he/lady:she lamp:it/books:they
        boat:it/trees:they chair:it/windows:they box:it/stones:they clock:it/pictures:they soldier:he/gun:it
        priest:he/church:it farmer:he/cart:it maid:she/cup:it bride:she/ring:it
        """.split()
    )
)
"""A noun and the pronoun that can only mean it, and another noun with its own pronoun."""
MEETING = ("stood near", "stayed with", "lay by")
