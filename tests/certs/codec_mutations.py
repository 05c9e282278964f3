"""Mutations of rows of attribution, codec and move, and of the sections that mean them; registered by mutations.py."""
import copy

import make_cert
import make_codec


def register(case, failure_of, redigest):
    """case, failure_of, redigest: those of mutations.py."""

    def rows(doc, check, verdict=None, **params):
        return [r for r in doc["rows"] if r["check"] == check and verdict in (None, r["verdict"])
                and all(r["params"].get(k) == v for k, v in params.items())]

    def row_case(name, codes, check, pick, function, base="codec", fix=True, exit_code=3):
        """function(row) of the row of that check that pick says: a function of a row."""
        @case(name, 1 if codes == "H0" else exit_code, codes, base=base, fix=fix)
        def _(doc):
            function(next(r for r in rows(doc, check) if pick(r)))

    def changes(check, pick, table, where="proof"):
        """Entries (name, codes, key, new value or function of the old)."""
        for name, codes, key, value in table:
            def change(row, key=key, value=value):
                inner = row[where] if where else row
                inner[key] = value(inner[key]) if callable(value) else value
            row_case(name, codes, check, pick, change)

    def without(check, pick, keys):
        for key in keys:
            row_case("h3_%s_no_%s" % (check, key), "H3", check, pick, lambda row, key=key: row["proof"].pop(key))

    def bump(n):
        return n + 1

    def to(recipe, stream="k", payload="gaussian", geometry=0):
        return lambda r: (r["dst"], r["params"].get("stream"), r["params"].get("payload"), r["geometry"]) == (
            recipe, stream, payload, geometry)

    for name, base in (("sound_codec", "codec"), ("sound_codec_axes", "codec-axes"), ("sound_codec_part", "codec-part"),
                       ("sound_codec_part_axes", "codec-axes-part"), ("sound_study_alone", "study")):
        case(name, 0, "", base=base)(lambda doc: None)

    # -- codec: sizes and counts

    kv1, harness, fp8, empty = to("kv1"), to("published-harness"), to("fp8"), to("kv1", geometry=2)
    changes("codec", kv1, [
        ("h4_codec_rows", "H4", "rows", bump), ("h4_codec_rows_fewer", "H4", "rows", lambda n: n - 1),
        ("h4_codec_encoded", "H4", "encoded_rows", bump), ("h4_codec_encoded_all", "H4", "encoded_rows", 900),
        ("h4_codec_blocks", "H4", "blocks", bump), ("h4_codec_no_blocks", "H4", "blocks", 0),
        ("h4_codec_overflow", "H4", "overflow_blocks", bump), ("h4_codec_overflow_hidden", "H4", "overflow_blocks", 0),
        ("h4_codec_overflow_above_blocks", "H4", "overflow_blocks", 51),
        ("h4_codec_outliers", "H4", "outliers", 10 ** 6), ("h4_codec_outliers_hidden", "H4", "outliers", 0),
        ("h4_codec_saturated", "H4", "saturated", 10 ** 6), ("h4_codec_saturated_by_one", "H4", "saturated", 2 * 800 + 1),
        ("h2_codec_ratio", "H2", "ratio_ppm", bump), ("h2_codec_ratio_doubled", "H2", "ratio_ppm", lambda n: 2 * n),
        ("h3_codec_ratio_null", "H3", "ratio_ppm", None), ("h2_codec_preserving", "H2", "value_preserving", True),
        ("h2_codec_cosine_above_1", "H2", "cosine_ppm", 10 ** 6 + 1), ("h2_codec_cosine_below_1", "H2", "cosine_ppm", -10 ** 6 - 1),
        ("h0_codec_error_below_0", "H0", "relative_l2_ppm", -1), ("h0_codec_error_text", "H0", "worst_element_ppm", "1"),
        ("h0_codec_preserving_null", "H0", "value_preserving", None),
        ("h3_codec_kind", "H3", "kind", "attribution-study"), ("h3_codec_kind_of_pairs", "H3", "kind", "index-permutation-exhaustive"),
        ("h3_codec_rows_null", "H3", "rows", None), ("h3_codec_digest_null", "H3", "slots_digest", None),
        ("h13_codec_digest_short", "H13", "slots_digest", "12"), ("h13_codec_digest_upper", "H13", "codes_digest", "A" * 64),
    ])
    without("codec", kv1, make_codec.STORE_KEYS)
    changes("codec", to("kv1", "v"), [("h4_codec_v_overflow", "H4", "overflow_blocks", 1), ("h4_codec_v_outliers", "H4", "outliers", 1)])
    changes("codec", fp8, [("h4_codec_fp8_blocks", "H4", "blocks", 1), ("h4_codec_fp8_encoded", "H4", "encoded_rows", 0)])
    changes("codec", harness, [("h4_codec_harness_blocks", "H4", "blocks", 40), ("h4_codec_harness_encoded", "H4", "encoded_rows", 900)])
    changes("codec", to("kv1", payload="zeros"), [("h2_codec_error_of_zeros", "H2", "relative_l2_ppm", 0),
                                                  ("h2_codec_cosine_of_zeros", "H2", "cosine_ppm", 10 ** 6)])
    changes("codec", empty, [("h2_codec_error_of_nothing", "H2", "worst_element_ppm", 0), ("h2_codec_ratio_of_nothing", "H2", "ratio_ppm", 1)])
    for recipe in make_codec.RECIPES:
        for stream in "kv":
            changes("codec", to(recipe, stream), [
                ("h4_bytes_%s_%s" % (recipe, stream), "H4", "dst", lambda n: n - 1),
                ("h4_plain_%s_%s" % (recipe, stream), "H4", "src", lambda n: n + 2)], where="native_bytes")
    changes("codec", kv1, [("h4_bytes_null", "H4", "dst", None), ("h4_plain_null", "H4", "src", None)], where="native_bytes")

    def with_ratio(row, stored):
        row["native_bytes"]["dst"] = stored
        row["proof"]["ratio_ppm"] = 10 ** 6 * row["native_bytes"]["src"] // stored

    row_case("h4_bytes_and_ratio", "H4", "codec", kv1, lambda row: with_ratio(row, row["native_bytes"]["dst"] // 2))
    row_case("h4_bytes_of_one_slot_less", "H4", "codec", to("kv1-shared"), lambda row: with_ratio(row, row["native_bytes"]["dst"] - 1000))

    # -- codec: what was observed

    for name, keys in (("store", make_codec.STORE_KEYS[12:14]), ("slot", make_codec.STORE_KEYS[14:16]),
                       ("decode", make_codec.STORE_KEYS[16:18])):
        observation = next(o for o in make_codec.STORE if o.startswith(name))

        def differ(row, keys=keys):
            row["proof"][keys[1]] = "5" * 64

        def equal_denied(row, keys=keys, observation=observation):
            row["observations"][observation] = False

        row_case("h2_%s_digests_differ" % name, "H2", "codec", lambda r: r["verdict"] == "NOT_EXACT", lambda row, keys=keys: row["proof"].update({keys[0]: "5" * 64, keys[1]: "6" * 64}))
        row_case("h2_%s_denied" % name, "H2,H9", "codec", lambda r: r["verdict"] == "NOT_EXACT", equal_denied)

        def both(row, keys=keys, observation=observation):
            row["proof"].update({keys[0]: "5" * 64, keys[1]: "6" * 64})
            row["observations"][observation] = False

        row_case("h9_%s_disagrees" % name, "H9", "codec", lambda r: r["verdict"] == "NOT_EXACT", both)

    ran = lambda r: r["verdict"] == "NOT_EXACT"
    changes("codec", ran, [("h2_codec_tokens_withheld", "H2", "tokens_identical", None), ("h13_codec_tokens_claimed", "H13", "tokens_identical", True)],
            where="observations")
    for key in make_codec.STORE:
        row_case("h2_codec_no_" + key, "H2", "codec", ran, lambda row, key=key: row["observations"].pop(key))
    row_case("h0_codec_observation_of_pairs", "H0", "codec", ran, lambda row: row["observations"].update(roundtrip_byte_identical=True))
    row_case("h0_codec_proof_of_pairs", "H0", "codec", ran, lambda row: row["proof"].update(positions_checked=5))
    row_case("h13_codec_tokens_short", "H13", "codec", ran, lambda row: row["proof"]["decoded_tokens"].pop())
    row_case("h13_codec_tokens_null", "H13", "codec", ran, lambda row: row["proof"].update(logits_digest=None))
    row_case("h13_codec_two_references", "H13", "codec", ran, lambda row: row["proof"].update(reference_tokens=list(range(8))))
    row_case("h13_codec_two_logits", "H13", "codec", ran, lambda row: row["proof"].update(reference_logits_digest="5" * 64))
    row_case("h5_codec_word", "H5", "codec", ran, lambda row: row["transformations"].append("requantize"))
    row_case("h5_codec_view", "H5", "codec", ran, lambda row: row["transformations"].append("view_reinterpret"))
    changes("codec", ran, [
        ("h2_codec_exact_byte", "H2,H5", "verdict", "EXACT_BYTE"), ("h2_codec_exact_token", "H2,H5", "verdict", "EXACT_TOKEN"),
        ("h2_codec_unproven", "H2", "verdict", "UNPROVEN"), ("h14_codec_refused", "H14", "verdict", "REFUSED"),
        ("h2_codec_verdict", "H2", "verdict", "EXACT"), ("h2_codec_same_image", "H2", "same_image", True),
        ("h2_codec_error_class", "H2", "error_class", "io"), ("h14_codec_code", "H14", "frontier_code", "X4_GEOMETRY_UNREPRESENTABLE"),
        ("h3_codec_no_proof", "H3", "proof", None)], where=None)
    refused = lambda r: r["verdict"] == "REFUSED"
    changes("codec", refused, [
        ("h14_codec_other_code", "H14", "frontier_code", "X2_HEAD_GATHER"), ("h14_codec_no_reason", "H14", "frontier_reason", ""),
        ("h14_codec_runs", "H14", "verdict", "NOT_EXACT")], where=None)
    row_case("h3_codec_refused_claims", "H3", "codec", refused, lambda row: row["proof"].update(rows=1))
    row_case("h3_codec_refused_preserves", "H3", "codec", refused, lambda row: row["proof"].update(value_preserving=True))
    row_case("h2_codec_refused_observed", "H2", "codec", refused, lambda row: row["observations"].update(tokens_identical=True))

    # -- moves

    at = lambda pair_id: lambda r: r["pair_id"] == pair_id and r["verdict"] == "EXACT_BYTE"
    pages, pools = at("kv1:pages->kv1:table"), at("kv1:kv-pools->kv1:pages")
    changes("move", pages, [
        ("h4_move_positions", "H4", "positions_total", bump), ("h4_move_sampled", "H4", "positions_checked", 1),
        ("h4_move_source", "H4", "source_positions_checked", lambda n: n // 2), ("h4_move_layers", "H4", "layers", bump),
        ("h4_move_unit", "H4", "unit_layers", 5), ("h4_move_padding", "H4", "dest_padding_positions", 1),
        ("h3_move_payloads", "H3", "gather_payloads", 5), ("h3_move_lemmas", "H3", "lemmas", []),
        ("h3_move_kind", "H3", "kind", "codec-store-decode"), ("h2_move_difference", "H2", "roundtrip_diff_positions", 1),
        ("h2_move_bijection", "H2", "dest_bijective", False), ("h2_move_unread", "H2", "unread_padding_positions", 4),
        ("h3_move_detail", "H3", "detail", {"conversion": "f16->f16", "values_preserved": True, "worst_relative_error_ppm": 0}),
        ("h13_move_decoded", "H13", "decoded_tokens", list(range(8))), ("h13_move_reference", "H13", "reference_logits_digest", "5" * 64)])
    changes("move", pages, [("h5_move_no_word", "H5", "transformations", []), ("h5_move_kv_move", "H5", "transformations", ["kv_move"]),
                            ("h5_move_words_more", "H5", "transformations", ["kv_split", "page_remap"]), ("h2_move_same_image", "H2", "same_image", True),
                            ("h2_move_token", "H2", "verdict", "EXACT_TOKEN"), ("h2_move_worse", "H2", "verdict", "NOT_EXACT"),
                            ("h14_move_refused", "H14", "verdict", "REFUSED")], where=None)
    changes("move", pools, [("h5_move_split_for_merge", "H5", "transformations", ["kv_split"]),
                            ("h5_move_nothing_merged", "H5", "transformations", ["axis_permute"])], where=None)
    changes("move", pools, [("h4_move_bytes", "H4", "dst", bump), ("h4_move_bytes_src", "H4", "src", 0)], where="native_bytes")
    changes("move", refused, [("h14_move_code", "H14", "frontier_code", None), ("h14_move_runs", "H14", "verdict", "EXACT_BYTE"),
                              ("h5_move_refused_words", "H5", "transformations", [])], where=None)

    @case("h13_move_other_recipe_decodes_another", 0, "", base="codec")
    def _(doc):
        for row in rows(doc, "move", "EXACT_BYTE"):
            if row["src"].startswith("published"):
                row["proof"].update(reference_tokens=[1] * 8, decoded_tokens=[1] * 8)

    @case("h13_moves_decode_one_tensor", 3, "H13", base="codec")
    def _(doc):
        row = rows(doc, "move", "EXACT_BYTE")[1]
        row["proof"].update(reference_tokens=[1] * 8, decoded_tokens=[1] * 8)

    # -- attribution

    cell = lambda name, seed="2": lambda r: r["verdict"] == "NOT_EXACT" and (r["params"]["cell"], r["params"]["seed"]) == (name, seed)
    kv, identity = cell("kv"), cell("identity")
    changes("attribution", kv, [
        ("h4_study_passages", "H4", "passages", 4), ("h4_study_no_passages", "H4", "passages", 0),
        ("h4_study_passage_dropped", "H4", "per_passage", lambda p: p[:-1]), ("h4_study_passage_added", "H4", "per_passage", lambda p: p + p[:1]),
        ("h2_study_accept_better", "H2", "accept", lambda a: {"REJECT": "ACCEPT", "MARGINAL": "ACCEPT", "ACCEPT": "REJECT"}[a]),
        ("h2_study_accept_other", "H2", "accept", "MAYBE"), ("h3_study_accept_null", "H3", "accept", None),
        ("h2_study_change", "H2", "ppl_change_ppm", 0), ("h2_study_divergence", "H2", "kl_nano", 0),
        ("h2_study_top1", "H2", "top1_ppm", lambda n: n - 1), ("h2_study_top1_all", "H2", "top1_ppm", 10 ** 6),
        ("h2_study_top1_above_all", "H2", "top1_ppm", 10 ** 6 + 1), ("h2_study_k_error", "H2", "k_error_ppm", -2),
        ("h2_study_v_error", "H2", "v_error_ppm", -1000), ("h13_study_base", "H13", "base_nll_nano", bump),
        ("h13_study_base_other", "H13", "base_nll_nano", 0), ("h13_study_base_digest", "H13", "base_logits_digest", "5" * 64),
        ("h13_study_digest_short", "H13", "logits_digest", "5" * 63), ("h3_study_kind", "H3", "kind", "codec-store-decode"),
        ("h3_study_some_scores", "H3", "kl_nano", None), ("h3_study_some_scores_nll", "H3", "nll_nano", None),
        ("h3_study_passage_without_scores", "H3", "per_passage", lambda p: [dict.fromkeys(p[0])] + p[1:]),
        ("h0_study_passage_key", "H0", "per_passage", lambda p: [dict(p[0], nll_nano=1)] + p[1:]),
        ("h0_study_passage_text", "H0", "per_passage", lambda p: ["1"] + p[1:]),
        ("h2_study_passage_share", "H2", "per_passage", lambda p: [dict(p[0], top1_ppm=999999)] + p[1:]),
        ("h2_study_passage_shares", "H2", "per_passage", lambda p: [dict(q, top1_ppm=0) for q in p]),
        ("h2_study_passages_better", "H2", "per_passage", lambda p: [dict(q, ppl_change_ppm=0) for q in p])])
    without("attribution", kv, make_codec.STUDY_KEYS)
    changes("attribution", kv, [("h2_study_finite", "H2", "logits_are_finite", False), ("h2_study_top1_claimed", "H2", "top1_identical", True),
                                ("h2_study_withheld", "H2", "variants_agree", None), ("h9_study_variants", "H9", "variants_agree", False),
                                ("h9_study_identity", "H9", "identity_changes_nothing", False)], where="observations")
    changes("attribution", kv, [("h4_study_bytes", "H4", "dst", 1), ("h4_study_bytes_null", "H4", "src", None)], where="native_bytes")
    changes("attribution", kv, [("h2_study_exact", "H2,H5", "verdict", "EXACT_BYTE"), ("h14_study_refused", "H14", "verdict", "REFUSED"),
                                ("h5_study_word", "H5", "transformations", ["requantize"]), ("h2_study_same_image", "H2", "same_image", True)], where=None)
    changes("attribution", identity, [
        ("h9_identity_logits", "H9", "logits_digest", "5" * 64), ("h9_identity_likelihood", "H9", "nll_nano", bump),
        ("h9_identity_divergence", "H9", "kl_nano", 1), ("h9_identity_change", "H9", "ppl_change_ppm", 1)])
    changes("attribution", refused, [("h14_study_runs", "H14", "verdict", "NOT_EXACT"), ("h14_study_code", "H14", "frontier_code", "X1_LATENT_KV")],
            where=None)
    row_case("h2_study_same_logits", "H2", "attribution", kv, lambda row: row["proof"].update(logits_digest=row["proof"]["base_logits_digest"]))

    def no_scores(row):
        proof = row["proof"]
        proof.update(dict.fromkeys(("nll_nano", "ppl_change_ppm", "kl_nano", "top1_ppm")), accept="REJECT",
                     per_passage=[dict.fromkeys(p) for p in proof["per_passage"]])
        row["observations"].update(logits_are_finite=False, top1_identical=False)

    row_case("sound_study_not_finite", "", "attribution", kv, no_scores, exit_code=0)
    row_case("h9_identity_not_finite", "H9", "attribution", identity, no_scores)
    row_case("h2_study_not_finite_accepted", "H2", "attribution", kv, lambda row: (no_scores(row), row["proof"].update(accept="ACCEPT")))
    row_case("h2_study_not_finite_denied", "H2", "attribution", kv, lambda row: (no_scores(row), row["observations"].update(logits_are_finite=True)))

    # -- rows that did not run, or not to their end

    for check in ("codec", "attribution"):
        @case("sound_%s_failed" % check, 4, "", base="codec")
        def _(doc, check=check):
            row = rows(doc, check, "NOT_EXACT")[3]
            make_codec.nothing(row, "FAILED", "failed", "memory")
            doc["run"]["failures"].append(failure_of(row))

        @case("h10_%s_failure_of_a_pair" % check, 3, "H10", base="codec")
        def _(doc, check=check):
            row = rows(doc, check, "NOT_EXACT")[3]
            make_codec.nothing(row, "FAILED", "failed", "memory")
            doc["run"]["failures"].append(dict(failure_of(row), check="pair"))

        @case("sound_%s_unproven" % check, 4, "", base="codec")
        def _(doc, check=check):
            make_codec.nothing(rows(doc, check, "NOT_EXACT")[3], "UNPROVEN",
                               "codec-store-decode" if check == "codec" else "attribution-study")

    def half(row):
        row["verdict"] = "UNPROVEN"
        row["observations"]["store_agrees_with_reference"] = row["proof"]["codes_digest"] = None
        row["native_bytes"]["dst"] = row["proof"]["blocks"] = row["proof"]["overflow_blocks"] = None

    row_case("sound_codec_half_unproven", "", "codec", ran, half, exit_code=4)
    row_case("h2_codec_unproven_observed", "H2", "codec", ran, lambda row: (half(row), row["observations"].update(store_agrees_with_reference=True)))
    row_case("h4_codec_unproven_wrong", "H4", "codec", ran, lambda row: (half(row), row["proof"].update(rows=1)))

    # -- cells: order, missing, params, parts

    def swap(doc, i, k):
        doc["rows"][i], doc["rows"][k] = doc["rows"][k], doc["rows"][i]

    case("h10_codec_params_order", 3, "H10", base="codec")(lambda doc: swap(doc, 29, 30))
    case("h10_seeds_by_number", 3, "H10", base="codec")(lambda doc: swap(doc, 0, 1))
    case("h10_checks_order", 3, "H10", base="codec")(lambda doc: doc["rows"].append(doc["rows"].pop(0)))
    case("h15_codec_row_dropped", 3, "H15", base="codec")(lambda doc: doc["rows"].remove(rows(doc, "codec")[7]))
    case("h15_move_row_dropped", 3, "H15", base="codec")(lambda doc: doc["rows"].remove(rows(doc, "move")[0]))
    case("h15_study_row_dropped", 3, "H15", base="codec")(lambda doc: doc["rows"].remove(rows(doc, "attribution")[-1]))
    case("h15_codec_rows_dropped", 3, "H15", base="codec", fix=True)(
        lambda doc: doc.update(rows=[r for r in doc["rows"] if r["check"] != "codec"]))
    case("h15_part_row_dropped", 3, "H15", base="codec-part")(lambda doc: doc["rows"].remove(rows(doc, "codec")[0]))
    case("h12_codec_row_twice", 3, "H12", base="codec")(lambda doc: doc["rows"].insert(60, copy.deepcopy(doc["rows"][60])))
    case("h12_study_row_twice", 3, "H12", base="codec")(lambda doc: doc["rows"].insert(0, copy.deepcopy(doc["rows"][0])))

    @case("h11_row_of_another_part", 3, "H11", base="codec-part")
    def _(doc):
        spec = {k: v for k, v in doc["campaign"]["spec"].items() if k != "part"}
        whole = make_codec.rows_of(spec, doc["geometries"], make_cert)
        here = [make_cert.canonical(r) for r in doc["rows"]]
        other = next(r for r in whole if r["check"] == "codec" and make_cert.canonical(r) not in here)
        place = [r["check"] for r in doc["rows"]].index("codec")
        doc["rows"].insert(place, other)

    changes("codec", kv1, [("h11_codec_payload", "H11,H15", "payload", "constant"), ("h11_codec_stream", "H11,H15", "stream", "q"),
                           ("h11_codec_payload_number", "H11,H15", "payload", 1)], where="params")
    row_case("h11_codec_geometry", "H11,H15", "codec", kv1, lambda row: row.update(geometry=9), fix=False)
    row_case("h11_codec_bits", "H11,H15", "codec", kv1, lambda row: row["params"].update(bits="3"))
    row_case("h11_codec_no_stream", "H11,H15", "codec", kv1, lambda row: row["params"].pop("stream"))
    changes("codec", kv1, [("h11_codec_src", "H11,H15", "src", "sglang"), ("h11_codec_dst", "H11,H15", "dst", "kv2"),
                           ("h11_codec_pair_id", "H11,H15", "pair_id", "canonical->fp8"),
                           ("h0_codec_check", "H0", "check", "Codec"), ("h0_codec_check_pair", "H0", "check", "pair")], where=None)
    changes("attribution", kv, [("h11_study_cell", "H11,H15", "cell", "k"), ("h11_study_layer", "H11,H15", "cell", "layer-00"),
                                ("h11_study_layer_9", "H11,H15", "cell", "layer-9"), ("h11_study_layers", "H11,H15", "cell", "layers"),
                                ("h11_study_seed", "H11,H15", "seed", "02"), ("h11_study_seed_number", "H11,H15", "seed", 2)], where="params")
    changes("attribution", kv, [("h11_study_recipe", "H11,H15", "dst", "kv1-shared")], where=None)
    changes("move", pages, [("h11_move_recipe", "H11,H15", "dst", "published-serving:table"), ("h11_move_itself", "H11,H15", "dst", "kv1:pages"),
                            ("h11_move_arrangement", "H11,H15", "src", "kv1:head-major"), ("h11_move_params", "H11,H15", "params", {"tail": "stale"})], where=None)

    @case("h11_codec_rows_without_section", 3, "H11,H8", base="codec")
    def _(doc):
        del doc["campaign"]["spec"]["codec"]
        del doc["campaign"]["spec"]["attribution"]
        redigest(doc)

    # -- lists, boundary, vocabulary

    def agrees(doc):
        return next(e for e in doc["checks"] if e["name"] == "codec_agrees")

    case("h8_codec_agrees_missing", 3, "H8", base="codec")(lambda doc: doc["checks"].remove(agrees(doc)))
    case("h8_codec_agrees_missing_for_a_study", 3, "H8", base="study")(lambda doc: doc["checks"].remove(agrees(doc)))
    case("h8_codec_agrees_twice", 3, "H8", base="codec")(lambda doc: doc["checks"].append(dict(agrees(doc))))
    case("h8_codec_agrees_without_rows", 3, "H8")(
        lambda doc: doc["checks"].append({"name": "codec_agrees", "passed": True, "detail": ""}))
    case("h9_codec_agrees_not", 3, "H9", base="codec")(lambda doc: agrees(doc).update(passed=False))
    case("h8_claimed_check", 3, "H8", base="codec-axes")(
        lambda doc: (doc["campaign"]["spec"]["claims"]["checks"].append("pair"), redigest(doc)))
    case("h7_claimed_word_of_moves", 3, "H7", base="codec-axes")(
        lambda doc: (doc["campaign"]["spec"]["claims"]["words"].append("kv_merge"), redigest(doc)))

    def line(name, key, function):
        @case(name, 3, "H10", base="codec", fix=False)
        def _(doc):
            doc["boundary"][key] = function(doc["boundary"][key])

    line("h10_codec_line_dropped", "holds", lambda lines: lines[:-1])
    line("h10_codec_line_counts", "holds", lambda lines: lines[:-1] + [lines[-1].replace(" codec rows", "0 codec rows")])
    line("h10_codec_line_studies", "holds", lambda lines: lines[:-1] + [lines[-1].replace(" attribution", "0 attribution")])
    line("h10_codec_limit_dropped", "does_not_hold", lambda lines: lines[:-1])
    line("h10_codec_limit_softened", "does_not_hold", lambda lines: lines[:-1] + ["That no loss is one."])

    # -- the sections

    def section_case(name, codes, section, key, value, base="codec", exit_code=1):
        @case(name, exit_code, codes, base=base)
        def _(doc):
            part = doc["campaign"]["spec"][section] if section else doc["campaign"]["spec"]
            if value is KeyError:
                del part[key]
            else:
                part[key] = value
            redigest(doc)

    file = {"name": "a.k", "bytes": 1, "digest": "ab" * 32}
    for i, (section, key, value) in enumerate((
            ("codec", "recipes", KeyError), ("codec", "recipes", []), ("codec", "recipes", ["kv2"]), ("codec", "recipes", ["kv1", "kv1"]),
            ("codec", "recipes", "kv1"), ("codec", "payloads", KeyError), ("codec", "payloads", ["file:a.k"]), ("codec", "payloads", [1]),
            ("codec", "streams", []), ("codec", "streams", ["k", "q"]), ("codec", "bits", []), ("codec", "bits", [0]), ("codec", "bits", [5]),
            ("codec", "bits", [2, 2]), ("codec", "bits", ["2"]), ("codec", "block", 48), ("codec", "block", 1), ("codec", "block", 131072),
            ("codec", "block", "16"), ("codec", "moves", ["table"]), ("codec", "moves", []), ("codec", "moves", ["table", "x"]),
            ("codec", "more", 1), ("codec", "files", []), ("codec", "files", [file]), ("codec", "files", [file, file]),
            ("codec", "files", [dict(file, bytes=-1)]), ("codec", "files", [dict(file, digest="ab")]), ("codec", "files", [dict(file, path="x")]),
            ("codec", "files", {}), ("attribution", "recipes", KeyError), ("attribution", "recipes", ["fp8"]), ("attribution", "recipes", ["rotation", "kv1"]),
            ("attribution", "seeds", KeyError), ("attribution", "seeds", []), ("attribution", "seeds", [1, 1]), ("attribution", "seeds", [-1]),
            ("attribution", "seeds", ["1"]), ("attribution", "seeds", list(range(65))), ("attribution", "cells", []),
            ("attribution", "cells", ["layer-0"]), ("attribution", "cells", ["kv", "kv"]), ("attribution", "passages", 0),
            ("attribution", "passages", 9), ("attribution", "evaluated", 0), ("attribution", "evaluated", 4097), ("attribution", "block", 3),
            ("attribution", "block", 8192), ("attribution", "more", 1), (None, "codec", None), (None, "codec", []),
            (None, "attribution", None), (None, "attribution", "kv1"), (None, "pairs", None), (None, "pairs", []))):
        section_case("h0_section_%02d" % i, "H0", section, key, value)
    section_case("h0_moves_without_pages", "H0", "codec", "recipes", ["fp8", "kv1-shared"])
    section_case("h0_no_pairs_no_codec", "H0", None, "pairs", KeyError, base="published")
    section_case("h4_block", "H4", "codec", "block", 32, exit_code=3)
    section_case("h4_passages", "H4", "attribution", "passages", 2, exit_code=3)
    section_case("h2_evaluated", "H2", "attribution", "evaluated", 23, exit_code=3)
    section_case("h15_seed_more", "H15", "attribution", "seeds", [2, 10, 3], exit_code=3)
    section_case("h11_seed_less", "H11", "attribution", "seeds", [2], exit_code=3)
    section_case("h15_payload_more", "H15", "codec", "payloads", ["gaussian", "zeros", "k-like-1"], exit_code=3)
    section_case("h11_payload_less", "H11", "codec", "payloads", ["zeros"], exit_code=3)
    section_case("h11_no_pairs", "H11", None, "pairs", KeyError, exit_code=3)

    @case("h14_file_of_another_size", 3, "H14", base="codec-axes")
    def _(doc):
        doc["campaign"]["spec"]["codec"]["files"][0]["bytes"] += 1
        redigest(doc)


def documents():
    study = {k: v for k, v in make_codec.SPEC.items() if k not in ("codec", "pairs")}
    codec = make_cert.CAMPAIGNS["codec"][0], make_codec.SPEC
    axes = make_cert.CAMPAIGNS["codec-axes"][0], make_codec.AXES_SPEC
    return {"codec": make_cert.make_document(*codec), "codec-axes": make_cert.make_document(*axes),
            "codec-part": make_cert.make_document(codec[0], dict(codec[1], part="2/3")),
            "codec-axes-part": make_cert.make_document(axes[0], dict(axes[1], part="3/7")),
            "study": make_cert.make_document(codec[0], dict(study, name="study"))}
