"""An independent statement of what the grid must find.

Reads declared layouts itself (docs/layouts.md) and makes native images the slow, plain way: number
the elements of the canonical tensor, pad, reshape and transpose it over the declared axes with
numpy. Everything else follows by looking at those images. It shares no code, no formula and no
intermediate result with kvgrid: no strides, no index algebra.

    oracle.py self                                  check the oracle itself, on offsets worked out by hand
    oracle.py check CERT --layouts PATH...          compare every row of a certificate
    oracle.py sweep --kvgrid BIN [--all] [--ranks N] [--mpirun 'CMD']
                                                    make campaigns, run them with the binary, compare

Exit 0: agrees. 1: does not (each difference is a line). 2: usage.
"""
import argparse
import functools
import itertools
import json
import math
import os
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np

ELEMENT_BYTES = {"f16": 2, "bf16": 2, "f32": 4, "fp8_e4m3": 1}
PAD = 0  # the number that stands for padding in an image of element numbers
ROOT = Path(__file__).resolve().parents[2]


class Absent(Exception):
    """The layout does not exist at the geometry. kind: "shard" or "shape"."""

    def __init__(self, kind, text):
        super().__init__(text)
        self.kind = kind


# ---- layouts and geometries ---------------------------------------------------------------------


def load_layouts(paths):
    """name -> layout object with the defaults of docs/layouts.md filled in."""
    files = []
    for path in map(Path, paths):
        files += sorted(path.glob("*.json")) if path.is_dir() else [path]
    out = {}
    for file in files:
        found = json.loads(file.read_text())
        for raw in found if isinstance(found, list) else [found]:
            lay = {"element": "same", "tp": {"size": 1, "rank": 0}, "role": "lossless", "block": None, "x": None,
                   "x_bytes": None, "tx": None, "row_lanes": None, "page_stride_bytes": None, "pages": "contiguous", **raw}
            lay.setdefault("v_axes", lay["k_axes"])
            assert lay["name"] not in out, lay["name"]
            out[lay["name"]] = lay
    return out


def element_of(lay, geo):
    return geo["element"] if lay["element"] == "same" else lay["element"]


def lanes_of(lay, geo):
    """x: lanes in Dx, None without."""
    if lay["x_bytes"] is None:
        return lay["x"]
    size = ELEMENT_BYTES[element_of(lay, geo)]
    if lay["x_bytes"] % size:
        raise Absent("shape", "x_bytes is no multiple of the element size")
    return lay["x_bytes"] // size


def heads_of(lay, geo):
    """The kv heads that the shard holds, as a list."""
    size, rank, heads = lay["tp"]["size"], lay["tp"]["rank"], geo["kv_heads"]
    if heads % size == 0:
        return list(range(rank * heads // size, (rank + 1) * heads // size))
    if size > heads and size % heads == 0:
        return [rank * heads // size]
    raise Absent("shard", f"{heads} heads over {size} ranks")


# ---- native images of element numbers -----------------------------------------------------------


def canonical_numbers(geo, unit_layers):
    """K and V canonical tensors [L][T][H][D] of one unit, elements numbered from 1 in the order
    [L][KV][T][H][D]."""
    tokens, heads = geo["tokens"], geo["kv_heads"]
    width_k, width_v = geo["head_dim"], geo.get("head_dim_v", geo["head_dim"])
    per_k, per_v = tokens * heads * width_k, tokens * heads * width_v
    layer = np.arange(unit_layers, dtype=np.int64)[:, None] * (per_k + per_v)
    k = layer + 1 + np.arange(per_k, dtype=np.int64)[None, :]
    v = layer + 1 + per_k + np.arange(per_v, dtype=np.int64)[None, :]
    return k.reshape(unit_layers, tokens, heads, width_k), v.reshape(unit_layers, tokens, heads, width_v)


def split_tokens(arr, axes, lay, at):
    """Splits axis `at` (tokens) of arr as the layout declares; returns arr and the new axis names."""
    if "T" in axes:
        return arr, ["T"]
    block = lay["block"]
    blocks = math.ceil(arr.shape[at] / block)
    pad = [(0, 0)] * arr.ndim
    pad[at] = (0, blocks * block - arr.shape[at])
    arr = np.pad(arr, pad, constant_values=PAD)
    inner, names = [block], ["Ti"]
    if "Tx" in axes:
        inner, names = [block // lay["tx"], lay["tx"]], ["Tg", "Tx"]
    return arr.reshape(arr.shape[:at] + tuple([blocks] + inner) + arr.shape[at + 1:]), ["Tb"] + names


def split_lanes(arr, axes, lay, geo):
    """Splits the last axis (head dimension)."""
    width = arr.shape[-1]
    if "Dx" in axes:
        x = lanes_of(lay, geo)
        if width % x:
            raise Absent("shape", f"x {x} does not divide {width}")
        return arr.reshape(arr.shape[:-1] + (width // x, x)), ["Dg", "Dx"]
    if lay["row_lanes"]:
        if lay["row_lanes"] < width:
            raise Absent("shape", f"{lay['row_lanes']} lanes for {width}")
        arr = np.pad(arr, [(0, 0)] * (arr.ndim - 1) + [(0, lay["row_lanes"] - width)], constant_values=PAD)
    return arr, ["D"]


def arrange(arr, axes, lay, geo):
    """[L][T][H][D] -> the array over `axes` (KV left out)."""
    axes = [a for a in axes if a != "KV"]
    arr, lane_names = split_lanes(arr, axes, lay, geo)
    arr, token_names = split_tokens(arr, axes, lay, 1)
    names = ["L"] + token_names + ["H"] + lane_names
    if "L" not in axes:  # a unit of several layers: the arrays of the layers, one after the other
        axes = ["L"] + axes
    assert sorted(names) == sorted(axes), (names, axes)
    return np.transpose(arr, [names.index(a) for a in axes]), axes


def stretch_pages(arr, axes, lay, geo):
    """Pads what stands after Tb to the page stride; an array without Tb has no pages."""
    if not lay["page_stride_bytes"] or "Tb" not in axes:
        return arr
    size = ELEMENT_BYTES[element_of(lay, geo)]
    at = axes.index("Tb") + 1
    page = math.prod(arr.shape[at:])
    if lay["page_stride_bytes"] % size or lay["page_stride_bytes"] // size < page:
        raise Absent("shape", "page stride")
    flat = arr.reshape(arr.shape[:at] + (page,))
    return np.pad(flat, [(0, 0)] * at + [(0, lay["page_stride_bytes"] // size - page)], constant_values=PAD)


def image_of(lay, geo, unit_layers):
    """The native image of one unit as a flat array of element numbers, PAD where nothing is."""
    heads = heads_of(lay, geo)
    width_k, width_v = geo["head_dim"], geo.get("head_dim_v", geo["head_dim"])
    if lay["kv"] == "latent":
        if geo["kv_heads"] != 1 or width_k != width_v:
            raise Absent("shape", "latent rows")
        k, _ = canonical_numbers({**geo, "kv_heads": 1}, unit_layers)
        arr, axes = arrange(k, ["D" if a == "C" else "H" if a == "H" else a for a in lay["k_axes"]] + ["H"], lay, geo)
        return stretch_pages(arr, axes, lay, geo).ravel()
    if lay["kv"] == "interleaved" and width_k != width_v:
        raise Absent("shape", f"one array for widths {width_k} and {width_v}")
    k, v = (a[:, :, heads, :] for a in canonical_numbers(geo, unit_layers))
    k, k_axes = arrange(k, lay["k_axes"], lay, geo)
    v, v_axes = arrange(v, lay["v_axes"], lay, geo)
    if lay["kv"] == "separate":
        k, v = stretch_pages(k, k_axes, lay, geo), stretch_pages(v, v_axes, lay, geo)
        return per_layer([k, v], "L" not in lay["k_axes"])
    at = lay["k_axes"].index("KV") + (0 if "L" in lay["k_axes"] else 1)
    assert k.shape[:at] == v.shape[:at]
    if "Tb" in k_axes[at:]:  # the pages lie inside K and inside V
        k, v = stretch_pages(k, k_axes, lay, geo), stretch_pages(v, v_axes, lay, geo)
    head = k.shape[:at]
    rest = math.prod(k.shape[at:])
    both = np.stack([k.reshape(head + (rest,)), v.reshape(head + (rest,))], axis=at)
    return stretch_pages(both, k_axes[:at] + ["KV", "rest"], lay, geo).ravel()


def per_layer(arrays, layer_first):
    """K array then V array; where each layer has its own pair, layer by layer."""
    if not layer_first:
        return np.concatenate([a.ravel() for a in arrays])
    return np.concatenate([a[layer].ravel() for layer in range(arrays[0].shape[0]) for a in arrays])


def shapes_of(lay, geo):
    """native_shapes of docs/certificate.md: sizes of the factors in declared order, padding included."""
    tokens, block = geo["tokens"], lay["block"]
    sizes = {"L": geo["layers"], "KV": 2, "H": len(heads_of(lay, geo)), "T": tokens}
    if block:
        sizes.update(Tb=math.ceil(tokens / block), Ti=block)
    if lay["tx"]:
        sizes.update(Tg=block // lay["tx"], Tx=lay["tx"])
    out = {}
    for key, axes, width in (("k", lay["k_axes"], geo["head_dim"]),
                             ("v", lay["v_axes"], geo.get("head_dim_v", geo["head_dim"]))):
        lanes = {"D": lay["row_lanes"] or width, "C": width}
        if "Dx" in axes:
            lanes.update(Dg=width // lanes_of(lay, geo), Dx=lanes_of(lay, geo))
        out[key] = [{**sizes, **lanes}[a] for a in axes]
    return out


# ---- what a pair of layouts means ---------------------------------------------------------------


def contract_blocks(axes):
    """Each adjacent Tb Ti read as T."""
    text = " ".join(axes)
    return " ".join("T" if a == "Tb+Ti" else a for a in text.replace("Tb Ti", "Tb+Ti").split()).split()


def normal(axes):
    axes = list(axes)
    if axes and axes[0] == "KV":
        axes = axes[1:]
    return [a for a in contract_blocks(axes) if a != "KV"]


def head_first(axes):
    for axis in axes:
        if axis in ("T", "Tb"):
            return False
        if axis == "H":
            return True
    raise AssertionError(axes)


def d_before_t(axes):
    return "T" in axes and axes.index([a for a in axes if a in ("D", "Dg")][0]) < axes.index("T")


def bound_descriptor(lay, geo):
    x = None if "Dx" not in lay["k_axes"] + lay["v_axes"] else lanes_of(lay, geo)
    return (lay["attention"], lay["kv"], tuple(lay["k_axes"]), tuple(lay["v_axes"]), lay["pages"], lay["block"], x, lay["tx"],
            lay["row_lanes"], lay["page_stride_bytes"], element_of(lay, geo), lay["tp"]["size"], lay["tp"]["rank"])


def words_of(src, dst, geo):
    words = set()
    inter_s, inter_d = src["kv"] == "interleaved", dst["kv"] == "interleaved"
    x_s, x_d = "Dx" in src["k_axes"] + src["v_axes"], "Dx" in dst["k_axes"] + dst["v_axes"]
    first_s, first_d = ([head_first(lay["k_axes"]), head_first(lay["v_axes"])] for lay in (src, dst))
    same_normal = normal(src["k_axes"]) == normal(dst["k_axes"])
    if element_of(src, geo) != element_of(dst, geo):
        words.add("requantize")
    blocks = [[lay["block"] if "Tb" in lay[key] else None for key in ("k_axes", "v_axes")] for lay in (src, dst)]
    if blocks[0] != blocks[1]:
        words.add("reblock")
    if any(src[key] != dst[key] for key in ("page_stride_bytes", "row_lanes")):
        words.add("page_pad")
    if inter_s and not inter_d:
        words.add("kv_split")
    if inter_d and not inter_s:
        words.add("kv_merge")
    if x_d and not x_s:
        words.add("head_dim_vectorize")
    if x_s and not x_d:
        words.add("head_dim_devectorize")
    if x_s and x_d and lanes_of(src, geo) != lanes_of(dst, geo):
        words.add("head_dim_revectorize")
    if d_before_t(src["v_axes"]) != d_before_t(dst["v_axes"]):
        words.add("v_dim_transpose")
    if first_s != first_d:
        words.add("head_order_transpose")
    if first_s[0] == first_d[0] and not same_normal:
        words.add("axis_permute")
    if inter_s and inter_d and same_normal:
        before = [contract_blocks(lay["k_axes"][:lay["k_axes"].index("KV")]) for lay in (src, dst)]
        if before[0] != before[1]:
            words.add("kv_move")
    if dst["tp"]["size"] > geo["kv_heads"]:
        words.add("head_replicate")
    if src["tp"]["size"] > geo["kv_heads"]:
        words.add("head_dedupe")
    if bound_descriptor(src, geo) == bound_descriptor(dst, geo):
        assert not words - {"head_replicate", "head_dedupe"}, words
        words = {"view_reinterpret"} | words
    return words


def exists(lay, geo, unit_layers=1):
    """None, or why not: "shard" or "shape"."""
    try:
        bound_image(lay, geo, unit_layers)
    except Absent as why:
        return why.kind
    return None


def frontier_of(src, dst, geo):
    if (src["attention"] == "mla") != (dst["attention"] == "mla"):
        return "X1_LATENT_KV"
    try:
        held = [heads_of(lay, geo) for lay in (src, dst)]
    except Absent:
        return "X4_GEOMETRY_UNREPRESENTABLE"
    if held[0] != held[1]:
        return "X2_HEAD_GATHER"
    if exists(src, geo) or exists(dst, geo):
        return "X4_GEOMETRY_UNREPRESENTABLE"
    return None


def empty_words(src, dst, code, geo):
    """Refused pairs with an empty word set: an MLA side, different kv heads, no shard."""
    if code in ("X1_LATENT_KV", "X2_HEAD_GATHER"):
        return True
    return code is not None and "shard" in (exists(src, geo), exists(dst, geo))


# ---- a row, from the images ---------------------------------------------------------------------


@functools.lru_cache(maxsize=64)
def cached_image(lay_text, geo_text, unit_layers):
    return image_of(json.loads(lay_text), json.loads(geo_text), unit_layers)


def bound_image(lay, geo, unit_layers):
    one = geo if unit_layers > 1 else {**geo, "layers": 1}
    return cached_image(json.dumps(lay, sort_keys=True), json.dumps(one, sort_keys=True), unit_layers)


def move(src_image, src_values, dst_image, fill):
    """The destination's image after a translation: every element from where the source holds it."""
    value_of = np.full(int(max(src_image.max(initial=0), dst_image.max(initial=0))) + 1, fill, dtype=np.int64)
    value_of[src_image] = src_values
    value_of[PAD] = fill
    return value_of[dst_image]


def expected_row(src, dst, geo, tail="stale"):
    """The fields of a row that do not depend on the payload, as a flat dict of dotted paths."""
    code = frontier_of(src, dst, geo)
    words = set() if empty_words(src, dst, code, geo) else words_of(src, dst, geo)
    row = {"check": "pair", "pair_id": f"{src['name']}->{dst['name']}", "src": src["name"], "dst": dst["name"],
           "frontier_code": code, "transformations": sorted(words), "error_class": None}
    proof = ["unit_layers", "layers", "positions_checked", "positions_total", "source_positions_checked",
             "source_positions_total", "source_bijective", "dest_bijective", "source_padding_positions",
             "dest_padding_positions", "unread_padding_positions", "roundtrip_diff_positions", "gather_payloads", "gather_agrees"]
    observations = ["forward_reproduces_target", "roundtrip_byte_identical", "roundtrip_diff_is_exactly_unread_padding",
                    "tokens_identical"]
    if code is not None:
        row.update({"verdict": "REFUSED", "same_image": False, "native_bytes.src": None, "native_bytes.dst": None,
                    "proof.kind": "frontier"})
        row.update({f"proof.{key}": None for key in proof + ["decoded_tokens", "reference_tokens", "logits_digest",
                                                             "reference_logits_digest", "detail"]})
        row.update({f"observations.{key}": None for key in observations})
        row["proof.lemmas"] = []
        return row
    row.update(expected_numbers(src, dst, geo, tail))
    return row


def expected_numbers(src, dst, geo, tail):
    unit = geo["layers"] if "L" in src["k_axes"] + dst["k_axes"] else 1
    units = geo["layers"] // unit
    image_s, image_d = bound_image(src, geo, unit), bound_image(dst, geo, unit)
    pads_s, pads_d = (int((image == PAD).sum()) for image in (image_s, image_d))
    elements = [np.sort(image[image != PAD]) for image in (image_s, image_d)]
    assert all((np.diff(e) > 0).all() for e in elements), "an element stands twice"
    assert np.array_equal(*elements), "the sides hold different elements"
    kinds = [element_of(lay, geo) for lay in (src, dst)]
    stale, fill = (-1, -2) if tail != "zero" else (0, 0)
    source = np.where(image_s == PAD, stale, image_s)
    there = move(image_s, source, image_d, fill)
    back = move(image_d, there, image_s, fill)
    differ = back != source
    assert np.array_equal(there[image_d != PAD], image_d[image_d != PAD])
    diffs = int(differ.sum()) * units
    is_padding = np.array_equal(differ, (image_s == PAD) & (stale != fill))
    out = {"proof.kind": "index-permutation-exhaustive", "proof.unit_layers": unit, "proof.layers": geo["layers"],
           "proof.positions_checked": image_d.size, "proof.positions_total": image_d.size,
           "proof.source_positions_checked": image_s.size, "proof.source_positions_total": image_s.size,
           "proof.source_bijective": True, "proof.dest_bijective": True,
           "proof.source_padding_positions": pads_s, "proof.dest_padding_positions": pads_d,
           "proof.unread_padding_positions": pads_s * units, "proof.gather_payloads": 6, "proof.gather_agrees": True,
           "native_bytes.src": image_s.size * ELEMENT_BYTES[kinds[0]], "native_bytes.dst": image_d.size * ELEMENT_BYTES[kinds[1]],
           "same_image": kinds[0] == kinds[1] and np.array_equal(image_s, image_d)}
    seen = {"forward_reproduces_target": True, "roundtrip_byte_identical": diffs == 0,
            "roundtrip_diff_is_exactly_unread_padding": is_padding, "tokens_identical": True}
    if kinds[0] != kinds[1] and geo["tokens"] > 0:
        conversion(kinds, geo, seen)
        out["verdict"] = "NOT_EXACT"
    else:
        out["verdict"] = "EXACT_BYTE" if diffs == 0 else "EXACT_TOKEN"
        out["proof.detail"] = None if kinds[0] == kinds[1] else ...
    if seen["roundtrip_diff_is_exactly_unread_padding"]:
        out["proof.roundtrip_diff_positions"] = diffs
    return {**out, **{f"observations.{key}": value for key, value in seen.items()}}


def conversion(kinds, geo, seen):
    """What a narrowing to fp8 changes (random bit patterns are in the payloads, so it always shows):
    on the way there the values do not come back; from values that are narrow already, they do, but
    they are not the geometry's own."""
    if kinds[0] == geo["element"] and kinds[1] == "fp8_e4m3":
        seen.update(roundtrip_byte_identical=False, roundtrip_diff_is_exactly_unread_padding=False, tokens_identical=False)
    elif kinds[1] == geo["element"] and kinds[0] == "fp8_e4m3":
        seen.update(forward_reproduces_target=False, tokens_identical=False)
    else:
        raise AssertionError(f"no statement about {kinds}")


# ---- a certificate against the oracle -----------------------------------------------------------


def dig(obj, path):
    for key in path.split("."):
        if not isinstance(obj, dict) or key not in obj:
            return "(no such key)"
        obj = obj[key]
    return obj


def expand_geometries(spec):
    fields = ["layers", "tokens", "kv_heads", "head_dim", "head_dim_v", "element"]
    for entry in spec["geometries"]:
        lists = [entry.get(f) if isinstance(entry.get(f), list) else [entry.get(f)] for f in fields]
        for values in itertools.product(*lists):
            geo = {f: v for f, v in zip(fields, values) if v is not None}
            if geo.get("head_dim_v") == geo["head_dim"]:
                del geo["head_dim_v"]
            yield geo


def expand_pairs(spec, layouts):
    names = sorted(layouts)
    if spec["pairs"] == "all-ordered":
        return [(a, b) for a in names for b in names if a != b]
    if spec["pairs"] == "published":
        plain = [n for n in names if layouts[n]["role"] == "lossless"]
        others = [n for n in names if layouts[n]["role"] != "lossless"]
        return [(a, b) for a in plain for b in plain if a != b] + [
            pair for n in others for pair in (("vllm-fa", n), (n, "vllm-fa"))]
    return [tuple(pair) for pair in spec["pairs"]]


def expected_cells(spec, layouts):
    """(params, geometry index, src, dst) in the order of the certificate."""
    tails = spec.get("tail", "stale")
    tails = tails if isinstance(tails, list) else [tails]
    pairs = sorted(expand_pairs(spec, layouts), key=lambda p: f"{p[0]}->{p[1]}".encode())
    for index, _ in enumerate(expand_geometries(spec)):
        for src, dst in pairs:
            for tail in sorted(tails):
                yield ({"tail": tail} if len(tails) > 1 else {}, tail, index, src, dst)


def compare_row(row, want, faults, where):
    for path, value in want.items():
        got = dig(row, path)
        if value is ...:
            continue
        if got != value or type(got) is not type(value):
            faults.append(f"{where}: {path} is {json.dumps(got)}, the oracle says {json.dumps(value)}")
    tokens = want["observations.tokens_identical"]
    if tokens is None:
        if not isinstance(row.get("frontier_reason"), str) or not row["frontier_reason"]:
            faults.append(f"{where}: refused without a reason")
        return
    if row.get("frontier_reason") is not None:
        faults.append(f"{where}: a reason without a frontier code")
    proof = row["proof"]
    same = (proof["decoded_tokens"] == proof["reference_tokens"] and proof["logits_digest"] == proof["reference_logits_digest"])
    if same != tokens or len(proof["decoded_tokens"]) != 8 or len(proof["reference_tokens"]) != 8:
        faults.append(f"{where}: tokens or digests do not agree with tokens_identical")
    if not proof["lemmas"]:
        faults.append(f"{where}: no lemma")


def compare_bindings(doc, geometries, layouts, faults):
    want = [(g, name) for g in range(len(geometries)) for name in sorted(layouts)]
    if [(b["geometry"], b["layout"]) for b in doc["bindings"]] != want:
        faults.append("bindings: not one for each geometry and layout, in order")
        return
    for entry in doc["bindings"]:
        lay, geo = layouts[entry["layout"]], geometries[entry["geometry"]]
        where = f"bindings: {entry['layout']} at geometry {entry['geometry']}"
        there = exists(lay, geo) is None
        if entry["exists"] != there or (entry["reason"] is None) != there:
            faults.append(f"{where}: exists is {entry['exists']}, the oracle says {there}")
        if entry["native_shapes"] != (shapes_of(lay, geo) if there else None):
            faults.append(f"{where}: native_shapes {entry['native_shapes']}")
        identity = False
        if there:
            unit = geo["layers"] if "L" in lay["k_axes"] else 1
            image = bound_image(lay, geo, unit)
            # canonical order of what the layout holds: a shard's own heads, numbered through
            identity = element_of(lay, geo) == geo["element"] and PAD not in image and bool((np.diff(image) > 0).all())
        if entry["is_identity"] is not identity:
            faults.append(f"{where}: is_identity is {entry['is_identity']}, the oracle says {identity}")


def compare_counts(doc, rows, geometries, faults):
    """observed, from the oracle's own rows."""
    ran = [(g, r) for g, r in rows if r["verdict"] != "REFUSED"]
    view = [(g, r) for g, r in ran if r["transformations"] == ["view_reinterpret"]]
    counted = Counter(r["verdict"] for g, r in rows if (g, r) not in view)
    real = [(g, r) for g, r in ran if r["transformations"] != ["view_reinterpret"]]
    want = {"rows": len(rows), "view_rows": len(view), "same_image_rows": sum(r["same_image"] for _, r in ran),
            "empty_rows": sum(geometries[g]["tokens"] == 0 for g, _ in ran),
            "positions_checked": sum(r["proof.positions_checked"] for _, r in real),
            "source_positions_checked": sum(r["proof.source_positions_checked"] for _, r in real),
            "words": len({w for _, r in rows for w in r["transformations"]}),
            "frontier_codes": len({r["frontier_code"] for _, r in rows} - {None})}
    want.update({f"verdicts.{v}": counted.get(v, 0)
                 for v in ("EXACT_BYTE", "EXACT_TOKEN", "NOT_EXACT", "REFUSED", "UNPROVEN", "FAILED")})
    for path, value in want.items():
        if dig(doc["observed"], path) != value:
            faults.append(f"observed.{path} is {dig(doc['observed'], path)}, the oracle says {value}")


def check_document(doc, layouts):
    """All differences between a certificate and the oracle, as lines; and the number of rows."""
    faults = []
    spec = doc["campaign"]["spec"]
    wanted = [entry["name"] for entry in doc["catalogue"]]
    layouts = {name: lay for name, lay in layouts.items() if name in wanted}
    geometries = list(expand_geometries(spec))
    if doc["geometries"] != geometries:
        faults.append("geometries: not the expansion of the campaign")
        return faults, 0
    cells = list(expected_cells(spec, layouts))
    if len(cells) != len(doc["rows"]):
        faults.append(f"{len(doc['rows'])} rows, the oracle says {len(cells)}")
    expected = []
    for (params, tail, index, src, dst), row in zip(cells, doc["rows"]):
        where = f"{src}->{dst} at geometry {index} {json.dumps(geometries[index])} {json.dumps(params)}"
        if (row["pair_id"], row["geometry"], row["params"]) != (f"{src}->{dst}", index, params):
            faults.append(f"{where}: row {row['pair_id']} {row['geometry']} {row['params']} stands in its place")
            break
        want = expected_row(layouts[src], layouts[dst], geometries[index], tail)
        expected.append((index, want))
        compare_row(row, want, faults, where)
    compare_bindings(doc, geometries, layouts, faults)
    compare_counts(doc, expected, geometries, faults)
    return faults, len(expected)


# ---- campaigns for the sweep --------------------------------------------------------------------

TOKENS = [0, 1, 15, 16, 17, 33, 64, 65, 129]
HEADS = [1, 2, 3, 8]
WIDTHS = [4, 6, 8, 64, 80, 128]
LAYERS = [1, 2, 3]


def campaign(name, geometries, layouts, **more):
    return {"schema": "kvgrid.campaign/v1", "name": name, "layouts": [str(p) for p in layouts], "pairs": "all-ordered",
            "geometries": geometries, **more}


def geometry(layers, tokens, heads, width, element="f16", **more):
    return {"layers": layers, "tokens": tokens, "kv_heads": heads, "head_dim": width, **more, "element": element}


def sweep_all(layouts):
    """Every geometry of the issue; one campaign for each T and L, so that none has over 10,000 rows."""
    for tokens, layers in itertools.product(TOKENS, LAYERS):
        yield campaign(f"all-L{layers}-T{tokens}", [geometry(layers, tokens, HEADS, WIDTHS)], layouts)


def sweep_sample(layouts):
    """A fixed sample: every T, H, D and L occurs, each T with at least two H and two D; then the other
    element types, the other tails, and widths of V that differ."""
    geos = []
    for i, tokens in enumerate(TOKENS):
        geos.append(geometry(LAYERS[i % 3], tokens, HEADS[i % 4], WIDTHS[i % 6]))
        geos.append(geometry(LAYERS[(i + 1) % 3], tokens, HEADS[(i + 1) % 4], WIDTHS[(i * 5 + 2) % 6]))
    yield campaign("sample", geos, layouts)
    yield campaign("sample-elements", [geometry(2, [0, 17], [1, 2], 8, ["bf16", "f32", "fp8_e4m3"])], layouts)
    yield campaign("sample-tails", [geometry(1, [16, 33], 2, 80)], layouts, tail=["nan", "stale", "zero"])
    yield campaign("sample-widths", [geometry(1, [9, 16], 2, [6, 8], "f16", head_dim_v=[4, 16])], layouts)


def run_sweep(args):
    layouts_paths = args.layouts or [ROOT / "layouts" / "published"]
    layouts = load_layouts(layouts_paths)
    total = bad = 0
    with tempfile.TemporaryDirectory(prefix="kvgrid oracle ") as temp:
        key = os.path.join(temp, "oracle.key")
        subprocess.run([args.kvgrid, "keygen", key], check=True, stdout=subprocess.DEVNULL)
        for spec in (sweep_all if args.all else sweep_sample)([Path(p).resolve() for p in layouts_paths]):
            path, cert = os.path.join(temp, spec["name"] + ".json"), os.path.join(temp, spec["name"] + ".cert.json")
            Path(path).write_text(json.dumps(spec))
            command = shlex.split(args.mpirun) + ["-n", str(args.ranks)] if args.mpirun else []
            done = subprocess.run(command + [args.kvgrid, "run", path, "-o", cert, "--key", key], capture_output=True,
                                  text=True, check=False, stdin=subprocess.DEVNULL)
            # A campaign of empty caches only is run and graded, but is no pass (exit 4).
            empty = all(geo["tokens"] == 0 for geo in expand_geometries(spec))
            if done.returncode != (4 if empty else 0):
                print(f"{spec['name']}: kvgrid run ended with {done.returncode}: {done.stderr.strip()[-500:]}")
                bad += 1
                continue
            faults, rows = check_document(json.loads(Path(cert).read_bytes()), layouts)
            total += rows
            bad += len(faults)
            for line in faults[:20]:
                print(f"{spec['name']}: {line}")
            if len(faults) > 20:
                print(f"{spec['name']}: and {len(faults) - 20} more")
            os.unlink(cert)
    print(f"{total} rows compared with the oracle, {bad} differences")
    return 1 if bad or not total else 0


# ---- the oracle itself --------------------------------------------------------------------------


def number_of(geo, kv, token, head, lane):
    """Canonical number (from 1) of an element of one layer, K and V equally wide."""
    return 1 + ((kv * geo["tokens"] + token) * geo["kv_heads"] + head) * geo["head_dim"] + lane


# The table of design section 3, typed again: kv, K axes, V axes, block, x, role.
PUBLISHED = {
    "vllm-fa": ("interleaved", "KV Tb Ti H D", "", 16, None, "lossless"),
    "vllm-paged-x": ("separate", "Tb H Dg Ti Dx", "Tb H D Ti", 16, 4, "lossless"),
    "trtllm": ("interleaved", "Tb KV H Ti D", "", 32, None, "lossless"),
    "sglang": ("separate", "T H D", "", None, None, "lossless"),
    "hf-dynamic-cache": ("separate", "H T D", "", None, None, "lossless"),
    "llamacpp": ("separate", "T H D", "H D T", None, None, "lossless"),
    "flashinfer-nhd": ("interleaved", "Tb KV Ti H D", "", 16, None, "lossless"),
    "lmdeploy-turbomind": ("separate", "Tb H Ti D", "", 64, None, "lossless"),
    "deepseek-mla": ("interleaved", "KV Tb Ti H D", "", 16, None, "frontier"),
    "vllm-tp2": ("interleaved", "KV Tb Ti H D", "", 16, None, "frontier"),
    "vllm-paged-x16": ("separate", "Tb H Dg Ti Dx", "Tb H D Ti", 16, 16, "frontier"),
    "vllm-fp8": ("interleaved", "KV Tb Ti H D", "", 16, None, "lossy"),
}


def differ_from_design(layouts):
    out = [f"the published layouts are {sorted(layouts)}"] if set(layouts) != set(PUBLISHED) else []
    for name, (kv, k_axes, v_axes, block, x, role) in PUBLISHED.items():
        lay = layouts.get(name, {})
        want = {"kv": kv, "k_axes": k_axes.split(), "v_axes": (v_axes or k_axes).split(), "block": block, "x": x, "role": role,
                "attention": "mla" if name == "deepseek-mla" else "gqa", "tp": {"size": 1 + (name == "vllm-tp2"), "rank": 0},
                "element": "fp8_e4m3" if name == "vllm-fp8" else "same"}
        out += [f"{name}: {key} is {lay.get(key)}, the design says {value}" for key, value in want.items() if lay.get(key) != value]
    return out


def self_check(args):
    """Offsets worked out by hand, the published totals, and the published rows where they are at hand."""
    layouts = load_layouts(args.layouts or [ROOT / "layouts" / "published"])
    geo = geometry(3, 40, 2, 8)
    # layout, kv, token, head, lane, native position: written out digit by digit
    by_hand = [
        ("sglang", 0, 17, 1, 6, (17 * 2 + 1) * 8 + 6),
        ("sglang", 1, 0, 0, 0, 640),
        ("hf-dynamic-cache", 1, 5, 1, 2, 640 + (1 * 40 + 5) * 8 + 2),
        ("llamacpp", 0, 5, 1, 2, (5 * 2 + 1) * 8 + 2),
        ("llamacpp", 1, 5, 1, 2, 640 + (1 * 8 + 2) * 40 + 5),
        ("vllm-fa", 0, 39, 1, 7, (39 * 2 + 1) * 8 + 7),
        ("vllm-fa", 1, 0, 0, 0, 768),
        ("vllm-paged-x", 0, 17, 1, 6, ((((1 * 2 + 1) * 2 + 1) * 16 + 1) * 4) + 2),
        ("vllm-paged-x", 1, 17, 1, 6, 768 + ((1 * 2 + 1) * 8 + 6) * 16 + 1),
        ("flashinfer-nhd", 1, 17, 1, 6, 798),
        ("trtllm", 0, 33, 0, 3, 1035),
        ("trtllm", 1, 33, 1, 3, (((1 * 2 + 1) * 2 + 1) * 32 + 1) * 8 + 3),
        ("lmdeploy-turbomind", 0, 39, 1, 7, 831),
        ("lmdeploy-turbomind", 1, 0, 0, 0, 1024),
    ]
    bad = differ_from_design(layouts) if not args.layouts else []
    for name, kv, token, head, lane, want in by_hand:
        got = int(np.flatnonzero(image_of(layouts[name], geo, 1) == number_of(geo, kv, token, head, lane))[0])
        if got != want:
            bad.append(f"{name}: kv {kv}, token {token}, head {head}, lane {lane} stands at {got}, by hand {want}")
    # Two layers in one array, pad lanes, page strides, split inner tokens: a layout that none of the twelve is.
    odd = {**layouts["vllm-fa"], "k_axes": ["Tb", "L", "KV", "H", "Tg", "D", "Tx"], "block": 4, "tx": 2, "row_lanes": 5,
           "page_stride_bytes": 2 * 100}
    odd["v_axes"] = odd["k_axes"]
    small = geometry(2, 5, 1, 3)
    image = image_of(odd, small, 2)
    # block 1, layer 1, V, head 0, token 4 = group 0 lane 0, d 2: page of 100, inside (((1*2+1)*1+0)*2+0)*5*2 + 2*2
    if image.size != 200 or image[100 + 60 + 4] != 1 + 30 + 15 + 4 * 3 + 2 or int((image == PAD).sum()) != 200 - 60:
        bad.append("the wide layout is not where it was worked out to be")
    # Pages of 100 behind KV (each of K and V has two of them), and in K only (V is a plain array behind them).
    paged = {**layouts["vllm-fa"], "block": 4, "page_stride_bytes": 2 * 100}
    mixed = {**paged, "kv": "separate", "k_axes": ["Tb", "Ti", "H", "D"], "v_axes": ["T", "H", "D"]}
    one = geometry(1, 5, 1, 3)
    for lay, size, at in ((paged, 400, 200 + 100 + 2), (mixed, 215, 200 + 4 * 3 + 2)):
        image = image_of(lay, one, 1)
        if image.size != size or image[at] != number_of(one, 1, 4, 0, 2) or int((image == PAD).sum()) != size - 30:
            bad.append(f"pages of {' '.join(lay['k_axes'])} are not where they were worked out to be")
    spec = {"pairs": "published", "geometries": [geo], "tail": "stale"}
    rows = {}
    for _, tail, _, src, dst in expected_cells(spec, layouts):
        rows[f"{src}->{dst}"] = expected_row(layouts[src], layouts[dst], geo, tail)
    counts = Counter(row["verdict"] for row in rows.values())
    if counts != {"EXACT_BYTE": 21, "EXACT_TOKEN": 35, "NOT_EXACT": 2, "REFUSED": 6} or len(rows) != 64:
        bad.append(f"the published campaign comes out as {dict(counts)}")
    for key in ("positions_checked", "source_positions_checked"):
        total = sum(row[f"proof.{key}"] or 0 for row in rows.values())
        if total != 90880:
            bad.append(f"the published campaign checks {total} {key}")
    published = Path(args.published or ROOT.parent / "shared" / "published_rows.json")
    seen = 0
    if published.exists():
        for row in json.loads(published.read_text())["rows"]:
            seen += 1
            bad += differ_from_published(row, rows[row["pair_id"]])
    for line in bad:
        print(line)
    print(f"oracle: {len(by_hand)} offsets by hand, {len(rows)} rows, {seen} of them against published rows, {len(bad)} differences")
    return 1 if bad else 0


def differ_from_published(row, want):
    noted = {"proof.roundtrip_diff_positions", "native_bytes.src", "native_bytes.dst"} if "note" in row else set()
    out = []
    for path, value in want.items():
        got = dig(row, path)
        if path not in noted and got != "(no such key)" and got != value:
            out.append(f"{row['pair_id']}: published {path} is {got}, the oracle says {value}")
    return out


def check_file(args):
    faults, rows = check_document(json.loads(Path(args.cert).read_bytes()),
                                  load_layouts(args.layouts or [ROOT / "layouts" / "published"]))
    for line in faults:
        print(line)
    print(f"{rows} rows compared with the oracle, {len(faults)} differences")
    return 1 if faults or not rows else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("self")
    one.add_argument("--published")
    one.set_defaults(run=self_check)
    two = commands.add_parser("check")
    two.add_argument("cert")
    two.set_defaults(run=check_file)
    three = commands.add_parser("sweep")
    three.add_argument("--kvgrid", required=True)
    three.add_argument("--all", action="store_true")
    three.add_argument("--ranks", type=int, default=1)
    three.add_argument("--mpirun", default="")
    three.set_defaults(run=run_sweep)
    for sub in (one, two, three):
        sub.add_argument("--layouts", action="append")
    args = parser.parse_args()
    return args.run(args)


if __name__ == "__main__":
    sys.exit(main())
