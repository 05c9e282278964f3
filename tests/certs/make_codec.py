"""Rows of attribution, codec and move for make_cert.py, as docs/codec-rows.md has them: a third derivation, which places every
block and counts every field by itself. What only a run can measure is made up."""
import hashlib
import json

RECIPES = "fp8 int4-token kv1 kv1-shared published-harness published-serving rotation".split()
ENCODERS = "kv1 kv1-shared published-harness published-serving".split()
CELLS = ("identity k k-no-whitening k-whiten-after k-whiten-before kv kv-prefix layers noise v v-outliers "
         "whiten-only").split()
STORE = "store_agrees_with_reference slot_roundtrip_byte_identical decode_agrees_with_reference tokens_identical".split()
STUDY = "identity_changes_nothing variants_agree logits_are_finite top1_identical".split()
STORE_KEYS = ("kind rows encoded_rows blocks overflow_blocks outliers saturated relative_l2_ppm worst_element_ppm cosine_ppm "
              "ratio_ppm value_preserving codes_digest reference_codes_digest slots_digest repacked_slots_digest values_digest "
              "reference_values_digest decoded_tokens reference_tokens logits_digest reference_logits_digest").split()
STUDY_KEYS = ("kind passages base_nll_nano nll_nano ppl_change_ppm kl_nano top1_ppm accept k_error_ppm v_error_ppm "
              "k_overflow_blocks v_overflow_blocks per_passage base_logits_digest logits_digest").split()
KEYS = {"codec": STORE_KEYS, "attribution": STUDY_KEYS}
OBSERVED = {"codec": STORE, "attribution": STUDY}
ELEMENT = {"f16": 2, "bf16": 2, "f32": 4, "fp8_e4m3": 1}
HOLDS = ("%d codec rows were stored and read back by a fast implementation and by a plain one, and %d attribution rows come from "
         "a small model with weights made up from a seed.")
DOES_NOT_HOLD = "That a loss measured on made-up rows or on the small model is that of any language model."


def canonical(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def digest(*value):
    return hashlib.blake2b(canonical(value), digest_size=32).hexdigest()


def tokens(*value):
    return [b % 64 for b in hashlib.blake2b(canonical(value), digest_size=8).digest()]


def has_codec(spec):
    return "codec" in spec or "attribution" in spec


# ---- cells -------------------------------------------------------------------------------------


def cells_of(spec, geometries):
    """(check, geometry, pair_id, params) of every cell, in row order."""
    out = []
    codec, study = spec.get("codec", {}), spec.get("attribution", {})
    for index, g in enumerate(geometries):
        for recipe in codec.get("recipes", []):
            for stream in codec.get("streams", ["k", "v"]):
                for payload in codec["payloads"]:
                    params = {"payload": payload, "stream": stream}
                    several = codec.get("bits", []) if recipe not in ("fp8", "int4-token") else []
                    for more in [{"bits": str(b)} for b in several] or [{}]:
                        out.append(("codec", index, "canonical->" + recipe, dict(params, **more)))
            for src in codec.get("moves", []) if recipe in ("kv1", "published-serving") else []:
                for dst in codec["moves"]:
                    if src != dst:
                        out.append(("move", index, "%s:%s->%s:%s" % (recipe, src, recipe, dst), {}))
        for recipe in study.get("recipes", []):
            for cell in study.get("cells", CELLS):
                for name in ["layer-%d" % i for i in range(min(64, g["layers"]))] if cell == "layers" else [cell]:
                    for seed in study["seeds"]:
                        out.append(("attribution", index, "canonical->" + recipe, {"cell": name, "seed": str(seed)}))
    return sorted(out, key=lambda c: (c[0], c[1], c[2].encode(), canonical(c[3])))


def of_this_part(spec, cells):
    part, parts = map(int, spec.get("part", "1/1").split("/"))
    places, out = dict.fromkeys(("attribution", "codec", "move"), 0), []
    for cell in cells:
        number = (list(places).index(cell[0]) + 1) * 1000003 + places[cell[0]]
        places[cell[0]] += 1
        if (number * 2654435761 % (1 << 32) >> 16) % parts == part - 1:
            out.append(cell)
    return out


# ---- sizes -------------------------------------------------------------------------------------


def at_least(n):
    power = 1
    while power < n:
        power += power
    return power


def bytes_of(bits):
    return len(range(0, bits, 8))


def slot_fields(recipe, stream, dim, bits, block):
    """Bytes of each field of a slot; and e, w, the outliers that fit."""
    e = min(dim, at_least(dim / 2))
    w, fit = at_least(e), 0
    fields = {"header": 48, "centers": sum(2 for _ in range(16 * e)), "segments": bytes_of(4 * block), "t": 2 * block,
              "norm": 2 * block, "residual": sum(bytes_of(w * bits) for _ in range(block))}
    if not (recipe == "kv1-shared" or recipe == "published-harness" and stream == "v"):
        fields["basis"] = 2 * e * dim + 2 * dim
    if stream == "k":
        while fit * 100 < 8 * block * w:
            fit += 1
        fields.update(counts=2 * block, entries=4 * fit)
    return fields, e, w, fit


def slot_exists(recipe, stream, dim, bits, block):
    fields, _, w, _ = slot_fields(recipe, stream, min(dim, 1024), bits, block)
    return dim <= 1024 and (recipe != "published-serving" or fields["residual"] == bytes_of(block * w * bits))


def left_alone(recipe, layers):
    if recipe != "published-harness" or layers <= 4:
        return set()
    return {0, 1, layers - 2, layers - 1} | ({7, 14} if layers == 28 else set())


def width(g, stream):
    return g.get("head_dim_v", g["head_dim"]) if stream == "v" else g["head_dim"]


def encode(recipe, params, g, block, bits):
    """Walks every lane: (stored bytes without overflow, blocks)."""
    stream, dim = params["stream"], width(g, params["stream"])
    fields, e, _, _ = slot_fields(recipe, stream, dim, bits, block)
    stored = blocks = 0
    for layer in range(g["layers"]):
        if layer in left_alone(recipe, g["layers"]):
            stored += g["tokens"] * g["kv_heads"] * 2 * dim
            continue
        lanes = [g["tokens"] * g["kv_heads"]] if recipe == "published-harness" else [g["tokens"]] * g["kv_heads"]
        for rows in lanes:
            here, rest = 0, rows
            while rest >= block:
                rest -= block
                here += 1
                stored += sum(fields.values())
                group = {"kv1-shared": 4}.get(recipe, 1 << 60) if "basis" not in fields else 0
                if group and (here - 1) % group == 0:
                    stored += 48 + 2 * e * dim + 2 * dim
            blocks += here
            stored += rest * 2 * dim
    return stored, blocks


# ---- rows --------------------------------------------------------------------------------------


def start(cell):
    check, index, pair_id, params = cell
    src, dst = pair_id.split("->")
    return {"check": check, "pair_id": pair_id, "src": src, "dst": dst, "geometry": index, "params": params,
            "same_image": False, "error_class": None, "frontier_code": None, "frontier_reason": None, "transformations": []}


def nothing(row, verdict, kind, error_class=None):
    """A row of codec or attribution in which nothing was found."""
    proof = dict.fromkeys(KEYS[row["check"]])
    proof["kind"] = kind
    if row["check"] == "codec":
        proof["value_preserving"] = False
    row.update(verdict=verdict, error_class=error_class, native_bytes={"src": None, "dst": None},
               observations=dict.fromkeys(OBSERVED[row["check"]]), proof=proof)
    return row


def refused(row, refused_row):
    reason = "a side does not exist at this geometry"
    if row["check"] == "move":
        return refused_row(row, "X4_GEOMETRY_UNREPRESENTABLE", reason)
    row.update(frontier_code="X4_GEOMETRY_UNREPRESENTABLE", frontier_reason=reason)
    return nothing(row, "REFUSED", "frontier")


def store_row(row, g, spec, refused_row):
    codec, params, recipe = spec["codec"], row["params"], row["dst"]
    block, stream, dim = codec.get("block", 512), params["stream"], width(g, params["stream"])
    bits = int(params.get("bits", {"k": 3, "v": 2}[stream]))
    rows = g["layers"] * g["tokens"] * g["kv_heads"]
    file = next((f for f in codec.get("files", []) if "file:" + f["name"] == params["payload"]), None)
    wanted = rows * (width(g, "k") + width(g, "v")) * ELEMENT[g["element"]]
    exists = slot_exists(recipe, stream, dim, bits, block) if recipe in ENCODERS else dim <= 1024 or recipe != "rotation"
    if not exists or recipe not in ("fp8", "int4-token") and dim > 1024 or file and file["bytes"] != wanted:
        return refused(row, refused_row)
    blocks = overflow = outliers = 0
    if recipe in ENCODERS:
        stored, blocks = encode(recipe, params, g, block, bits)
        fields, _, w, fit = slot_fields(recipe, stream, dim, bits, block)
        if stream == "k" and blocks:
            overflow, outliers = 1, fit + 1 + (blocks - 1) * (fit // 2)
            stored += block * 2 * dim - sum(fields.values())
    else:
        stored = rows * {"fp8": dim, "int4-token": 2 + bytes_of(4 * dim), "rotation": 2 + bytes_of(at_least(dim) * bits)}[recipe]
    measured = [None] * 3 if rows == 0 or params["payload"] == "zeros" else [12345, 67890, 999000]
    key = [row["geometry"], recipe, params]
    made = [digest(name, key) for name in ("codes", "slots", "values") for _ in (0, 1)]
    reference, logits = tokens(row["geometry"], params["payload"]), digest(row["geometry"], params["payload"])
    other = digest("moved", key)
    row.update(verdict="NOT_EXACT", native_bytes={"src": 2 * rows * dim, "dst": stored},
               observations=dict(zip(STORE, (True, True, True, False))))
    row["proof"] = dict(zip(STORE_KEYS, [
        "codec-store-decode", rows, blocks * block if recipe in ENCODERS else rows, blocks, overflow, outliers, 0] + measured + [
            2 * rows * dim * 10 ** 6 // stored if stored else None, False] + made + [reference, reference, other, logits]))
    return row


def move_row(row, g, spec, refused_row, lemmas, proof_keys, observations):
    block, recipe = spec["codec"].get("block", 512), row["src"].split(":")[0]
    sides = [row[side].split(":")[1] for side in ("src", "dst")]
    words = {"head_order_transpose": sides.count("head-major") == 1, "kv_merge": sides[0] == "kv-pools",
             "kv_split": sides[1] == "kv-pools", "page_remap": sides.count("table") == 1}
    row["transformations"] = sorted(w for w in words if words[w])
    streams = (("k", 3), ("v", 2))
    if g["tokens"] < block or not all(slot_exists(recipe, s, width(g, s), bits, block) for s, bits in streams):
        return refused(row, refused_row)
    n = 0
    for _ in range(g["kv_heads"] * (g["tokens"] // block)):
        n += sum(sum(slot_fields(recipe, s, width(g, s), bits, block)[0].values()) for s, bits in streams)
    reference, logits = tokens(row["geometry"], recipe), digest(row["geometry"], recipe)
    row.update(verdict="EXACT_BYTE", native_bytes={"src": n, "dst": n}, observations=dict.fromkeys(observations, True))
    row["proof"] = dict(zip(proof_keys, ("index-permutation-exhaustive", 1, g["layers"], n, n, n, n, True, True, 0, 0, 0, 0, 6, True,
                                         reference, reference, logits, logits, lemmas, None)))
    return row


def share(same, of):
    return int(same / of * 1e6 + 0.5)


def study_row(row, g, spec, refused_row):
    study, params, recipe = spec["attribution"], row["params"], row["dst"]
    block, passages, evaluated = study.get("block", 512), study.get("passages", 4), study.get("evaluated", 128)
    dim = g["head_dim"]
    if (g["layers"] > 64 or g["kv_heads"] > 64 or width(g, "v") != dim or dim % 2 or dim > 1024 or not 1 <= g["tokens"] <= 32768
            or not all(slot_exists(recipe, s, dim, bits, block) for s, bits in (("k", 3), ("v", 2)))):
        return refused(row, refused_row)
    base, base_nll = digest("base", row["geometry"], params["seed"]), 4000000000 + int(params["seed"]) % 1000
    quiet = params["cell"] == "identity"
    change = [0] * passages if quiet else [{"kv": 9000, "k": 28000}.get(params["cell"], -31000) + i for i in range(passages)]
    same = [evaluated - (0 if quiet else i) for i in range(passages)]
    kl = [0 if quiet else 7000 + 3 * i for i in range(passages)]
    mean, top1 = round(sum(change) / passages), share(sum(same), passages * evaluated)
    row.update(verdict="NOT_EXACT", native_bytes={"src": 0, "dst": 0},
               observations=dict(zip(STUDY, (True, True, True, top1 == 10 ** 6))))
    accept = "ACCEPT" if abs(mean) <= 10000 and top1 >= 950000 else "MARGINAL" if abs(mean) <= 30000 and top1 >= 850000 else "REJECT"
    row["proof"] = dict(zip(STUDY_KEYS, (
        "attribution-study", passages, base_nll, base_nll + (0 if quiet else 99), mean, round(sum(kl) / passages), top1, accept,
        0 if quiet else 4321, 0 if quiet else -1, 0, 0,
        [{"ppl_change_ppm": c, "kl_nano": k, "top1_ppm": share(s, evaluated)} for c, k, s in zip(change, kl, same)],
        base, base if quiet else digest("cell", row["geometry"], recipe, params))))
    return row


def rows_of(spec, geometries, maker):
    """maker: the module make_cert, for what rows of moves share with those of pairs."""
    out = []
    for cell in of_this_part(spec, cells_of(spec, geometries)):
        row, g = start(cell), geometries[cell[1]]
        if cell[0] == "codec":
            out.append(store_row(row, g, spec, maker.refused_row))
        elif cell[0] == "attribution":
            out.append(study_row(row, g, spec, maker.refused_row))
        else:
            out.append(move_row(row, g, spec, maker.refused_row, maker.LEMMAS, maker.PROOF_KEYS, maker.OBSERVATIONS))
    return out


SPEC = {"schema": "kvgrid.campaign/v1", "name": "codec", "seed": 3, "pairs": "all-ordered",
        "geometries": [{"layers": 5, "tokens": 90, "kv_heads": 2, "head_dim": 16, "head_dim_v": 12, "element": "bf16"},
                       {"layers": 2, "tokens": 40, "kv_heads": 1, "head_dim": 16, "element": "f16"},
                       {"layers": 1, "tokens": 0, "kv_heads": 1, "head_dim": 8, "element": "f16"}],
        "codec": {"recipes": RECIPES, "payloads": ["gaussian", "zeros"], "block": 16, "moves": ["kv-pools", "table", "pages"]},
        "attribution": {"recipes": ["kv1"], "seeds": [2, 10], "cells": ["layers", "kv", "identity"],
                        "block": 16, "passages": 3, "evaluated": 24}}
SMALL_SPEC = {"schema": "kvgrid.campaign/v1", "name": "codec-small",
              "geometries": [{"layers": 2, "tokens": 9, "kv_heads": 1, "head_dim": 8, "element": "f16"}],
              "codec": {"recipes": ["kv1-shared", "published-serving", "fp8"], "payloads": ["gaussian", "zeros"], "block": 8,
                        "moves": ["pages", "table"]},
              "attribution": {"recipes": ["kv1"], "seeds": [7], "cells": ["identity", "kv", "k"], "block": 8, "passages": 2,
                              "evaluated": 20}}
AXES_SPEC = {"schema": "kvgrid.campaign/v1", "name": "codec-axes", "tail": ["zero", "nan"], "select": ["*"],
             "claims": {"words": ["page_remap"], "frontier_codes": [], "checks": ["attribution", "codec", "move", "codec_agrees"]},
             "geometries": [{"layers": [1, 28], "tokens": 33, "kv_heads": 2, "head_dim": [3, 1026], "head_dim_v": 24, "element": "f32"},
                            {"layers": 2, "tokens": 3, "kv_heads": 1, "head_dim": 4, "element": "f16"},
                            {"layers": 66, "tokens": 5, "kv_heads": 1, "head_dim": 4, "element": "fp8_e4m3"}],
             "codec": {"recipes": ["rotation", "published-harness", "published-serving", "kv1", "fp8"], "streams": ["k"], "block": 4,
                       "bits": [4, 1], "payloads": ["zeros", "file:a.k", "file:A_k-2", "constant"],
                       "moves": ["pages", "head-major", "table"],
                       "files": [{"name": "a.k", "bytes": 2 * 33 * (3 + 24) * 4, "digest": "ab" * 32},
                                 {"name": "A_k-2", "bytes": 0, "digest": "cd" * 32}]},
             "attribution": {"recipes": ["published-serving", "kv1-shared"], "seeds": [9007199254740991, 0],
                             "cells": ["noise", "layers"], "block": 4,
                             "passages": 1, "evaluated": 1}}
