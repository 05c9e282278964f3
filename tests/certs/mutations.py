#!/usr/bin/env python3
"""Writes a folder of mutated, re-signed certificates and what both verifiers must say of each.

    mutations.py OUT_FOLDER [--random N] [--campaigns N] [--only codec|others]

OUT_FOLDER/NAME.json       the document
OUT_FOLDER/expect.txt      a line for each: NAME EXIT CODE[,CODE...] ("-" where none, "?" where any)
OUT_FOLDER/trusted.pub     the key that signed them
The codes are those that must be among the faults; `sound` documents have none.
"""
import argparse
import copy
import json
import os
import random
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import codec_mutations  # noqa: E402
import make_cert  # noqa: E402

MIXED_SPEC = {"schema": "kvgrid.campaign/v1", "name": "mixed", "seed": 7, "tail": ["stale", "zero"],
              "select": ["a-*", "bf16", "whole-block", "padded-page", "latent*", "layers-inside", "*-shard", "copied-heads"],
              "pairs": [["a-thd", "a-thd-again"], ["a-thd", "bf16"], ["bf16", "a-thd"], ["a-thd", "whole-block"],
                        ["whole-block", "a-thd"], ["padded-page", "a-thd"], ["latent", "latent-blocks"], ["latent", "a-thd"],
                        ["layers-inside", "a-thd"], ["head-shard", "a-thd"], ["copied-heads", "a-thd"]],
              "geometries": [{"layers": 2, "tokens": [0, 5], "kv_heads": [1, 2], "head_dim": 8, "element": "f16"}]}
MIXED = ("a-thd a-thd-again bf16 whole-block padded-page latent latent-blocks layers-inside head-shard copied-heads").split()

CASES = []


def case(name, exit_code, codes, base="published", after=None, fix=True):
    """Registers a mutation of a document; `fix` recomputes the totals after it, `after` edits sealed bytes."""
    def register(function):
        CASES.append((name, exit_code, codes, base, function, after, fix))
        return function
    return register


def find(doc, pair_id, geometry=0, **params):
    return next(r for r in doc["rows"] if r["pair_id"] == pair_id and r["geometry"] == geometry and r["params"] == params)


def by_verdict(doc, verdict):
    return next(r for r in doc["rows"] if r["verdict"] == verdict)


def entry(doc, name):
    return next(e for e in doc["catalogue"] if e["name"] == name)


def redigest(doc):
    """The digests of catalogue and campaign after an edit of a declaration."""
    for e in doc["catalogue"]:
        e["digest"] = make_cert.digest({k: v for k, v in e.items() if k != "digest"})
    doc["campaign"]["digest"] = make_cert.digest(
        {"layouts": {e["name"]: e["digest"] for e in doc["catalogue"]}, "spec": doc["campaign"]["spec"]})


def nothing(row, verdict, kind, error_class=None):
    """The row as it stands where nothing was found."""
    proof = dict.fromkeys(make_cert.PROOF_KEYS)
    proof.update(kind=kind, lemmas=[])
    row.update(verdict=verdict, error_class=error_class, same_image=False, native_bytes={"src": None, "dst": None},
               observations=dict.fromkeys(make_cert.OBSERVATIONS), proof=proof)


def failure_of(row):
    return {**{k: row[k] for k in ("check", "pair_id", "geometry", "params", "error_class")}, "rank": 0, "host": "h",
            "device": "cpu", "text": "made up"}


# ---- sound ones --------------------------------------------------------------------------------

@case("sound_published", 0, "")
@case("sound_mixed", 0, "", base="mixed")
@case("sound_exhaustive", 0, "", base="exhaustive")
@case("sound_wide", 0, "", base="wide")
@case("sound_part", 0, "", base="part")
def _(doc):
    pass


@case("sound_other_run", 0, "")
def _(doc):
    devices = [dict(make_cert.DEVICE, rank=rank, memory=1) for rank in range(8)]
    doc["run"].update(ranks=8, devices=devices, elapsed_ms=77, started="2024-02-29T23:59:60Z",
                      more={"free": [1, None, {"x": "y"}]})
    doc["subject"] = {"name": "model at 7", "digest": "sha256:" + "0a" * 32}


@case("sound_merged", 0, "")
def _(doc):
    doc["run"].update(ranks=5, parts=[{}, {}], devices=[dict(make_cert.DEVICE, rank=rank) for rank in (0, 1, 2, 0, 1)])


@case("sound_emulated", 0, "")
def _(doc):
    doc["run"]["devices"][0]["device"] = "emulated"


@case("sound_two_failed", 4, "")
def _(doc):
    for verdict in ("EXACT_TOKEN", "EXACT_BYTE"):
        row = by_verdict(doc, verdict)
        nothing(row, "FAILED", "failed", "memory")
        doc["run"]["failures"].append(failure_of(row))


@case("sound_ranks_that_differ", 0, "")
def _(doc):
    doc["run"]["differences"] = [{"what": "driver", "values": [{"value": "1", "ranks": [0], "hosts": ["a"]},
                                                               {"value": "2", "parts": ["1/2"]}]}]


@case("sound_failed", 4, "")
def _(doc):
    row = by_verdict(doc, "EXACT_BYTE")
    nothing(row, "FAILED", "failed", "memory")
    doc["run"]["failures"].append(failure_of(row))


@case("sound_unproven", 4, "")
def _(doc):
    nothing(by_verdict(doc, "EXACT_TOKEN"), "UNPROVEN", "index-permutation-exhaustive")


@case("sound_half_unproven", 4, "")
def _(doc):
    row = by_verdict(doc, "EXACT_TOKEN")
    row["verdict"] = "UNPROVEN"
    row["observations"]["tokens_identical"] = None
    row["proof"]["positions_checked"] -= 1


@case("sound_all_unproven", 4, "")
def _(doc):
    for row in doc["rows"]:
        if row["verdict"] != "REFUSED":
            nothing(row, "UNPROVEN", "index-permutation-exhaustive")


@case("sound_not_exact", 0, "")
def _(doc):
    row = by_verdict(doc, "EXACT_BYTE")  # a translator that really is wrong
    row["verdict"] = "NOT_EXACT"
    row["observations"]["forward_reproduces_target"] = row["proof"]["gather_agrees"] = False


@case("sound_expect", 0, "")
def _(doc):
    doc["campaign"]["spec"]["expect"] = [
        {"pairs": "vllm-*->sglang", "at_least": "EXACT_TOKEN"},
        {"pairs": "*->*", "geometry": {"tokens": [40], "element": "f16"}, "params": {"tail": "stale"},
         "verdict": ["EXACT_BYTE", "EXACT_TOKEN", "NOT_EXACT", "REFUSED"], "waiver": {"reason": "r", "until": "2030-02-28"}},
        {"pairs": "canonical->kv1*", "params": {"payload": ["k-like-1", "file:My_k.2"], "stream": "k", "bits": ["2", "4"]}, "verdict": "NOT_EXACT"},
        {"pairs": "canonical->kv1", "params": {"cell": "layer-3", "seed": ["0", "12"]}, "verdict": "NOT_EXACT"},
        {"pairs": "*->*", "params": {"from": "64", "to": ["1", "10"], "send": ["whole", "shard"]}, "verdict": "REFUSED"},
        {"pairs": "*->*", "params": {"from_stages": ["2", "[[0,3],[1]]"], "to_stages": "1"}, "verdict": "REFUSED"}]
    redigest(doc)


@case("sound_claims", 0, "")
def _(doc):
    doc["campaign"]["spec"]["claims"] = {"words": ["reblock", "kv_merge"], "checks": ["pair", "every_cell_has_a_row"]}
    doc["campaign"]["spec"]["floors"] = {"exact_byte": 21}
    redigest(doc)


# ---- H0 ----------------------------------------------------------------------------------------

@case("h0_torn", 1, "H0", after=lambda b: b[:-1])
@case("h0_torn_half", 1, "H0", after=lambda b: b[:len(b) // 2])
@case("h0_empty", 1, "H0", after=lambda b: b"")
@case("h0_trailing", 1, "H0", after=lambda b: b + b"\n")
@case("h0_two_documents", 1, "H0", after=lambda b: b + b"{}")
@case("h0_blank", 1, "H0", after=lambda b: b.replace(b",", b", ", 1))
@case("h0_bom", 1, "H0", after=lambda b: b"\xef\xbb\xbf" + b)
@case("h0_duplicate_key", 1, "H0", after=lambda b: b.replace(b'"FAILED":0', b'"FAILED":0,"FAILED":3', 1))
@case("h0_duplicate_deep", 1, "H0", after=lambda b: b.replace(b'"same_image":', b'"same_image":true,"same_image":', 1))
@case("h0_float", 1, "H0", after=lambda b: b.replace(b'"layers":3', b'"layers":3.0', 1))
@case("h0_exponent", 1, "H0", after=lambda b: b.replace(b'"layers":3', b'"layers":3e0', 1))
@case("h0_big_number", 1, "H0", after=lambda b: b.replace(b'"elapsed_ms":1', b'"elapsed_ms":9007199254740992', 1))
@case("h0_minus_zero", 1, "H0", after=lambda b: b.replace(b'"FAILED":0', b'"FAILED":-0', 1))
@case("h0_control", 1, "H0", after=lambda b: b.replace(b"made up", b"made\\nup", 1))
@case("h0_del", 1, "H0", after=lambda b: b.replace(b"made up", b"made\x7fup", 1))
@case("h0_escape", 1, "H0", after=lambda b: b.replace(b"made up", b"made\\u0020up", 1))
@case("h0_bad_utf8", 1, "H0", after=lambda b: b.replace(b"made up", b"made\xffup", 1))
@case("h0_half_character", 1, "H0", after=lambda b: b.replace(b"made up", b"made\\ud800up", 1))
@case("h0_key_not_ascii", 1, "H0", after=lambda b: b.replace(b'"note":', '"noté":'.encode(), 1))
@case("h0_nan", 1, "H0", after=lambda b: b.replace(b'"elapsed_ms":1', b'"elapsed_ms":NaN', 1))
@case("h0_deep", 1, "H0", after=lambda b: b.replace(b'"failures":[]', b'"failures":' + b"[" * 40 + b"]" * 40, 1))
@case("h0_very_deep", 1, "H0", after=lambda b: b"[" * 200000)
@case("h0_key_order", 1, "H0", after=lambda b: b"{" + b'"vocabulary":[],' + b[1:])
@case("h0_a_list", 1, "H0", after=lambda b: b"[]")
@case("h0_a_number", 1, "H0", after=lambda b: b"1")
def _(doc):
    pass


@case("h0_a_difference_without_values", 1, "H0")
def _(doc):
    doc["run"]["differences"] = [{"what": "driver"}]


@case("h0_a_difference_between_words", 1, "H0")
def _(doc):
    doc["run"]["differences"] = [{"what": "driver", "values": [{"value": "1", "ranks": ["0"]}]}]


@case("h0_schema", 1, "H0")
def _(doc):
    doc["schema"] = "kvgrid.certificate/v2"


@case("h0_wrong_type", 1, "H0", fix=False)
def _(doc):
    doc["rows"][3]["transformations"].append(7)


@case("h0_wrong_type_number", 1, "H0", fix=False)
def _(doc):
    doc["rows"][3]["proof"]["positions_total"] = "1280"


@case("h0_negative", 1, "H0", fix=False)
def _(doc):
    doc["rows"][3]["proof"]["positions_total"] = -1


@case("h0_missing_key", 1, "H0", fix=False)
def _(doc):
    del doc["rows"][3]["same_image"]


@case("h0_unknown_key", 1, "H0")
def _(doc):
    doc["rows"][3]["speed"] = 1


@case("h0_top_level_key", 1, "H0")
def _(doc):
    doc["signed_by"] = "me"


@case("h0_layout_axes", 1, "H0")
def _(doc):
    entry(doc, "sglang")["k_axes"] = ["T", "H", "T"]
    redigest(doc)


@case("h0_layout_key", 1, "H0")
def _(doc):
    entry(doc, "sglang")["blocks"] = 16
    redigest(doc)


@case("h0_spec_key", 1, "H0")
def _(doc):
    doc["campaign"]["spec"]["sedd"] = 1
    redigest(doc)


@case("h0_spec_pairs", 1, "H0")
def _(doc):
    doc["campaign"]["spec"]["pairs"] = "some"
    redigest(doc)


def spec_case(name, **changes):
    @case(name, 1, "H0", fix=False)
    def _(doc):
        doc["campaign"]["spec"].update(changes)
        redigest(doc)


spec_case("h0_expect_object", expect={})
spec_case("h0_expect_empty", expect=[])
spec_case("h0_expect_key", expect=[{"pairs": "a->b", "verdict": "REFUSED", "why": 1}])
spec_case("h0_expect_both", expect=[{"pairs": "a->b", "verdict": "REFUSED", "at_least": "REFUSED"}])
spec_case("h0_expect_neither", expect=[{"pairs": "a->b"}])
spec_case("h0_expect_verdict", expect=[{"pairs": "a->b", "verdict": "FAILED"}])
spec_case("h0_expect_twice", expect=[{"pairs": "a->b", "verdict": ["REFUSED", "REFUSED"]}])
spec_case("h0_expect_pairs", expect=[{"pairs": "ab", "verdict": "REFUSED"}])
spec_case("h0_expect_no_source", expect=[{"pairs": "->b", "verdict": "REFUSED"}])
spec_case("h0_expect_no_day", expect=[{"pairs": "a->b", "verdict": "REFUSED", "waiver": {"reason": "r", "until": "2030-02-30"}}])
spec_case("h0_expect_no_reason", expect=[{"pairs": "a->b", "verdict": "REFUSED", "waiver": {"until": "2030-02-28"}}])
spec_case("h0_expect_geometry", expect=[{"pairs": "a->b", "verdict": "REFUSED", "geometry": {}}])
spec_case("h0_expect_tail", expect=[{"pairs": "a->b", "verdict": "REFUSED", "params": {"tail": []}}])
for number, (key, value) in enumerate((
        ("payload", ""), ("payload", "a b"), ("payload", ["gaussian", 3]), ("cell", []), ("stream", "kv"), ("bits", "5"), ("bits", 3),
        ("seed", "01"), ("seed", "-1"), ("from", "0"), ("from", "65"), ("to", "07"), ("to", "1\n"), ("send", "k|v"), ("send", "all"), ("recipe", "kv1"),
        ("from_stages", 2), ("from_stages", ""), ("to_stages", "[[0], [1]]"))):
    spec_case("h0_expect_params_%d" % number, expect=[{"pairs": "a->b", "verdict": "REFUSED", "params": {key: value}}])
for number, part in enumerate(("0/2", "3/2", "1/65537", "1", "1/02", "01/2", "/2", "1/", "1/2/3", "", "+1/2", 1, None)):
    spec_case("h0_part_%d" % number, part=part)
spec_case("h0_tail", tail="stele")
spec_case("h0_tail_null", tail=None)
spec_case("h0_seed", seed="1x")
spec_case("h0_seed_negative", seed=-1)
spec_case("h0_seed_large", seed="18446744073709551616")
spec_case("h0_values", values="all")
spec_case("h0_floors", floors={"exact": 1})
spec_case("h0_claims", claims={"words": "reblock"})
spec_case("h0_select", select="*")
spec_case("h0_pairs_self", pairs=[["sglang", "sglang"]])
spec_case("h0_pairs_three", pairs=[["sglang", "vllm-fa", "trtllm"]])
spec_case("h0_geometries", geometries=[])
spec_case("h0_geometry_list", geometries=[{"layers": [], "tokens": 40, "kv_heads": 2, "head_dim": 8, "element": "f16"}])
spec_case("h0_geometry_missing", geometries=[{"layers": 3, "tokens": 40, "kv_heads": 2, "element": "f16"}])
spec_case("h0_geometry_key", geometries=[dict(make_cert.SPEC["geometries"][0], batch=1)])
spec_case("h0_geometry_zero", geometries=[dict(make_cert.SPEC["geometries"][0], layers=0)])


@case("h11_row_of_another_part", 3, "H11", base="part")
def _(doc):
    doc["campaign"]["spec"]["part"] = "2/3"
    redigest(doc)


@case("h15_part_shrunk", 3, "H15", base="part")
def _(doc):
    del doc["rows"][-1]


@case("h0_too_large", 1, "H0")
def _(doc):
    doc["campaign"]["spec"]["geometries"][0].update(tokens=1 << 40, kv_heads=1 << 20)
    doc["geometries"][0].update(tokens=1 << 40, kv_heads=1 << 20)
    redigest(doc)


# ---- H1 ----------------------------------------------------------------------------------------

def resign(seed):
    return lambda b: make_cert.Signer(seed).seal(json.loads(b))


def edit(function):
    def change(data):
        doc = json.loads(data)
        function(doc)
        return make_cert.canonical(doc)
    return change


@case("h1_forged_signer", 3, "H1", after=resign("22" * 32))
@case("h1_changed_run", 3, "H1", after=edit(lambda d: d["run"].update(elapsed_ms=9)))
@case("h1_changed_body", 3, "H1", after=edit(lambda d: d["boundary"].update(note="better")))
@case("h1_body_digest", 3, "H1", after=edit(lambda d: d.update(body_digest="0" * 64)))
@case("h1_alg", 3, "H1", after=edit(lambda d: d["signature"].update(alg="none")))
@case("h1_key_id", 3, "H1", after=edit(lambda d: d["signature"].update(key_id="0" * 16)))
@case("h1_sig_zero", 3, "H1", after=edit(lambda d: d["signature"].update(sig="0" * 128)))
@case("h1_sig_short", 3, "H1", after=edit(lambda d: d["signature"].update(sig="")))
@case("h1_sig_upper", 3, "H1", after=edit(lambda d: d["signature"].update(sig=d["signature"]["sig"].upper())))
@case("h1_public_key", 3, "H1", after=edit(lambda d: d["signature"].update(public_key="zz")))
@case("h1_public_key_zero", 3, "H1", after=edit(lambda d: d["signature"].update(public_key="0" * 64)))
def _(doc):
    pass


# ---- H2 ----------------------------------------------------------------------------------------

@case("h2_relabelled_up", 3, "H2")
def _(doc):
    by_verdict(doc, "EXACT_TOKEN")["verdict"] = "EXACT_BYTE"


@case("h2_relabelled_down", 3, "H2")
def _(doc):
    by_verdict(doc, "EXACT_BYTE")["verdict"] = "NOT_EXACT"


@case("h2_conversion_exact", 3, "H2")
def _(doc):
    by_verdict(doc, "NOT_EXACT")["verdict"] = "EXACT_TOKEN"


@case("h2_unknown_verdict", 3, "H2")
def _(doc):
    by_verdict(doc, "EXACT_BYTE")["verdict"] = "EXACT"


@case("h2_observation_withheld", 3, "H2")
def _(doc):
    by_verdict(doc, "EXACT_BYTE")["observations"]["forward_reproduces_target"] = None


@case("h2_observation_deleted", 3, "H2")
def _(doc):
    del by_verdict(doc, "EXACT_BYTE")["observations"]["forward_reproduces_target"]


@case("h2_bijection_denied", 3, "H2")
def _(doc):
    by_verdict(doc, "EXACT_BYTE")["proof"]["source_bijective"] = False


@case("h2_gather_disagrees", 3, "H2")
def _(doc):
    by_verdict(doc, "EXACT_TOKEN")["proof"]["gather_agrees"] = False


@case("h2_differences", 3, "H2")
def _(doc):
    by_verdict(doc, "EXACT_BYTE")["proof"]["roundtrip_diff_positions"] = 1


@case("h2_zero_tail_differs", 3, "H2", base="mixed")
def _(doc):
    row = find(doc, "whole-block->a-thd", 2, tail="zero")
    row["proof"]["roundtrip_diff_positions"] = row["proof"]["unread_padding_positions"]


@case("h2_unread_padding", 3, "H2")
def _(doc):
    by_verdict(doc, "EXACT_TOKEN")["proof"]["unread_padding_positions"] += 1


@case("h2_same_image", 3, "H2")
def _(doc):
    by_verdict(doc, "EXACT_BYTE")["same_image"] = True


@case("h2_not_same_image", 3, "H2", base="mixed")
def _(doc):
    next(r for r in doc["rows"] if r["same_image"])["same_image"] = False


@case("h2_refused_observes", 3, "H2")
def _(doc):
    by_verdict(doc, "REFUSED")["observations"]["tokens_identical"] = True


@case("h2_tail_bits", 3, "H2")
def _(doc):
    doc["method"]["tail_bits"]["stale"]["f16"]["stale"] = "3555"


@case("h2_error_class", 3, "H2")
def _(doc):
    by_verdict(doc, "EXACT_BYTE")["error_class"] = "io"


@case("h2_failed_class", 3, "H2")
def _(doc):
    row = by_verdict(doc, "EXACT_BYTE")
    nothing(row, "FAILED", "failed", "mood")
    doc["run"]["failures"].append(failure_of(row))


@case("h2_preserved", 3, "H2")
def _(doc):
    by_verdict(doc, "NOT_EXACT")["proof"]["detail"]["values_preserved"] = True


# ---- H3 ----------------------------------------------------------------------------------------

@case("h3_proof_deleted", 3, "H3")
def _(doc):
    del by_verdict(doc, "EXACT_BYTE")["proof"]


@case("h3_proof_null", 3, "H3")
def _(doc):
    by_verdict(doc, "EXACT_BYTE")["proof"] = None


@case("h3_proof_empty", 3, "H3")
def _(doc):
    by_verdict(doc, "EXACT_BYTE")["proof"] = {}


@case("h3_gather_nulled", 3, "H3")
def _(doc):
    by_verdict(doc, "EXACT_BYTE")["proof"]["gather_agrees"] = None


@case("h3_no_lemma", 3, "H3")
def _(doc):
    by_verdict(doc, "EXACT_BYTE")["proof"]["lemmas"] = []


@case("h3_unknown_lemma", 3, "H3")
def _(doc):
    by_verdict(doc, "EXACT_BYTE")["proof"]["lemmas"] = ["trust_me"]


@case("h3_kind", 3, "H3")
def _(doc):
    by_verdict(doc, "EXACT_BYTE")["proof"]["kind"] = "sampled"


@case("h3_payloads", 3, "H3")
def _(doc):
    by_verdict(doc, "EXACT_BYTE")["proof"]["gather_payloads"] = 1


@case("h3_exhaustive_payloads", 3, "H3", base="exhaustive")
def _(doc):
    by_verdict(doc, "EXACT_BYTE")["proof"]["gather_payloads"] = 6


@case("h3_exhaustive_kinds", 3, "H3", base="exhaustive")
def _(doc):
    doc["method"]["payload_kinds"] = ["some_bit_patterns"]


@case("h3_method_payloads", 3, "H3")
def _(doc):
    doc["method"]["payloads"] = 5


@case("h3_no_detail", 3, "H3")
def _(doc):
    by_verdict(doc, "NOT_EXACT")["proof"]["detail"] = None


@case("h3_refused_proves", 3, "H3")
def _(doc):
    by_verdict(doc, "REFUSED")["proof"]["layers"] = 3


# ---- H4 ----------------------------------------------------------------------------------------

@case("h4_sampled", 3, "H4")
def _(doc):
    by_verdict(doc, "EXACT_BYTE")["proof"]["positions_checked"] -= 1


@case("h4_one_position", 3, "H4")
def _(doc):
    by_verdict(doc, "EXACT_BYTE")["proof"].update(positions_checked=1, positions_total=1)


@case("h4_source", 3, "H4")
def _(doc):
    by_verdict(doc, "EXACT_TOKEN")["proof"].update(source_positions_checked=2, source_positions_total=2)


@case("h4_layers", 3, "H4")
def _(doc):
    by_verdict(doc, "EXACT_TOKEN")["proof"]["layers"] = 1


@case("h4_native_bytes", 3, "H4")
def _(doc):
    by_verdict(doc, "EXACT_TOKEN")["native_bytes"]["dst"] += 2


@case("h4_padding", 3, "H4")
def _(doc):
    by_verdict(doc, "EXACT_TOKEN")["proof"]["source_padding_positions"] -= 1


# ---- H5, H6, H7, H8, H9 ------------------------------------------------------------------------

@case("h5_no_words", 3, "H5")
def _(doc):
    by_verdict(doc, "EXACT_BYTE")["transformations"] = []


@case("h5_other_words", 3, "H5")
def _(doc):
    by_verdict(doc, "EXACT_BYTE")["transformations"].append("view_reinterpret")


@case("h5_unsorted", 3, "H5")
def _(doc):
    next(r for r in doc["rows"] if len(r["transformations"]) > 1)["transformations"].reverse()


@case("h5_refused_words", 3, "H5")
def _(doc):
    find(doc, "vllm-fa->vllm-paged-x16")["transformations"] = []


def not_exact(row):
    row["verdict"] = "NOT_EXACT"
    row["observations"]["forward_reproduces_target"] = row["proof"]["gather_agrees"] = False


@case("h6_hunt_emptied", 3, "H6")
def _(doc):
    for row in doc["rows"]:
        if row["verdict"].startswith("EXACT"):
            not_exact(row)


@case("h6_exact_rows_dropped", 3, "H6,H15")
def _(doc):
    doc["rows"] = [r for r in doc["rows"] if not r["verdict"].startswith("EXACT")]


@case("h6_not_for_refused_only", 4, "")
def _(doc):
    refused = [r for r in doc["rows"] if r["verdict"] == "REFUSED"]
    doc["rows"] = refused
    doc["campaign"]["spec"]["pairs"] = [[r["src"], r["dst"]] for r in refused]
    redigest(doc)


@case("h7_thinned", 3, "H7", fix=False)
def _(doc):
    doc["vocabulary"].pop()


@case("h7_claimed", 3, "H7")
def _(doc):
    doc["campaign"]["spec"]["claims"] = {"words": ["layer_merge"], "frontier_codes": ["X1_LATENT_KV"]}
    redigest(doc)


@case("h7_invented", 3, "H7", fix=False)
def _(doc):
    doc["vocabulary"].append("teleport")


@case("h8_floor_above", 3, "H8", fix=False)
def _(doc):
    doc["floors"]["exact_byte"] += 1


@case("h8_floor_below", 3, "H8", fix=False)
def _(doc):
    doc["floors"]["positions_checked"] = 0


@case("h8_given_floor", 3, "H8")
def _(doc):
    doc["campaign"]["spec"]["floors"] = {"exact_token": 34}
    redigest(doc)


@case("h8_claimed_check", 3, "H8")
def _(doc):
    doc["campaign"]["spec"]["claims"] = {"checks": ["codec"]}
    redigest(doc)


@case("h8_check_dropped", 3, "H8")
def _(doc):
    del doc["checks"][3]


@case("h8_guards_shrunk", 3, "H8")
def _(doc):
    for kind in ("checks", "controls", "known_limits"):
        del doc[kind][1:]


@case("h8_limit_renamed", 3, "H8")
def _(doc):
    doc["known_limits"][0]["name"] = "none"


@case("h9_failed_check", 3, "H9")
def _(doc):
    doc["checks"][0]["passed"] = False


@case("h9_failed_control", 3, "H9")
def _(doc):
    doc["controls"][0]["passed"] = False


@case("h9_other_guard", 3, "H9")
def _(doc):
    doc["controls"][0]["actual_guard"] = "none"


@case("h9_not_demonstrated", 3, "H9")
def _(doc):
    doc["known_limits"][0]["demonstrated"] = False


# ---- H10, H11, H12 ------------------------------------------------------------------------------

@case("h10_counts", 3, "H10", fix=False)
def _(doc):
    doc["observed"]["verdicts"]["EXACT_BYTE"] += 1


@case("h10_positions", 3, "H10", fix=False)
def _(doc):
    doc["observed"]["positions_checked"] -= 1


@case("h10_same_images", 3, "H10", base="mixed", fix=False)
def _(doc):
    doc["observed"]["same_image_rows"] = 0


@case("h10_views", 3, "H10", base="mixed", fix=False)
def _(doc):
    doc["observed"]["view_rows"] = 0


@case("h10_order", 3, "H10")
def _(doc):
    doc["rows"][3], doc["rows"][4] = doc["rows"][4], doc["rows"][3]


@case("h10_failure_untold", 3, "H10")
def _(doc):
    nothing(by_verdict(doc, "EXACT_BYTE"), "FAILED", "failed", "io")


@case("h11_engine", 3, "H11")
def _(doc):
    doc["rows"][0].update(src="made-up", pair_id="made-up->" + doc["rows"][0]["dst"])


@case("h11_geometry", 3, "H11", fix=False)
def _(doc):
    doc["rows"][0]["geometry"] = 1


@case("h11_digest", 3, "H11")
def _(doc):
    doc["catalogue"][0]["engine"] = "another"


@case("h11_campaign_digest", 3, "H11")
def _(doc):
    doc["campaign"]["digest"] = "0" * 64


@case("h11_campaign_name", 3, "H11")
def _(doc):
    doc["campaign"]["name"] = "better"


@case("h11_pair_id", 3, "H11")
def _(doc):
    doc["rows"][0]["pair_id"] = "a->b"


@case("h11_geometry_list", 3, "H11")
def _(doc):
    doc["geometries"].append(dict(doc["geometries"][0], tokens=41))


@case("h11_geometry_changed", 3, "H11")
def _(doc):
    doc["geometries"][0]["tokens"] = 39


@case("h11_unselected", 3, "H11")
def _(doc):
    doc["campaign"]["spec"]["select"] = ["vllm-*", "sglang", "trt*", "hf-?ynamic-cache", "llamacpp", "flash*", "lmdeploy*"]
    redigest(doc)


@case("h11_pattern", 3, "H11")
def _(doc):
    doc["campaign"]["spec"]["select"] = ["*", "nobody"]
    redigest(doc)


@case("h11_foreign_pair", 3, "H11")
def _(doc):
    row = copy.deepcopy(find(doc, "vllm-fa->vllm-fp8"))
    row.update(src="sglang", pair_id="sglang->vllm-fp8")
    doc["rows"].append(row)
    doc["rows"].sort(key=lambda r: r["pair_id"].encode())


@case("h11_params", 3, "H11")
def _(doc):
    doc["rows"][0]["params"] = {"tail": "stale"}


@case("h11_binding", 3, "H11")
def _(doc):
    doc["bindings"][0]["exists"] = not doc["bindings"][0]["exists"]


@case("h11_binding_shape", 3, "H11")
def _(doc):
    doc["bindings"][0]["native_shapes"]["k"][1] += 1


@case("h11_binding_identity", 3, "H11")
def _(doc):
    next(b for b in doc["bindings"] if b["layout"] == "hf-dynamic-cache")["is_identity"] = True


@case("h11_binding_reason", 3, "H11")
def _(doc):
    next(b for b in doc["bindings"] if b["reason"])["reason"] = None


@case("h11_binding_dropped", 3, "H11")
def _(doc):
    doc["bindings"].pop()


@case("h11_values", 3, "H11")
def _(doc):
    doc["method"]["values"] = "exhaustive"


@case("h11_tail", 3, "H11")
def _(doc):
    doc["method"]["tail"] = "zero"


@case("h11_seed", 3, "H11")
def _(doc):
    doc["method"]["weight_seed"] = "2"


@case("h11_catalogue_order", 3, "H11")
def _(doc):
    doc["catalogue"].reverse()


@case("h11_catalogue_double", 3, "H11")
def _(doc):
    doc["catalogue"].append(copy.deepcopy(doc["catalogue"][-1]))
    redigest(doc)


@case("h12_row_twice", 3, "H12")
def _(doc):
    doc["rows"].append(copy.deepcopy(doc["rows"][0]))


@case("h12_row_twice_beside", 3, "H12")
def _(doc):
    doc["rows"].insert(1, copy.deepcopy(doc["rows"][0]))


@case("h12_renamed_engine", 3, "H12")
def _(doc):
    entry(doc, "flashinfer-nhd").update(k_axes=["KV", "Tb", "Ti", "H", "D"])
    redigest(doc)


@case("h12_view_with_words", 3, "H12", base="mixed")
def _(doc):
    next(r for r in doc["rows"] if r["transformations"] == ["view_reinterpret"])["transformations"] = ["axis_permute"]


@case("h12_geometry_twice", 3, "H12")
def _(doc):
    doc["campaign"]["spec"]["geometries"][0]["tokens"] = [40, 40]
    doc["geometries"].append(dict(doc["geometries"][0]))
    doc["bindings"] += [dict(b, geometry=1) for b in doc["bindings"]]
    doc["rows"] += [dict(r, geometry=1) for r in doc["rows"]]
    redigest(doc)


@case("h12_pair_listed_twice", 3, "H12", base="mixed")
def _(doc):
    doc["campaign"]["spec"]["pairs"].append(["a-thd", "bf16"])
    redigest(doc)


# ---- H13, H14, H15 ------------------------------------------------------------------------------

@case("h13_no_tokens", 3, "H13")
def _(doc):
    by_verdict(doc, "EXACT_BYTE")["proof"]["decoded_tokens"] = None


@case("h13_no_digest", 3, "H13")
def _(doc):
    by_verdict(doc, "EXACT_BYTE")["proof"]["reference_logits_digest"] = None


@case("h13_other_tokens", 3, "H13")
def _(doc):
    tokens = by_verdict(doc, "EXACT_BYTE")["proof"]
    tokens["decoded_tokens"] = [(t + 1) % 64 for t in tokens["decoded_tokens"]]


@case("h13_other_logits", 3, "H13")
def _(doc):
    by_verdict(doc, "EXACT_BYTE")["proof"]["logits_digest"] = "0" * 64


@case("h13_short", 3, "H13")
def _(doc):
    proof = by_verdict(doc, "EXACT_BYTE")["proof"]
    proof["decoded_tokens"] = proof["reference_tokens"] = [1]


@case("h13_out_of_vocabulary", 3, "H13")
def _(doc):
    proof = by_verdict(doc, "EXACT_BYTE")["proof"]
    proof["decoded_tokens"] = proof["reference_tokens"] = [64] * 8


@case("h13_against_the_claim", 3, "H13")
def _(doc):
    row = by_verdict(doc, "NOT_EXACT")
    row["observations"]["tokens_identical"] = not row["observations"]["tokens_identical"]


@case("h13_method", 3, "H13")
def _(doc):
    doc["method"]["decode_steps"] = 0


@case("h14_frontier_crossed", 3, "H14")
def _(doc):
    crossed = find(doc, "vllm-tp2->vllm-fa")
    exact = by_verdict(doc, "EXACT_BYTE")
    for key in ("verdict", "frontier_code", "frontier_reason", "observations", "proof", "native_bytes"):
        crossed[key] = copy.deepcopy(exact[key])


@case("h14_other_code", 3, "H14")
def _(doc):
    find(doc, "vllm-tp2->vllm-fa")["frontier_code"] = "X1_LATENT_KV"


@case("h14_no_reason", 3, "H14")
def _(doc):
    find(doc, "vllm-tp2->vllm-fa")["frontier_reason"] = ""


@case("h14_invented_frontier", 3, "H14")
def _(doc):
    make_cert.refused_row(by_verdict(doc, "EXACT_BYTE"), "X2_HEAD_GATHER", "no")


@case("h14_code_on_exact_row", 3, "H14")
def _(doc):
    by_verdict(doc, "EXACT_BYTE")["frontier_code"] = "X2_HEAD_GATHER"


@case("h15_row_dropped", 3, "H15")
def _(doc):
    del doc["rows"][5]


@case("h15_refused_dropped", 3, "H15")
def _(doc):
    doc["rows"].remove(by_verdict(doc, "REFUSED"))


@case("h15_no_rows", 3, "H15")
def _(doc):
    doc["rows"] = []


@case("h15_tail_dropped", 3, "H15", base="mixed")
def _(doc):
    doc["rows"] = [r for r in doc["rows"] if r["params"]["tail"] != "zero"]


# ---- several fields edited together ----------------------------------------------------------------
# A signer who knows the rules fits everything that he can reach; what is left must still give him away.

for number, text in enumerate(("\x80", "\x9b", "\xad", "\u061c", "\u180e", "\u200b", "\u200f", "\u2028", "\u202e", "\u2060", "\u2066",
                               "\ufeff", "\ufffb", "\U000e0041")):
    @case("h0_hidden_%02d" % number, 1, "H0")
    def _(doc, text=text):
        entry(doc, "sglang")["cite"] += text + "x"
        redigest(doc)


def run_case(name, code, **changes):
    @case(name, 1 if code == "H0" else 3, code)
    def _(doc):
        doc["run"].update(copy.deepcopy(changes))


def device(**changes):
    return dict(make_cert.DEVICE, **changes)


for number, started in enumerate(("", "2026-01-01", "2026-01-01T00:00:00", "2026-01-01 00:00:00Z", "2026-02-29T00:00:00Z", "2026-01-01T24:00:00Z",
                                  "2026-01-01T00:60:00Z", "2026-01-01T00:00:61Z", "2026-01-01T00:00:00Zx", "0000-01-01T00:00:00Z",
                                  "2026-01-01T0a:00:00Z", "\uff12026-01-01T00:00:00Z")):
    run_case("h0_started_%02d" % number, "H0", started=started)
run_case("h0_device_text", "H0", devices=["cpu"])
run_case("h0_device_no_rank", "H0", devices=[{"host": "h", "device": "cpu", "name": "n"}])
run_case("h0_device_case", "H0", devices=[device(device="CUDA")])
run_case("h0_device_blank", "H0", devices=[device(device="emulated ")])
run_case("h0_device_empty", "H0", devices=[device(device="")])
run_case("h10_ranks_above", "H10", ranks=8)
run_case("h10_ranks_below", "H10", ranks=1, devices=[device(), device(rank=1)])
run_case("h10_no_devices", "H10", ranks=0, devices=[])
run_case("h10_rank_twice", "H10", ranks=2, devices=[device(), device()])
run_case("h10_rank_left_out", "H10", ranks=2, devices=[device(), device(rank=2)])
run_case("h10_merged_rank_twice", "H10", ranks=3, parts=[{}, {}], devices=[device(), device(rank=1), device(rank=1)])


def subject_case(name, subject):
    @case(name, 1, "H0")
    def _(doc):
        doc["subject"] = subject


subject_case("h0_subject_short", {"name": "m", "digest": "sha256:00"})
subject_case("h0_subject_other_hash", {"name": "m", "digest": "md5:" + "0" * 64})
subject_case("h0_subject_upper", {"name": "m", "digest": "sha256:" + "A" * 64})
subject_case("h0_subject_long", {"name": "m", "digest": "sha256:" + "0" * 65})
subject_case("h0_subject_no_name", {"name": "", "digest": "sha256:" + "0" * 64})
subject_case("h0_subject_letters", {"name": "mod\u00e9l", "digest": "sha256:" + "0" * 64})


def list_cases(kind):
    @case("h8_%s_twice" % kind, 3, "H8")
    def _(doc):
        doc[kind].append(copy.deepcopy(doc[kind][0]))

    @case("h8_%s_unlisted" % kind, 3, "H8")
    def _(doc):
        doc[kind].append(dict(doc[kind][0], name="everything_is_well"))


for one in ("controls", "checks", "known_limits"):
    list_cases(one)


@case("h9_other_guard_expected", 3, "H9")
def _(doc):
    doc["controls"][0].update(expected_guard="EXACT_BYTE", actual_guard="EXACT_BYTE")


@case("h9_guards_of_each_other", 3, "H9")
def _(doc):
    first, last = doc["controls"][0], doc["controls"][-1]
    for key in ("expected_guard", "actual_guard"):
        first[key], last[key] = last[key], first[key]


@case("h9_padding_denied", 3, "H9")
def _(doc):
    for row in doc["rows"]:
        if row["verdict"] == "EXACT_TOKEN":
            row["verdict"] = "EXACT_BYTE"
            row["proof"]["roundtrip_diff_positions"] = 0
            row["observations"].update(roundtrip_byte_identical=True, roundtrip_diff_is_exactly_unread_padding=False)


@case("h9_padding_denied_once", 3, "H9", base="mixed")
def _(doc):
    row = by_verdict(doc, "EXACT_TOKEN")
    row["verdict"] = "EXACT_BYTE"
    row["proof"]["roundtrip_diff_positions"] = 0
    row["observations"].update(roundtrip_byte_identical=True, roundtrip_diff_is_exactly_unread_padding=False)


def one_token(doc, token):
    for row in doc["rows"]:
        if row["verdict"] != "REFUSED":
            same = row["observations"]["tokens_identical"]
            row["proof"]["reference_tokens"] = [token] * 8
            row["proof"]["decoded_tokens"] = [token if same else token + 1] * 8


@case("h9_degenerate_reference", 3, "H9")
def _(doc):
    one_token(doc, 0)


@case("h9_degenerate_everywhere", 3, "H9", base="mixed")
def _(doc):
    one_token(doc, 7)


@case("h9_degenerate_said", 3, "H9", base="mixed")
def _(doc):
    one_token(doc, 7)
    next(c for c in doc["checks"] if c["name"] == "reference_sequence_not_degenerate")["passed"] = False


@case("h9_claimed_word", 3, "H7,H9")
def _(doc):
    doc["campaign"]["spec"]["claims"] = {"words": ["layer_merge"]}
    redigest(doc)


@case("h9_claimed_code", 3, "H7,H9", base="exhaustive")
def _(doc):
    doc["campaign"]["spec"]["claims"] = {"frontier_codes": ["X1_LATENT_KV"]}
    redigest(doc)


def without_control(name, control):
    @case(name, 3, "H9")
    def _(doc):
        next(c for c in doc["controls"] if c["name"] == control)["passed"] = False


without_control("h9_leg_without_its_control", "source_tail_in_the_tokens")
without_control("h9_round_trip_without_its_control", "reinterpreting_translator")


@case("h10_failure_invented", 3, "H10")
def _(doc):
    doc["run"]["failures"].append(failure_of(dict(doc["rows"][5], error_class="memory")))


@case("h10_failure_told_twice", 3, "H10")
def _(doc):
    row = by_verdict(doc, "EXACT_BYTE")
    nothing(row, "FAILED", "failed", "memory")
    doc["run"]["failures"] += [failure_of(row)] * 2


@case("h10_failure_of_another_class", 3, "H10")
def _(doc):
    row = by_verdict(doc, "EXACT_BYTE")
    nothing(row, "FAILED", "failed", "memory")
    doc["run"]["failures"].append(dict(failure_of(row), error_class="io"))


def boundary_case(name, function):
    @case(name, 3, "H10", fix=False)
    def _(doc):
        function(doc["boundary"])


boundary_case("h10_boundary_rows", lambda b: b["holds"].__setitem__(2, b["holds"][2].replace(" rows", "1 rows")))
boundary_case("h10_boundary_layouts", lambda b: b["holds"].__setitem__(0, b["holds"][0].replace("12", "1200")))
boundary_case("h10_boundary_claim_added", lambda b: b["holds"].append("That every engine accepts these bytes."))
boundary_case("h10_boundary_limit_dropped", lambda b: b["does_not_hold"].pop(0))
boundary_case("h10_boundary_limit_emptied", lambda b: b["does_not_hold"].__setitem__(1, ""))
boundary_case("h10_boundary_empty", lambda b: b.update(holds=[], does_not_hold=[], note=""))
boundary_case("h10_boundary_note", lambda b: b.update(note=b["note"].replace("6 refused", "0 refused")))


def other_reference(row):
    proof = row["proof"]
    proof["reference_tokens"] = proof["decoded_tokens"] = [(t + 1) % 64 for t in proof["reference_tokens"]]


@case("h13_two_references", 3, "H13")
def _(doc):
    other_reference(by_verdict(doc, "EXACT_BYTE"))


@case("h13_two_reference_digests", 3, "H13")
def _(doc):
    proof = by_verdict(doc, "EXACT_TOKEN")["proof"]
    proof["logits_digest"] = proof["reference_logits_digest"] = "5" * 64


@case("h13_conversion_decodes_another", 3, "H13")
def _(doc):
    by_verdict(doc, "NOT_EXACT")["proof"]["reference_tokens"] = list(range(8))


@case("sound_references_by_heads", 0, "", base="wide")
def _(doc):
    for row in doc["rows"]:  # of other heads or of latent rows: another reference, the same for all of them
        g, src = doc["geometries"][row["geometry"]], entry(doc, row["src"])
        if row["verdict"] != "REFUSED" and (src["kv"] == "latent" or make_cert.heads(src, g) != (0, g["kv_heads"])):
            other_reference(row)


OTHERS = len(CASES)  # behind them: rows of the codec
codec_mutations.register(case, failure_of, redigest)


# ---- random edits: no expectation but that both verifiers say the same ---------------------------


def places(value, path=()):
    """(container, key) of everything below value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(items):
        yield value, key
        yield from places(inner)


def random_edit(doc, rng):
    spots = [s for s in places({k: v for k, v in doc.items() if k not in ("body_digest", "signature")})]
    container, key = rng.choice(spots)
    other, other_key = rng.choice(spots)
    old = container[key]
    choices = [None, True, False, 0, 1, 2, 40, (1 << 53) - 1, "", "vllm-fa", "T", [], {}, copy.deepcopy(other[other_key])]
    if isinstance(old, bool):
        choices += [not old] * 8
    elif isinstance(old, int):
        choices += [old + 1, old * 2, abs(old - 1)] * 4
    elif isinstance(old, str):
        choices += [old + "x", old[:-1]] * 4
    elif isinstance(old, list) and old:
        choices += [old[:-1], old + old[:1], old[::-1]] * 4
    container[key] = rng.choice(choices)
    if rng.random() < 0.15 and isinstance(container, dict):
        del container[key]


def documents():
    layouts = {e["name"]: e for e in make_cert.WIDE}
    return {**codec_mutations.documents(),
            "published": make_cert.make_document(*make_cert.CAMPAIGNS["published"]),
            "mixed": make_cert.make_document([layouts[n] for n in MIXED], MIXED_SPEC),
            "part": make_cert.make_document(make_cert.PUBLISHED, dict(
                make_cert.SPEC, part="1/3", claims={"words": ["teleport"]}, floors={"refused": 77})),
            "wide": make_cert.make_document(*make_cert.CAMPAIGNS["wide-small"]),
            "exhaustive": make_cert.make_document([layouts[n] for n in ("a-thd", "whole-block", "bf16")], dict(
                make_cert.SPEC, name="exhaustive", pairs="all-ordered", values="exhaustive",
                geometries=[{"layers": 1, "tokens": 3, "kv_heads": 1, "head_dim": 2, "element": ["f16", "fp8_e4m3"]}]))}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out")
    parser.add_argument("--random", type=int, default=0, metavar="N", help="documents with random edits")
    parser.add_argument("--campaigns", type=int, default=0, metavar="N", help="sound documents of random layouts")
    parser.add_argument("--only", choices=("codec", "others"), help="documents with rows of the codec, or without")
    args = parser.parse_args()
    cases = {"codec": CASES[OTHERS:], "others": CASES[:OTHERS]}.get(args.only, CASES)
    edited = {"codec": ("codec",), "others": ("published", "mixed")}.get(args.only, ("published", "mixed", "codec"))
    os.makedirs(args.out, exist_ok=True)
    signer, bases, expect = make_cert.Signer(), documents(), []

    def write(name, data):
        with open(os.path.join(args.out, name + ".json"), "wb") as f:
            f.write(data)

    for name, exit_code, codes, base, function, after, fix in cases:
        doc = copy.deepcopy(bases[base])
        function(doc)
        if fix:
            make_cert.observe(doc)
        data = signer.seal(doc)
        changed = after(data) if after else data
        assert after is None or changed != data, name
        write(name, changed)
        expect.append("%s %d %s\n" % (name, exit_code, codes or "-"))
    rng = random.Random(1)
    for i in range(args.random):
        doc = copy.deepcopy(bases[rng.choice(edited)])
        for _ in range(rng.choice((1, 1, 2))):
            random_edit(doc, rng)
        try:
            if rng.random() < 0.4:
                redigest(doc)
        except (KeyError, TypeError, AttributeError):
            pass
        write("random_%04d" % i, signer.seal(doc))
        expect.append("random_%04d ? ?\n" % i)
    for i in range(args.campaigns):
        doc = make_cert.make_document(*make_cert.random_campaign(random.Random(i)))
        write("campaign_%04d" % i, signer.seal(doc))
        checked = any(r["proof"]["positions_checked"] for r in doc["rows"])
        expect.append("campaign_%04d %d -\n" % (i, 0 if checked else 4))
    with open(os.path.join(args.out, "expect.txt"), "w") as f:
        f.writelines(expect)
    with open(os.path.join(args.out, "trusted.pub"), "w") as f:
        f.write(signer.trust_line())


if __name__ == "__main__":
    sys.exit(main())
