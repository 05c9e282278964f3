#!/usr/bin/env python3
"""An independent maker of sound certificates for the tests of both verifiers.

It derives everything by brute force (every element of every layout is placed by itself), shares no
code with the producer, the C verifier or certs/verify.py, and signs through openssl. What only a run
can measure (tokens, digests, conversion differences) is made up.

    make_cert.py OUT.json [--campaign published|wide|codec] [--seed-hex HEX64]
"""
import argparse
import hashlib
import itertools
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import make_codec  # noqa: E402

SIZE = {"f16": 2, "bf16": 2, "f32": 4, "fp8_e4m3": 1}
TEST_SEED = "11" * 32


def canonical(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def digest(value):
    return hashlib.blake2b(canonical(value), digest_size=32).hexdigest()


# ---- layouts ---------------------------------------------------------------------------------


def layout(name, kv, axes, v_axes=None, **more):
    entry = {"name": name, "engine": "test", "attention": "gqa", "kv": kv, "k_axes": axes.split(),
             "cite": "tests/certs/make_cert.py"}
    if v_axes:
        entry["v_axes"] = v_axes.split()
    entry.update(more)
    return entry


def required_names():
    """The names that kv_cert_names.c demands of checks, controls and known_limits."""
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "..", "..", "certs", "kv_cert_names.c"), encoding="utf-8") as f:
        text = f.read()
    names = {}
    for kind, array in (("checks", "required_checks"), ("controls", "required_controls"), ("known_limits", "required_limits")):
        body = text.split(array + "[] = {")[1].split("};")[0]
        names[kind] = [part for line in body.splitlines() for part in line.split('"')[1:2]]
        if kind == "controls":
            names["guards"] = [part for line in body.splitlines() for part in line.split('"')[3:4]]
    return names


PUBLISHED = [
    layout("vllm-fa", "interleaved", "KV Tb Ti H D", block=16),
    layout("vllm-paged-x", "separate", "Tb H Dg Ti Dx", "Tb H D Ti", block=16, x=4),
    layout("trtllm", "interleaved", "Tb KV H Ti D", block=32),
    layout("sglang", "separate", "T H D"),
    layout("hf-dynamic-cache", "separate", "H T D"),
    layout("llamacpp", "separate", "T H D", "H D T"),
    layout("flashinfer-nhd", "interleaved", "Tb KV Ti H D", block=16),
    layout("lmdeploy-turbomind", "separate", "Tb H Ti D", block=64),
    layout("deepseek-mla", "interleaved", "KV Tb Ti H D", block=16, attention="mla", role="frontier"),
    layout("vllm-tp2", "interleaved", "KV Tb Ti H D", block=16, tp={"size": 2, "rank": 0}, role="frontier"),
    layout("vllm-paged-x16", "separate", "Tb H Dg Ti Dx", "Tb H D Ti", block=16, x=16, role="frontier"),
    layout("vllm-fp8", "interleaved", "KV Tb Ti H D", block=16, element="fp8_e4m3", role="lossy"),
]

WIDE = [
    layout("a-thd", "separate", "T H D"),
    layout("a-thd-again", "separate", "T H D"),
    layout("all-layers", "interleaved", "L Tb Ti H KV D", block=4),
    layout("layers-inside", "interleaved", "Tb L KV H Ti D", block=4),
    layout("tokens-x", "interleaved", "KV Tb Tg H Tx D", block=4, tx=2),
    layout("tokens-xv", "separate", "Tb H Dg Ti Dx", "Tb H Tg D Tx", block=4, tx=2, x_bytes=4),
    layout("x-bytes-8", "separate", "Tb H Dg Ti Dx", "Tb H D Ti", block=4, x_bytes=8),
    layout("padded-page", "interleaved", "Tb KV H Ti D", block=4, page_stride_bytes=4096),
    layout("padded-row", "separate", "T H D", row_lanes=10),
    layout("whole-block", "separate", "Tb H Ti D", block=8),
    layout("head-shard", "separate", "T H D", tp={"size": 2, "rank": 1}),
    layout("copied-heads", "separate", "T H D", tp={"size": 4, "rank": 3}),
    layout("latent", "latent", "T C", attention="mla", tp={"size": 2, "rank": 1}),
    layout("latent-blocks", "latent", "Tb C Ti", attention="mla", block=4, row_lanes=8),
    layout("v-other", "interleaved", "KV Tb H Ti D", "KV Tb H D Ti", block=4),
    layout("kv-late", "interleaved", "Tb H KV Ti D", block=4),
    layout("bf16", "separate", "T H D", element="bf16"),
    layout("x-one", "separate", "Dx T H Dg", x=1),
    layout("one-group", "separate", "Tg Tb H Tx D", "Tb Ti H D", block=4, tx=4),
    layout("mixed-tokens", "separate", "T H D", "Tb Ti H D", block=4),
    layout("tokens-mixed", "separate", "Tb Ti H D", "T H D", block=4),
    layout("block-one", "separate", "Tb Ti H D", block=1),
]


def half(entry, kv):
    return entry["k_axes"] if kv == 0 else entry.get("v_axes", entry["k_axes"])


def element(entry, g):
    return g["element"] if entry.get("element", "same") == "same" else entry["element"]


def lanes_x(entry, g):
    return entry.get("x") or entry.get("x_bytes", 0) // SIZE[element(entry, g)]


def dim(g, kv):
    return g.get("head_dim_v", g["head_dim"]) if kv else g["head_dim"]


def heads(entry, g):
    """(first, count) of the kv heads held, or None."""
    size, rank, count = entry.get("tp", {}).get("size", 1), entry.get("tp", {}).get("rank", 0), g["kv_heads"]
    if entry["kv"] == "latent":
        return 0, count
    if count % size == 0:
        return rank * count // size, count // size
    return (rank * count // size, 1) if size > count and size % count == 0 else None


def why_not(entry, g):
    """Why the layout does not exist at g, or None."""
    if heads(entry, g) is None:
        return "no such shard"
    if entry["kv"] == "interleaved" and dim(g, 0) != dim(g, 1):
        return "one array, two widths %d and %d" % (dim(g, 0), dim(g, 1))
    if entry["kv"] == "latent" and (g["kv_heads"] != 1 or dim(g, 0) != dim(g, 1)):
        return "a latent row has one head and one width"
    size = SIZE[element(entry, g)]
    if entry.get("x_bytes", 0) % size or entry.get("page_stride_bytes", 0) % size:
        return "bytes that are no multiple of the element"
    for kv in (0,) if entry["kv"] == "latent" else (0, 1):
        if "Dx" in half(entry, kv) and dim(g, kv) % lanes_x(entry, g):
            return "x %d does not divide %d" % (lanes_x(entry, g), dim(g, kv))
        if entry.get("row_lanes", dim(g, kv)) < dim(g, kv):
            return "rows are wider than row_lanes"
        sizes = shape(entry, g, kv, 1)
        if "page_stride_bytes" in entry and "Tb" in half(entry, kv):
            payload = size
            for n in sizes[half(entry, kv).index("Tb") + 1:]:
                payload *= n
            if payload > entry["page_stride_bytes"]:
                return "a page is larger than its stride"
    return None


def shape(entry, g, kv, layers):
    block, tx = entry.get("block", 1), entry.get("tx", 1)
    sizes = {"L": layers, "KV": 2, "T": g["tokens"], "Tb": -(-g["tokens"] // block), "Ti": block, "Tg": block // tx,
             "Tx": tx, "H": heads(entry, g)[1], "D": entry.get("row_lanes", dim(g, kv)),
             "C": entry.get("row_lanes", dim(g, kv))}
    if lanes_x(entry, g):
        sizes.update(Dg=dim(g, kv) // lanes_x(entry, g), Dx=lanes_x(entry, g))
    return [sizes[a] for a in half(entry, kv)]


def image(entry, g, layers):
    """(native positions, place of every element in canonical order) of a unit, one element at a time."""
    block, tx, x = entry.get("block", 1), entry.get("tx", 1), lanes_x(entry, g) or 1
    has_l = "L" in entry["k_axes"]
    arrays, strides = [], []
    for kv in (0,) if entry["kv"] == "latent" else (0, 1):
        span, stride = 1, {}
        for axis, n in reversed(list(zip(half(entry, kv), shape(entry, g, kv, layers if has_l else 1)))):
            if axis == "Tb" and "page_stride_bytes" in entry:
                span = entry["page_stride_bytes"] // SIZE[element(entry, g)]
            stride[axis] = span
            span *= n
        arrays.append(span)
        strides.append(stride)
    one = sum(arrays) if entry["kv"] == "separate" else arrays[0]
    places = []
    for l, kv in itertools.product(range(layers), range(len(strides))):
        start = (arrays[0] if kv and entry["kv"] == "separate" else 0) + (0 if has_l else l * one)
        for t, h, d in itertools.product(range(g["tokens"]), range(1 if entry["kv"] == "latent" else heads(entry, g)[1]),
                                         range(dim(g, kv))):
            digits = {"L": l, "KV": kv, "T": t, "Tb": t // block, "Ti": t % block, "Tg": t % block // tx,
                      "Tx": t % block % tx, "H": h, "D": d, "C": d, "Dg": d // x, "Dx": d % x}
            places.append(start + sum(digits[a] * s for a, s in strides[kv].items()))
    assert len(set(places)) == len(places)
    return one * (1 if has_l else layers), places


# ---- words and frontier codes: docs/words.md ---------------------------------------------------


def without_l(axes):
    return [a for a in axes if a != "L"]


def joined(axes):
    return " ".join(axes).replace("Tb Ti", "T").split()


def normal(axes):
    axes = without_l(axes)
    return [a for a in joined(axes[1:] if axes[0] == "KV" else axes) if a != "KV"]


def head_first(axes):
    return "H" in axes and axes.index("H") < min(axes.index(t) for t in ("T", "Tb") if t in axes)


def before(axes, stop):
    return joined(axes[:axes.index(stop)])


def v_turned(axes):
    return "T" in axes and "D" in axes and axes.index("D") < axes.index("T")


def halves(entry):
    return [half(entry, 0), [] if entry["kv"] == "latent" else half(entry, 1)]


def has(entry, axis):
    return any(axis in axes for axes in halves(entry))


def descriptor(entry, g):
    return [entry["attention"], entry["kv"], halves(entry), entry.get("block", 0), lanes_x(entry, g), entry.get("tx", 0),
            entry.get("page_stride_bytes", 0), entry.get("row_lanes", 0), element(entry, g),
            entry.get("tp", {"size": 1, "rank": 0})]


def frontier(a, b, g):
    if a["attention"] != b["attention"] or (a["kv"] == "latent") != (b["kv"] == "latent"):
        return "X1_LATENT_KV", "one side keeps a latent"
    for side in (a, b):
        if heads(side, g) is None:
            return "X4_GEOMETRY_UNREPRESENTABLE", side["name"] + ": no such shard"
    if heads(a, g) != heads(b, g):
        return "X2_HEAD_GATHER", "heads %s and %s" % (heads(a, g), heads(b, g))
    for side in (a, b):
        if why_not(side, g):
            return "X4_GEOMETRY_UNREPRESENTABLE", side["name"] + ": " + why_not(side, g)
    return None, None


def words(a, b, g):
    code = frontier(a, b, g)[0]
    if code in ("X1_LATENT_KV", "X2_HEAD_GATHER") or heads(a, g) is None or heads(b, g) is None:
        return []
    if descriptor(a, g) == descriptor(b, g):
        return ["view_reinterpret"]
    (ka, va), (kb, vb) = halves(a), halves(b)
    blocks = [[e.get("block", 0) if "Tb" in axes else 0 for axes in halves(e)] for e in (a, b)]
    latent = a["kv"] == "latent"
    turns_k = head_first(ka) != head_first(kb)
    turns_v = not latent and head_first(va) != head_first(vb)
    v_dim = v_turned(va) != v_turned(vb)
    same_k = normal(ka) == normal(kb)
    both = lambda axis: has(a, axis) and has(b, axis)
    only = lambda entry, other, axis: has(entry, axis) and not has(other, axis)
    rules = {
        "requantize": element(a, g) != element(b, g),
        "reblock": blocks[0] != blocks[1],
        "kv_split": (a["kv"], b["kv"]) == ("interleaved", "separate"),
        "kv_merge": (a["kv"], b["kv"]) == ("separate", "interleaved"),
        "head_dim_vectorize": only(b, a, "Dx"), "head_dim_devectorize": only(a, b, "Dx"),
        "head_dim_revectorize": both("Dx") and lanes_x(a, g) != lanes_x(b, g),
        "v_dim_transpose": v_dim,
        "head_order_transpose": turns_k or turns_v,
        "axis_permute": not turns_k and not same_k,
        "v_axis_permute": not latent and same_k and not turns_v and not v_dim and normal(va) != normal(vb),
        "kv_move": a["kv"] == b["kv"] == "interleaved" and same_k
                   and before(without_l(ka), "KV") != before(without_l(kb), "KV"),
        "layer_merge": only(b, a, "L"), "layer_split": only(a, b, "L"),
        "layer_move": both("L") and any(before(x, "L") != before(y, "L") for x, y in ((ka, kb), (va, vb)) if x),
        "token_vectorize": only(b, a, "Tx"), "token_devectorize": only(a, b, "Tx"),
        "token_revectorize": both("Tx") and a["tx"] != b["tx"],
        "page_pad": any(a.get(k, 0) != b.get(k, 0) for k in ("page_stride_bytes", "row_lanes")),
        "head_replicate": b.get("tp", {}).get("size", 1) > g["kv_heads"],
        "head_dedupe": a.get("tp", {}).get("size", 1) > g["kv_heads"],
    }
    return sorted(w for w, holds in rules.items() if holds)


# ---- rows ------------------------------------------------------------------------------------

LEMMAS = ["each_element_once", "index_forward_of_inverse", "index_inverse_of_forward", "odometer_is_successor",
          "padding_is_the_complement"]
PROOF_KEYS = ("kind unit_layers layers positions_checked positions_total source_positions_checked source_positions_total "
              "source_bijective dest_bijective source_padding_positions dest_padding_positions unread_padding_positions "
              "roundtrip_diff_positions gather_payloads gather_agrees decoded_tokens reference_tokens logits_digest "
              "reference_logits_digest lemmas detail").split()
OBSERVATIONS = ("forward_reproduces_target roundtrip_byte_identical roundtrip_diff_is_exactly_unread_padding "
                "tokens_identical").split()


def refused_row(row, code, reason):
    proof = dict.fromkeys(PROOF_KEYS)
    proof.update(kind="frontier", lemmas=[])
    row.update(verdict="REFUSED", frontier_code=code, frontier_reason=reason, native_bytes={"src": None, "dst": None},
               observations=dict.fromkeys(OBSERVATIONS), proof=proof)
    return row


def verdict_of(seen, converts):
    forward, identical, padding, tokens = (seen[o] for o in OBSERVATIONS)
    if converts:
        return "NOT_EXACT"
    if forward and identical and tokens:
        return "EXACT_BYTE"
    return "EXACT_TOKEN" if forward and padding and tokens else "NOT_EXACT"


class Maker:
    def __init__(self):
        self.images, self.every_value = {}, False

    def image(self, entry, g, layers):
        key = canonical([entry, g, layers])
        if key not in self.images:
            self.images[key] = image(entry, g, layers)
        return self.images[key]

    def ran_row(self, row, a, b, g, tail):
        layers = g["layers"] if has(a, "L") or has(b, "L") else 1
        units = g["layers"] // layers
        (n_a, places_a), (n_b, places_b) = self.image(a, g, layers), self.image(b, g, layers)
        el_a, el_b = element(a, g), element(b, g)
        unread = (n_a - len(places_a)) * units
        diff, converts = (0 if tail == "zero" else unread), el_a != el_b and g["tokens"] > 0
        forward = tokens = True
        if converts:  # made up, in the manner of the published rows
            forward, tokens = el_a == g["element"], False
            diff = min(n_a * units, diff + (7 if forward else 0))
        reference = [x % 64 for x in hashlib.blake2b(canonical(g), digest_size=8).digest()]
        decoded = reference if tokens else [(reference[0] + 1) % 64] + reference[1:]
        logits, other = digest(["logits", g]), digest(["other", g])
        seen = dict(zip(OBSERVATIONS, (forward, diff == 0, diff == (0 if tail == "zero" else unread), tokens)))
        detail = None
        if el_a != el_b:
            kept = not converts or el_a == "fp8_e4m3" or el_b == "f32"
            detail = {"conversion": el_a + "->" + el_b, "values_preserved": kept,
                      "worst_relative_error_ppm": 0 if kept else 62500}
        row.update(same_image=el_a == el_b and n_a == n_b and places_a == places_b, verdict=verdict_of(seen, converts),
                   native_bytes={"src": n_a * SIZE[el_a], "dst": n_b * SIZE[el_b]}, observations=seen)
        row["proof"] = dict(zip(PROOF_KEYS, (
            "index-permutation-exhaustive", layers, g["layers"], n_b, n_b, n_a, n_a, True, True, n_a - len(places_a),
            n_b - len(places_b), unread, diff, 1 << 8 * SIZE[g["element"]] if self.every_value else 6, True, decoded, reference, logits if tokens else other, logits, LEMMAS,
            detail)))
        return row

    def row(self, a, b, index, g, tail, params):
        code, reason = frontier(a, b, g)
        row = {"check": "pair", "pair_id": a["name"] + "->" + b["name"], "src": a["name"], "dst": b["name"],
               "geometry": index, "params": params, "same_image": False, "error_class": None, "frontier_code": None,
               "frontier_reason": None, "transformations": words(a, b, g)}
        return refused_row(row, code, reason) if code else self.ran_row(row, a, b, g, tail)


# ---- the document ----------------------------------------------------------------------------


def expand(spec):
    out = []
    for entry in spec["geometries"]:
        keys = [k for k in ("layers", "tokens", "kv_heads", "head_dim", "head_dim_v", "element") if k in entry]
        lists = [entry[k] if isinstance(entry[k], list) else [entry[k]] for k in keys]
        for combination in itertools.product(*lists):
            g = dict(zip(keys, combination))
            if g.get("head_dim_v") == g["head_dim"]:
                del g["head_dim_v"]
            out.append(g)
    return out


def pairs_of(spec, layouts):
    if "pairs" not in spec:
        return []
    if spec["pairs"] == "all-ordered":
        return [(a, b) for a in layouts for b in layouts if a is not b]
    if isinstance(spec["pairs"], list):
        by_name = {e["name"]: e for e in layouts}
        return [(by_name[a], by_name[b]) for a, b in spec["pairs"]]
    good = [e for e in layouts if e.get("role", "lossless") == "lossless"]
    anchor = next(e for e in layouts if e["name"] == "vllm-fa")
    out = [(a, b) for a in good for b in good if a is not b]
    for e in layouts:
        if e not in good and e is not anchor:
            out += [(e, anchor), (anchor, e)]
    return out


def part_of(spec, layouts, tails):
    """A function (geometry, src, dst, tail) -> bool: whether a cell is of this part of the campaign."""
    if "part" not in spec:
        return lambda *cell: True
    part, parts = map(int, spec["part"].split("/"))
    place = {e["name"]: i for i, e in enumerate(layouts)}

    def belongs(geometry, src, dst, tail):
        number = geometry * len(layouts) ** 2 + place[src["name"]] * len(layouts) + place[dst["name"]]
        mixed = (number * len(tails) + sorted(tails).index(tail)) * 2654435761 % (1 << 32)
        return (mixed >> 16) % parts == part - 1
    return belongs


def is_view(row):
    return row["transformations"] == ["view_reinterpret"] and row["verdict"] not in ("REFUSED", "UNPROVEN", "FAILED")


def boundary(doc, ran, verdicts):
    """The lines of docs/certificate.md, section Boundary."""
    stored, studied = (sum(r["check"] == check for r in ran) for check in ("codec", "attribution"))
    ran = [r for r in ran if r["check"] not in ("codec", "attribution")]
    decoded = sum(r["observations"].get("tokens_identical") is True for r in ran)
    codec = make_codec.has_codec(doc["campaign"]["spec"])
    return {
        "holds": ["The shapes of %d declared layouts, each with its citation." % len(doc["catalogue"]),
                  "The canonical tensor [L][KV][T][H][D] as the common meaning of all layouts.",
                  "Every native position of both sides was checked in %d rows: %d destination and %d source positions."
                  % (len(ran), doc["observed"]["positions_checked"], doc["observed"]["source_positions_checked"]),
                  "In %d rows tokens and logits equal those of a reference that this run computed itself through the same "
                  "decode." % decoded] + [make_codec.HOLDS % (stored, studied)] * codec,
        "does_not_hold": ["That any engine accepts these bytes.",
                          "Any geometry other than the %d listed." % len(doc["geometries"]),
                          "Throughput, latency, memory or cost of any engine.",
                          "The counts are no statement about vendors."] + [make_codec.DOES_NOT_HOLD] * codec,
        "note": "The %d refused rows are as much the result as the %d exact ones."
                % (verdicts["REFUSED"], verdicts["EXACT_BYTE"] + verdicts["EXACT_TOKEN"])}


def observe(doc):
    """Sets `vocabulary`, `observed`, `floors` and `boundary` from the rows."""
    rows, counted = doc["rows"], [r for r in doc["rows"] if not is_view(r)]
    found = {w for r in rows for w in r["transformations"]}
    codes = {r["frontier_code"] for r in rows} - {None}
    verdicts = {v: sum(r["verdict"] == v for r in counted)
                for v in ("EXACT_BYTE", "EXACT_TOKEN", "NOT_EXACT", "REFUSED", "UNPROVEN", "FAILED")}
    total = lambda key: sum((r.get("proof") or {}).get(key) or 0 for r in counted)
    ran = [r for r in rows if r["verdict"] not in ("REFUSED", "UNPROVEN", "FAILED")]
    observed = {"rows": len(rows), "verdicts": verdicts, "positions_checked": total("positions_checked"),
                "source_positions_checked": total("source_positions_checked"), "view_rows": len(rows) - len(counted),
                "same_image_rows": sum(r["same_image"] is True for r in rows),
                "empty_rows": sum(doc["geometries"][r["geometry"]]["tokens"] == 0 for r in ran),
                "words": len(found), "frontier_codes": len(codes), "checks": len(doc["checks"]),
                "controls": len(doc["controls"]), "known_limits": len(doc["known_limits"])}
    claims = None if "part" in doc["campaign"]["spec"] else doc["campaign"]["spec"].get("claims")
    doc["vocabulary"] = sorted(set(claims.get("words", []) + claims.get("frontier_codes", [])) if claims else found | codes)
    doc["observed"] = observed
    doc["boundary"] = boundary(doc, ran, verdicts)
    doc["floors"] = {k: verdicts[k.upper()] for k in ("exact_byte", "exact_token", "not_exact", "refused")}
    doc["floors"].update({k: observed[k] for k in ("positions_checked", "source_positions_checked", "words",
                                                   "frontier_codes", "checks", "controls", "known_limits")})
    return doc


TAIL_BITS = {"stale": {"f16": ("5640", "3555"), "bf16": ("42c8", "3eab"), "f32": ("42c80000", "3eaaaaab"),
                       "fp8_e4m3": ("6c", "2b")},
             "zero": {e: ("0" * 2 * n, "0" * 2 * n) for e, n in SIZE.items()},
             "nan": {"f16": ("7e00", "3555"), "bf16": ("7fc0", "3eab"), "f32": ("7fc00000", "3eaaaaab"),
                     "fp8_e4m3": ("7f", "2b")}}


DEVICE = {"rank": 0, "host": "h", "device": "cpu", "name": "made up"}


def make_document(layouts, spec):
    layouts = sorted(layouts, key=lambda e: e["name"])
    tails = spec.get("tail", "stale") if isinstance(spec.get("tail"), list) else [spec.get("tail", "stale")]
    catalogue = [dict(e, digest=digest(e)) for e in layouts]
    geometries, maker = expand(spec), Maker()
    bindings = []
    for i, g in enumerate(geometries):
        for e in layouts:
            reason, own = why_not(e, g), g["layers"] if has(e, "L") else 1
            shapes = identity = None
            if not reason:
                n, places = maker.image(e, g, own)
                shapes = {"k": shape(e, g, 0, own), "v": [] if e["kv"] == "latent" else shape(e, g, 1, own)}
                identity = element(e, g) == g["element"] and n == len(places) and places == list(range(n))
            bindings.append({"layout": e["name"], "geometry": i, "exists": not reason, "reason": reason,
                             "native_shapes": shapes, "is_identity": bool(identity)})
    pairs = sorted(pairs_of(spec, layouts), key=lambda p: (p[0]["name"] + "->" + p[1]["name"]).encode())
    belongs = part_of(spec, layouts, tails)
    maker.every_value = spec.get("values") == "exhaustive"
    rows = make_codec.rows_of(spec, geometries, sys.modules[__name__])
    rows += [maker.row(a, b, i, g, tail, {"tail": tail} if len(tails) > 1 else {})
            for i, g in enumerate(geometries) for a, b in pairs for tail in sorted(tails) if belongs(i, a, b, tail)]
    seed, names = str(spec.get("seed", 1)), required_names()
    every = spec.get("values") == "exhaustive"
    doc = {
        "schema": "kvgrid.certificate/v1",
        "campaign": {"name": spec["name"], "spec": spec, "digest": digest(
            {"layouts": {e["name"]: e["digest"] for e in catalogue}, "spec": spec})},
        "method": {"payloads": max(1 << 8 * SIZE[g["element"]] for g in geometries) if every else 6,
                   "payload_kinds": ["every_bit_pattern"] if every else ["p%d" % i for i in range(6)],
                   "values": spec.get("values", "payloads"),
                   "tail": spec.get("tail", "stale"), "decode_steps": 8, "vocabulary": 64, "weight_seed": seed,
                   "value_seed": seed, "reproduce": "kvgrid run " + spec["name"] + ".json",
                   "tail_bits": {t: {e: {"stale": s, "fill": f} for e, (s, f) in TAIL_BITS[t].items()} for t in tails}},
        "catalogue": catalogue, "geometries": geometries, "bindings": bindings, "rows": rows,
        "boundary": {},
        "controls": [{"name": n, "expected_guard": g, "actual_guard": g, "passed": True, "detail": "made up"}
                     for n, g in zip(names["controls"], names["guards"])],
        "checks": [{"name": n, "passed": True, "detail": ""} for n in names["checks"] + ["codec_agrees"] * make_codec.has_codec(spec)],
        "known_limits": [{"name": n, "text": "é", "demonstrated": True} for n in names["known_limits"]],
        "run": {"source": {"commit": "0" * 40, "dirty": False, "flags": "Release"}, "ranks": 1, "devices": [DEVICE],
                "transports": [], "versions": {"kvgrid": "0"}, "failures": [], "started": "2026-01-01T00:00:00Z",
                "elapsed_ms": 1},
    }
    return observe(doc)


SPEC = {"schema": "kvgrid.campaign/v1", "name": "published", "pairs": "published", "seed": 1, "tail": "stale",
        "values": "payloads",
        "geometries": [{"layers": 3, "tokens": 40, "kv_heads": 2, "head_dim": 8, "element": "f16"}]}
WIDE_SPEC = {"schema": "kvgrid.campaign/v1", "name": "wide", "pairs": "all-ordered", "select": ["*"],
             "seed": "18446744073709551615", "tail": ["stale", "zero", "nan"],
             "claims": {"words": ["reblock", "kv_move"], "frontier_codes": ["X2_HEAD_GATHER"], "checks": ["pair"]},
             "geometries": [{"layers": 2, "tokens": [0, 1, 3, 4, 5, 8], "kv_heads": [1, 2, 3], "head_dim": 8,
                             "element": ["f16", "fp8_e4m3"]},
                            {"layers": 1, "tokens": 9, "kv_heads": 4, "head_dim": 6, "head_dim_v": 4, "element": "f32"}]}
SMALL_SPEC = dict(WIDE_SPEC, name="wide-small", tail="nan", geometries=[
    {"layers": 2, "tokens": [0, 5], "kv_heads": [1, 2], "head_dim": 8, "element": "f16"}])
CAMPAIGNS = {"published": (PUBLISHED, SPEC), "wide": (WIDE, WIDE_SPEC), "wide-small": (WIDE, SMALL_SPEC),
             "codec": (PUBLISHED[3:5], make_codec.SPEC), "codec-axes": (PUBLISHED[3:4], make_codec.AXES_SPEC),
             "codec-small": (PUBLISHED[3:4], make_codec.SMALL_SPEC)}


def random_layout(name, rng):
    """Any declaration that docs/layouts.md allows, with small sizes."""
    kv = rng.choice(("separate", "interleaved", "interleaved", "latent"))
    entry = {"name": name, "engine": "random", "cite": "random", "kv": kv, "attention": "mla" if kv == "latent" else "gqa"}
    if rng.random() < 0.1:
        entry["attention"] = "mla"

    def one_list():
        axes = rng.choice((["T"], ["Tb", "Ti"], ["Tb", "Ti"], ["Tb", "Tg", "Tx"]))
        if kv == "latent":
            return axes + ["C"]
        return axes + ["H"] + rng.choice((["D"], ["D"], ["Dg", "Dx"]))

    k = one_list()
    v = list(k) if kv == "interleaved" or rng.random() < 0.5 else one_list()
    rng.shuffle(k)
    v = list(k) if rng.random() < 0.4 and set(k) == set(v) else rng.sample(v, len(v))
    if kv == "interleaved":
        at = rng.randrange(len(k) + 1)
        k, rest = k[:at] + ["KV"] + k[at:], [a for a in v if a not in k[:at]]
        v = k[:at] + ["KV"] + rest
    if rng.random() < 0.4:
        at = rng.randrange(len(k) + 1)
        k.insert(at, "L")
        if kv == "interleaved":
            if at <= k.index("KV"):
                v.insert(at, "L")
            else:
                v.insert(rng.randrange(v.index("KV") + 1, len(v) + 1), "L")
        else:
            v.insert(rng.randrange(len(v) + 1), "L")
    entry["k_axes"] = k
    if kv != "latent" and (v != k or rng.random() < 0.5):
        entry["v_axes"] = v
    both = set(k) if kv == "latent" else set(k) | set(v)
    if "Tb" in both:
        entry["block"] = rng.choice((1, 2, 4, 4, 6))
    if "Tx" in both:
        entry["tx"] = rng.choice([n for n in (1, 2, 4, 6) if entry["block"] % n == 0])
    if "Dx" in both:
        entry.update(rng.choice(({"x": 1}, {"x": 2}, {"x": 4}, {"x": 3}, {"x_bytes": 4}, {"x_bytes": 2})))
    if rng.random() < 0.15 and not any("Dx" in axes for axes in (k, [] if kv == "latent" else v)):
        entry["row_lanes"] = rng.choice((3, 4, 5, 8))
    pages = kv != "interleaved" or "Tb" not in both or set(k[:k.index("Tb")]) == set(v[:v.index("Tb")])
    if "Tb" in both and pages and rng.random() < 0.2:
        entry["page_stride_bytes"] = rng.choice((64, 200, 512, 4096))
    if rng.random() < 0.3:
        size = rng.choice((1, 2, 3, 4))
        entry["tp"] = {"size": size, "rank": rng.randrange(size)}
    if rng.random() < 0.2:
        entry["element"] = rng.choice(("same", "f16", "f32", "fp8_e4m3"))
    return entry


def random_campaign(rng):
    layouts = [random_layout("r%d" % i, rng) for i in range(7)]
    twin = dict(rng.choice(layouts), name="twin")
    spec = {"schema": "kvgrid.campaign/v1", "name": "random", "pairs": "all-ordered", "tail": rng.choice(("stale", "zero", "nan")),
            "geometries": [{"layers": rng.choice((1, 2, 3)), "tokens": [0, 1, rng.choice((4, 5, 6, 7, 13))],
                            "kv_heads": [1, 2], "head_dim": 4, "element": rng.choice(("f16", "bf16", "f32", "fp8_e4m3"))},
                           {"layers": 2, "tokens": 3, "kv_heads": rng.choice((1, 2, 4)), "head_dim": 4, "head_dim_v": 2,
                            "element": "f16"}]}
    if rng.random() < 0.3:
        parts = rng.choice((1, 2, 3, 7))
        spec["part"] = "%d/%d" % (rng.randrange(parts) + 1, parts)
    return layouts + [twin], spec


# ---- signing ---------------------------------------------------------------------------------


def openssl(*args, data=None):
    return subprocess.run(("openssl",) + args, input=data, stdout=subprocess.PIPE, check=True).stdout


class Signer:
    """Ed25519 through openssl, from a 32-byte seed."""

    def __init__(self, seed_hex=TEST_SEED):
        self.der = bytes.fromhex("302e020100300506032b657004220420" + seed_hex)
        self.public = openssl("pkey", "-inform", "DER", "-pubout", "-outform", "DER", data=self.der)[-32:]
        self.key_id = hashlib.blake2b(self.public, digest_size=32).hexdigest()[:16]

    def sign(self, message):
        with tempfile.TemporaryDirectory() as folder:
            key, text = os.path.join(folder, "key"), os.path.join(folder, "text")
            for path, content in ((key, self.der), (text, message)):
                with open(path, "wb") as f:
                    f.write(content)
            return openssl("pkeyutl", "-sign", "-inkey", key, "-keyform", "DER", "-rawin", "-in", text)

    def seal(self, doc):
        """The finished document's bytes."""
        doc = {k: v for k, v in doc.items() if k not in ("body_digest", "signature")}
        doc["body_digest"] = digest({k: v for k, v in doc.items() if k != "run"})
        doc["signature"] = {"alg": "ed25519", "key_id": self.key_id, "public_key": self.public.hex(),
                            "sig": self.sign(canonical(doc)).hex()}
        return canonical(doc)

    def trust_line(self):
        return "ed25519 %s %s\n" % (self.key_id, self.public.hex())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out")
    parser.add_argument("--campaign", choices=sorted(CAMPAIGNS), default="published")
    parser.add_argument("--seed-hex", default=TEST_SEED)
    args = parser.parse_args()
    signer = Signer(args.seed_hex)
    with open(args.out, "wb") as f:
        f.write(signer.seal(make_document(*CAMPAIGNS[args.campaign])))
    with open(args.out + ".pub", "w") as f:
        f.write(signer.trust_line())


if __name__ == "__main__":
    sys.exit(main())
