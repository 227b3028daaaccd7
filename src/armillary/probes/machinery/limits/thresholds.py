"""Which numbers decide a verdict? All of them, in one place, each with its reason.

Rules that were changed after results had been seen say so (`Claim.changes`). `RULES_VERSION` changes with every rule or
threshold, not with other words for the same rule (`Claim.rewordings`); a survey records it.
"""

from dataclasses import asdict, dataclass

RULES_VERSION = "6"


@dataclass(frozen=True)
class Thresholds:
    """The decision rules' numbers; every survey stores and prints those it was decided with."""

    # sphere.radius: 'length √d' means within 1 % of √d, for 99 of 100 tokens.
    radius_within: float = 0.01
    radius_share: float = 0.99
    # How many rounding errors of the dtype a radius, a mean or a module's output may differ from theory by. A sum of d
    # terms in blocks loses a few; a thousand would be another computation.
    roundings: float = 64.0
    # sphere.plane: 'in the plane' means that the squared component along 1 is a hundredth of a random direction's 1/d.
    plane_ratio: float = 0.01
    # sphere.ellipsoid: 'warped' means that long semi-axes (95th percentile) are half as long again as short ones (5th).
    # Random gains whose extremes differ by a factor of two at d = 256 have that ratio. Below a tenth one sees a sphere.
    # 'Flat' means below 1 % of the median semi-axis; 'displaced', that the centre has moved by 5 % of the typical one.
    warp_ratio: float = 1.5
    warp_none: float = 1.1
    flat_axis: float = 0.01
    displacement: float = 0.05
    # sphere.concentration: 'follows the Gaussian law' means within a factor of two. A shell is thin below 10 % spread;
    # S2 calls 4.5 % (or 2.2 %) thin.
    shell_law_factor: float = 2.0
    shell_thin: float = 0.10
    # sphere.direction: two AUCs differ from 0.1 on (one pair in ten is ordered otherwise), whichever is larger, and the
    # cosine must reach 0.6 itself. Length carries nothing if scaling the stream costs at most a tenth of turning it as
    # far, and as much as direction does if it costs as much. The share is undefined where turning costs less than 0.05
    # nats per token: half of the gain of a good fine-tune.
    direction_margin: float = 0.10
    direction_auc: float = 0.60
    length_share: float = 0.10
    length_equal: float = 1.0
    turning_cost: float = 0.05
    # spectrum.two-zeros: 'orders of magnitude below the rest' means 1e-6 of the median eigenvalue. The covariance needs
    # three times as many tokens as axes; fewer tokens make zeros of their own.
    zero_eigenvalue: float = 1e-6
    tokens_per_axis: float = 3.0
    # spectrum.local: 'falls like α²' means a log–log slope of 2 ± ½; a slope below ½ is no fall.
    local_slope: float = 2.0
    local_slope_within: float = 0.5
    local_slope_none: float = 0.5
    # spectrum.dimension: 'two dimensions fewer' means two and not one or three: within half a dimension. A rank needs a
    # fifth more tokens than axes; then the smallest eigenvalue of a random sample is still a hundredth of the mean.
    dimension_removed: float = 2.0
    dimension_within: float = 0.5
    rank_tokens: float = 1.2
    # cycle.isotropy: a map does not treat all directions alike if rotating its input changes its output, rotated back,
    # by half of what an unrelated result would (√2).
    rotation_unlike: float = 0.70
    # sphere.contrast: distances stay informative if the nearest token stands out twice as much as among random
    # directions, a factor as for the shell; angles are better than distances from a tenth on.
    contrast_ratio: float = 2.0
    contrast_more: float = 1.1
    # sphere.shared: two layers share a space if exchanging their gains costs less than 0.05 nats per token, as for
    # turning. Gains and axes are alike if their correlation or overlap is half of what one layer has with itself.
    shared_cost: float = 0.05
    shared_half: float = 0.50
    # attention.cosine: 'mostly' means more than half of the variance of a query's scores. Lengths matter little if
    # making them equal moves at most a tenth of the attention.
    cosine_share: float = 0.50
    cosine_variation: float = 0.10
    # attention.scale: the exponent of Var(q·k) in the number of axes is 1 within a tenth (at k = 64 a variance within a
    # factor of 1.5 of independent axes'). 'Unit variance' means within a tenth. The norm is needed where without it the
    # variance would be off by a factor of two. Scores near 1: within a factor of ten (at 0.01 softmax is uniform, at
    # 100 it selects one key).
    scale_exponent_within: float = 0.10
    scale_unit: float = 1.10
    scale_norm: float = 2.0
    score_variance: float = 10.0
    # attention.geodesic: 'a direct measure' means a rank correlation above 0.9.
    geodesic_rho: float = 0.90
    # qk.axes: a head leans to the data's axes if its overlap is significant and twice that of a random head behind
    # the same gain. It lies along them if it shares half of its subspace.
    axes_factor: float = 2.0
    axes_share: float = 0.50
    # rank.nullspace: a head hardly sees a token if 95 % of it lies in the null space. Attention is equal from 95 % of
    # the largest entropy on; a key is scored equally if its score varies by a twentieth of the typical variance. 'Some'
    # means one in a hundred. A write is nothing below 1 % of the head's median. A rank correlation of 0.3 (a tenth of
    # the variance) predicts; differences below 0.1 count for nothing.
    null_share: float = 0.95
    uniform_entropy: float = 0.95
    uniform_key: float = 0.05
    null_exist: float = 0.01
    null_write: float = 0.01
    null_predicts: float = 0.30
    null_nothing: float = 0.10
    # Words: an AUC, a share or a mean over fewer than 40 words has an interval wider than the effects in question.
    words_least: int = 40
    # qk.related: a head separates from an AUC of 0.6 on (three of five comparisons correct), as in sphere.direction.
    related_auc: float = 0.60
    # qk.lookup: clear if a tenth more nouns than by chance find themselves, a form or a relative among their top
    # keys, on average over heads; one head in ten that always does so gives this much.
    lookup_clear: float = 0.10
    # vo.store: few keys if the energy is a quarter more concentrated than by chance: four keys instead of five.
    store_ratio: float = 1.25
    # vo.subjects: a subject if the top tokens' mean cosine is 0.05 above chance. Related words in trained embeddings
    # have a few tenths, and a reader cannot tell lists of ten tokens apart that differ by less.
    subject_excess: float = 0.05
    # Tokens that were hardly trained are pushed to one place of the output embedding, and look like the tightest topic
    # of all. A token counts as hardly trained if 20 others lie within 26° of it, whatever they are made of. In the
    # built-in models and SmolLM2 such crowds have 91, 93 and 33 tokens. Of all others none has more than 9 so near: the
    # digits, and the numbers from three to seven.
    crowd_cosine: float = 0.90
    crowd_others: int = 20
    # qk.subjects: both sides of a head are related if a tenth more of their token pairs agree, or related nouns
    # correlate by a tenth more, than with re-paired directions; a tenth as in qk.lookup.
    paired_excess: float = 0.10
    # words.travel: the next word must be approached by more than a random word in 60 % of cases: a tenth of all tokens
    # above chance, and three of five comparisons correct as in sphere.direction. The same for the own word.
    travel_margin: float = 0.10
    # words.refine: 'layer by layer' means that nine tenths of a curve's movement over the layers goes down; less than
    # half is no fall. The next word is cheaper if its loss falls by 0.1 nats: a tenth of the perplexity.
    refine_most: float = 0.90
    refine_half: float = 0.50
    refine_gain: float = 0.10
    # words.artifact: a picture is faithful if its distances have a rank correlation of 0.9 with the true angles, and
    # misleading below 0.5.
    picture_faithful: float = 0.90
    picture_misleading: float = 0.50
    # words.output: the logit is mostly the cosine above half of its variance over the vocabulary. To replace the output
    # layer, the angle alone must rank the same word first for nine in ten tokens.
    output_share: float = 0.50
    output_same_word: float = 0.90
    # words.context: where context counts, two states of one word share less than three quarters (they are 41° apart);
    # from 0.95 on (18°) one sees the word alone. A tenth of the variance within a word is the least worth naming.
    # Senses form clusters if three of five comparisons are correct, as in sphere.direction; over fewer than eight words
    # there is no interval. Attention off leaves a twentieth more of the word, token by token, or context did nothing.
    context_own: float = 0.75
    context_none: float = 0.95
    context_neighbours: float = 0.10
    context_sense: float = 0.60
    context_words: int = 8
    context_off: float = 0.05
    # stability.prefix: unchanged within `roundings` machine epsilons of the dtype, or within four times the change that
    # another batch shape alone causes (kernels then sum in another order). Never beyond a twentieth of the state's
    # length: 64 machine epsilons of bfloat16 would be half of it.
    prefix_floor: float = 4.0
    prefix_most: float = 0.05
    # stability.drift: a state has drifted when it moved by one degree: ten times what storing it in bfloat16 causes
    # (0.095°), which inference tolerates.
    drift_degrees: float = 1.0
    # stability.reprojection, stability.drift: growth or drift is clearly larger from a factor of two on, which one sees
    # in a drawing. A perturbation has diverged at ten times its size: one of 6° has then left its token's
    # neighbourhood.
    reprojection_factor: float = 2.0
    reprojection_bound: float = 10.0
    # stability.positions: two ranges of positions have the same distribution below an energy distance of 0.01: then
    # their means are a fifth of the cloud's radius apart.
    position_distance: float = 0.01
    # stability.generation: a trend is beyond the band if it exceeds twice the standard deviation of what real text does
    # over the same length: 95 of 100 stretches stay within. Most quantities leave the band if half of them do.
    generation_band: float = 2.0
    generation_most: float = 0.50
    # manifold.errors: scores add to what is known, or are as good as another score, from an AUC difference of 0.02 on:
    # one pair in fifty. A next token that the model gives more than half of the probability is no error.
    errors_margin: float = 0.02
    errors_predicted: float = 0.50
    # heads.axes: 'hurts more' means a quarter more: a fifth of the cost across heads is then due to crossing. The share
    # is withheld for a shuffle that costs less than a hundredth of a nat per token, or whose cost is known to no better
    # than a factor of four downwards.
    crossing_share: float = 0.20
    crossing_cost: float = 0.01
    crossing_steady: float = 0.25
    # axes.privileged: an axis says more than a rotated one from an AUC difference of 0.05 on: one pair in twenty. Axes
    # of a head are related if their |correlation| is a quarter larger than between heads; tails are heavier from a
    # tenth on.
    axis_auc: float = 0.05
    axis_block: float = 1.25
    axis_tails: float = 1.10
    # ffn.discard: half of the coordinates of any centred stream are below zero. A layer discards if twice as many are
    # below as above; 5 % above chance is the least that counts as more. Coordinates below 1 % of the token's peak are
    # gone, and most must be. A unit duplicates another if |cos| of their weights, or of their activations on ordinary
    # tokens, is 0.99 (8°).
    discard_most: float = 2 / 3
    discard_beyond: float = 0.05
    discard_gone: float = 0.50
    discard_peak: float = 0.01
    duplicate_cos: float = 0.99
    # ffn.compress: rounding twice as coarsely saves one bit per coordinate. The activation reduces complexity if it
    # saves half a bit (√2 times as coarse); training, or directions, add to it from a tenth of a bit on.
    compress_bits: float = 0.50
    compress_margin: float = 0.10
    # ffn.select: an edit that costs at most 0.05 nats per token costs nothing, as for scaling. Discarded values are
    # irrelevant if they decode less than half of what kept ones do, and if letting them through costs less than half of
    # the same change elsewhere. A choice depends on context if fixed units cost 0.05 nats more.
    select_cost: float = 0.05
    select_half: float = 0.50
    # ffn.write: an update is simpler if it takes a tenth fewer bits, or directions: the least that is called simpler.
    # Training adds to it from a twentieth of the bits on.
    write_saved: float = 0.10
    write_margin: float = 0.05
    # heads.specialise: a head has a role if one kind of token takes half of its attention, and leans to a kind that
    # takes a quarter. Heads of a layer differ if a quarter of the attention differs between two of them, and are alike
    # if less than a tenth does. Many heads are half of them, few a tenth, as elsewhere.
    role_share: float = 0.50
    role_leaning: float = 0.25
    heads_differ: float = 0.25
    heads_alike: float = 0.10
    # heads.language: a head tells the target from the distractor if it gives it a tenth more of its attention. Fewer
    # than twenty items have an interval wider than that. Heads are of use where removing them costs half of what a good
    # fine-tune gains, as for scaling.
    language_attention: float = 0.10
    language_items: int = 20
    language_cost: float = 0.05
    # heads.regions: a region says something of a head if it explains a tenth of the variance of what the head does, as
    # elsewhere. Heads work in the same regions if they share more than half of where they write much. The share grows
    # with the documents that regions come from. In builtin:gpt (56 tokens each, mean of three seeds) it is 0.00 with 4
    # documents, 0.02 with 6, 0.03 with 8, 0.04 with 12, 0.05 with 16 and 0.06 with 20. With 16 it lies within the
    # interval that 20 have.
    regions_share: float = 0.10
    regions_alike: float = 0.50
    regions_documents: int = 16
    # heads.orthogonality: |cos| in a pocket is 1.5 times that of random projections of the same vectors to k axes;
    # 'nearly orthogonal' means within a factor of two of random directions, as for the shell.
    pocket_ratio: float = 1.5
    orthogonal_ratio: float = 2.0
    # heads.gradients: heads learn independently if silencing a neighbour changes their loss gradient by less than a
    # tenth of the share of the stream that it writes, and do not if it changes it by more than half of that share.
    coupling_none: float = 0.10
    coupling_half: float = 0.50
    # heads.emerge: a rank correlation of 0.3 predicts (a tenth of the variance), as in rank.nullspace. A role emerges
    # where a head gains 0.05 of its attention more than its layer: a fifth of what a leaning takes.
    emerge_rho: float = 0.30
    emerge_gain: float = 0.05
    # map.nonlinear: a matrix acts non-linearly if linear maps of the sphere's coordinates leave more than a tenth of
    # its action unexplained (on directions: rotations and tangent-linear maps), and practically linearly if they leave
    # less than a hundredth.
    bent_share: float = 0.10
    straight_share: float = 0.01
    # flow.coarse: a length grows if it is 1.5 times as long at the end; in order if its rank correlation with depth is
    # 0.8 (two in three steps in order). Text lengthens it beyond shuffled words from a quarter of a token on: half of
    # the length of states that have no correlation.
    flow_growth: float = 1.5
    flow_order: float = 0.80
    flow_text: float = 0.25
    # others.massive: Sun et al. call an activation massive from a thousand times the median magnitude on; a hundred
    # times it make an outlier of the kind they compare with. It is in a fixed place if nine of ten documents agree on
    # the coordinate, and in none if fewer than half do. 'Nearly constant' means a spread of a tenth, as for a thin
    # shell; half of the value is no constant. Attention is parked from a share of 0.3 on (Gu et al.). An edit costs
    # something from 0.05 nats on, as for scaling.
    massive_ratio: float = 1000.0
    massive_outlier: float = 100.0
    massive_constant: float = 0.10
    massive_varies: float = 0.50
    sink_attention: float = 0.30
    massive_cost: float = 0.05
    # others.anisotropy: a narrow cone from a mean cosine of 0.25 on: the mean of unit vectors then has half the length
    # of each. A few dimensions (three, as Timkey and van Schijndel say) dominate if they make half of the cosine. A
    # cosine has shares if its interval stays above half of it: the halves of the text that they come from vary more.
    cone_cosine: float = 0.25
    rogue_share: float = 0.50
    rogue_steady: float = 0.50
    # others.linear: nearly linear if a linear map leaves a twentieth of the variance, not if it leaves a tenth, as in
    # map.nonlinear. The map and not the skip makes it so if it explains half of what the block adds.
    linear_most: float = 0.95
    linear_not: float = 0.90
    linear_write: float = 0.50
    # others.straight: words in no order turn by 120° at every step (the law of three independent points). Trajectories
    # straighten if a turn is smaller by 5° in the middle of the depth. Text does it if shuffled words fall short by 1°.
    straight_degrees: float = 5.0
    straight_text: float = 1.0
    # others.idpeak: a peak is a tenth higher than the rest, the least that is called higher, as for contrast. It is in
    # the middle of the depth from a fifth of the blocks on until four fifths of them.
    peak_ratio: float = 1.10
    peak_from: float = 0.20
    peak_to: float = 0.80
    # others.straight, others.idpeak: with fewer than three blocks the only state between the ends is the one after the
    # first block, and what a first block does is not what the middle of a depth does.
    middle_blocks: int = 3
    # others.collapse: states have collapsed to one vector if a tenth of what was beside it before the first block is
    # left, and not if half of it is. Feed-forwards slow it if they leave a twentieth of it more.
    collapse_left: float = 0.10
    collapse_none: float = 0.50
    collapse_slowed: float = 0.05
    # others.brody: keys are selectable if fewer than one in a hundred lie inside the hull of the others ('some', as in
    # rank.nullspace), and many are not from one in ten on. Scaling makes a difference if it frees one key in twenty.
    # Attention is uniform from 95 % of the largest entropy on, as in rank.nullspace. Queries use the plane's normal if
    # they have twice the squared component of a random direction along it, a factor as for the shell.
    hull_none: float = 0.01
    hull_many: float = 0.10
    hull_freed: float = 0.05
    normal_used: float = 2.0
    # Many heads are many tests: the expected share of false discoveries (Benjamini–Hochberg); 'many heads' means half.
    false_discovery: float = 0.05
    heads_many: float = 0.50
    # A claim about 'every site' is supported when 90 % of sites agree and refuted when at most 10 % do.
    sites_most: float = 0.90
    sites_few: float = 0.10
    # Intervals: 95 %, over documents; fewer than this many documents give none.
    documents_least: int = 8
    # Fewer ordinary tokens than this have no geometry to speak of (four times the neighbours of one).
    tokens_least: int = 64

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


THRESHOLDS = Thresholds()
