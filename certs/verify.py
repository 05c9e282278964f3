#!/usr/bin/env python3
"""A second verifier of kvgrid certificates: Python 3 and its standard library only.

It shares nothing with `kvgrid verify`; docs/certificate.md is what both implement. The signature is
checked through the openssl program; without it everything else is checked and the exit code is 2.

    verify.py CERT [--trust FILE] [--format text|json] [--allow-unproven] [--allow-emulated] [--require WHAT]

WHAT: device=cpu|cuda|emulated, transport=mpi|nccl, ranks>=N, separated by commas.

Exit: 0 sound, 1 unreadable (H0), 2 usage or signature not checked, 3 refused (H1 to H15),
4 sound, but it holds FAILED or UNPROVEN rows or nothing at all was checked, or it was made on an emulated
device, or --require is not met.
"""
import argparse
import collections
import copy
import datetime
import hashlib
import itertools
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile

BYTES_MAX, VALUES_MAX, DEPTH_MAX, LIST_MAX, INT_LIMIT = 256 << 20, 8 << 20, 32, 2048, 1 << 53
LINE_MAX = 1 << 20  # of a row file
NAMES = ("H0_DOCUMENT_UNREADABLE H1_SIGNATURE_INVALID H2_VERDICT_NOT_DERIVED H3_PROOF_MISSING H4_PROOF_NOT_EXHAUSTIVE "
         "H5_TRIVIAL_TRANSFORMATION H6_HUNT_FOUND_NOTHING H7_VOCABULARY_NOT_EXERCISED H8_FLOOR_BELOW_OBSERVATION "
         "H9_GUARD_FAILED_OPEN H10_COUNTS_DO_NOT_RECOMPUTE H11_ENGINE_UNDECLARED H12_PAIR_DECLARED_TWICE "
         "H13_TOKEN_CLAIM_WITHOUT_A_DECODE H14_NO_FRONTIER H15_CELL_MISSING").split()
VERDICTS = "EXACT_BYTE EXACT_TOKEN NOT_EXACT REFUSED UNPROVEN FAILED".split()
DID_NOT_RUN = ("REFUSED", "UNPROVEN", "FAILED")
CODES = ("X1_LATENT_KV", "X2_HEAD_GATHER", "X4_GEOMETRY_UNREPRESENTABLE")
WORDS = ("axis_permute head_dedupe head_dim_devectorize head_dim_revectorize head_dim_vectorize head_order_transpose "
         "head_replicate kv_merge kv_move kv_split layer_merge layer_move layer_split page_pad page_remap pp_reshard reblock "
         "requantize token_devectorize token_revectorize token_vectorize tp_reshard v_axis_permute v_dim_transpose "
         "view_reinterpret").split()
LEMMAS = ("each_element_once index_forward_of_inverse index_inverse_of_forward odometer_is_successor "
          "padding_is_the_complement").split()
ERROR_CLASSES = ("device", "internal", "io", "memory")
ELEMENT_BYTES = {"f16": 2, "bf16": 2, "f32": 4, "fp8_e4m3": 1}
FORWARD, IDENTICAL, DIFF, TOKENS = OBSERVATIONS = (
    "forward_reproduces_target", "roundtrip_byte_identical", "roundtrip_diff_is_exactly_unread_padding", "tokens_identical")
# Of the codec's rows (docs/codec-rows.md). Names in the order of their bytes, which is the order of rows.
CHECKS = ("attribution", "codec", "move", "pair", "tp")
POINT_CHECKS = ("attribution", "codec", "move", "tp")  # whose cells are counted by place
SENDS = ("chunks", "layers", "shard", "whole")
STORE_OBSERVATIONS = ("store_agrees_with_reference", "slot_roundtrip_byte_identical", "decode_agrees_with_reference", TOKENS)
STUDY_OBSERVATIONS = ("identity_changes_nothing", "variants_agree", "logits_are_finite", "top1_identical")
RECIPES = ("fp8", "int4-token", "kv1", "kv1-shared", "published-harness", "published-serving", "rotation")
ENCODERS, PAGED = RECIPES[2:6], ("kv1", "published-serving")
PAYLOADS = ("constant", "gaussian", "heavy-tailed", "k-like-1", "k-like-2", "k-like-3", "k-like-4", "zeros")
ARRANGEMENTS = ("head-major", "kv-pools", "pages", "table")
STUDY_CELLS = ("identity", "k", "k-no-whitening", "k-whiten-after", "k-whiten-before", "kv", "kv-prefix", "layers", "noise", "v",
               "v-outliers", "whiten-only")
STUDY_LAYERS, PPM = 64, 10 ** 6
DIGEST_PAIRS = (("codes_digest", "reference_codes_digest"), ("slots_digest", "repacked_slots_digest"),
                ("values_digest", "reference_values_digest"))
FLOORS = ("exact_byte exact_token not_exact refused positions_checked source_positions_checked words frontier_codes checks "
          "controls known_limits").split()
# The guard that must fire in each control; the names are those that must stand there (H8).
GUARDS = {name: guard for guard, names in {
    "NOT_EXACT": (
        "reinterpreting_translator source_tail_in_the_tokens fp8_runs_and_is_not_exact "
        "corrupted_cache_element mutant_tail_dropped mutant_k_and_v_swapped mutant_heads_shifted "
        "mutant_only_block_0 mutant_nothing_copied mutant_one_value_exhaustive"),
    "view_reinterpret": "engine_declared_twice",
    "EXACT_BYTE then X4_GEOMETRY_UNREPRESENTABLE": "exact_at_one_head_dim_only",
    "X1_LATENT_KV": "mla_destination",
    "X2_HEAD_GATHER": "tp_shard_destination",
    "X4_GEOMETRY_UNREPRESENTABLE": "x16_head_dim",
    "UNPROVEN": "withheld_observation",
    "equal_descriptors": "edited_attention edited_element edited_tp_size",
    "catalogue_digest": "edited_x",
    "sound": "mutation_none",
    "H2_VERDICT_NOT_DERIVED": "mutation_verdict_relabelled mutation_observation_withheld mutation_bijection_denied",
    "H3_PROOF_MISSING": "mutation_gather_agrees_nulled mutation_proof_deleted mutation_no_lemma",
    "H4_PROOF_NOT_EXHAUSTIVE": "mutation_sampled_proof mutation_one_position_is_the_space",
    "H5_TRIVIAL_TRANSFORMATION": "mutation_trivial_transformation",
    "H6_HUNT_FOUND_NOTHING": "mutation_hunt_emptied",
    "H15_CELL_MISSING": "mutation_row_dropped",
    "H7_VOCABULARY_NOT_EXERCISED": "mutation_vocabulary_thinned",
    "H8_FLOOR_BELOW_OBSERVATION": "mutation_floor_above_observation mutation_guard_set_shrunk",
    "H9_GUARD_FAILED_OPEN": "mutation_failed_check",
    "H10_COUNTS_DO_NOT_RECOMPUTE": "mutation_counts_changed",
    "H11_ENGINE_UNDECLARED": "mutation_undeclared_engine",
    "H12_PAIR_DECLARED_TWICE": "mutation_duplicate_pair",
    "H13_TOKEN_CLAIM_WITHOUT_A_DECODE": "mutation_token_claim_without_decode",
    "H14_NO_FRONTIER": "mutation_no_frontier",
    "H1_SIGNATURE_INVALID": "mutation_forged_signer mutation_mutated_byte",
    "H0_DOCUMENT_UNREADABLE": "mutation_wrong_type_in_a_list mutation_torn_file",
}.items() for name in names.split()}
DEVICES = ("cpu", "cuda", "emulated")
TRANSPORTS = ("mpi", "nccl", "emulated")
# What a certificate must hold, each name once and no other (H8); kv_cert_names.c has the same.
REQUIRED = {
    "checks": (
        "proofs_have_every_field exact_rows_proved_over_the_whole_space no_exact_row_is_a_relabelling "
        "token_class_is_unread_padding claimed_vocabulary_exercised claimed_frontier_codes_reached token_leg_not_vacuous "
        "reference_sequence_not_degenerate round_trip_alone_is_not_exact token_identical_means_padding_only "
        "equal_descriptors_are_views equal_images_are_same_image every_layout_cited lemmas_of_exact_rows_exist "
        "no_missing_observation_improves_a_row every_cell_has_a_row").split(),
    "controls": list(GUARDS),
    "known_limits": (
        "made_up_engine_is_graded_like_a_real_one payload_mode_misses_one_changed_value exactness_depends_on_the_geometry "
        "tokens_depend_on_the_weight_seed byte_or_token_is_the_tail_model wrong_bijection_proves_as_well").split(),
}


# ---- reading and writing ---------------------------------------------------------------------


class Unreadable(Exception):
    pass


def canonical(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8")


def blake(data):
    return hashlib.blake2b(data, digest_size=32).digest()


def digest(value):
    return blake(canonical(value)).hex()


def without(obj, *keys):
    return {k: v for k, v in obj.items() if k not in keys}


def _members(pairs):
    obj = dict(pairs)
    if len(obj) != len(pairs):
        raise Unreadable("a key stands twice in one object")
    return obj


def _integer(text):
    if len(text) > 20 or abs(int(text)) >= INT_LIMIT or text == "-0":
        raise Unreadable("the number %s is not allowed" % text[:24])
    return int(text)


def _refuse(text):
    raise Unreadable("%s is not a plain integer" % text[:24])


def parse(data):
    """The JSON value of the bytes, by the strict rules; Unreadable says why not."""
    if len(data) > BYTES_MAX:
        raise Unreadable("more than %d bytes" % BYTES_MAX)
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_members, parse_int=_integer, parse_float=_refuse,
                           parse_constant=_refuse)
    except (UnicodeDecodeError, RecursionError, ValueError) as error:
        raise Unreadable(str(error).split("\n")[0])
    count, level, depth = 0, [value], 0
    while level:  # level by level, so that no nesting can exhaust the stack
        depth += 1
        if depth > DEPTH_MAX and any(isinstance(v, (dict, list)) for v in level):
            raise Unreadable("nested deeper than %d" % DEPTH_MAX)
        following = []
        for v in level:
            count += 1
            if isinstance(v, dict):
                for key in v:
                    check_text(key, True)
                count += len(v)
                following.extend(v.values())
            elif isinstance(v, list):
                following.extend(v)
            elif isinstance(v, str):
                check_text(v, False)
        if count > VALUES_MAX:
            raise Unreadable("more than %d values" % VALUES_MAX)
        level = following
    return value


# Control characters, what is not seen or turns the direction of the text, and half characters.
HIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
                    "\ud800-\udfff\U000e0000-\U000e0fff]")


def check_text(text, is_key):
    if HIDDEN.search(text):
        raise Unreadable("a string holds a control character, one that is not seen, or half a character")
    if is_key and not text.isascii():
        raise Unreadable("a key is not ASCII")


class RowFile:
    """The rows in a file beside the document, one canonical row a line; keeps count, bytes and the Merkle tree over the lines."""

    def __init__(self, path):
        self.file = None if path is None else open(path, "rb", buffering=1 << 20, opener=lambda name, flags: os.open(
            name, flags | os.O_NONBLOCK))
        if self.file is None or not stat.S_ISREG(os.fstat(self.file.fileno()).st_mode):
            raise OSError("no row file, or no regular file")
        self.count, self.bytes, self.tree = 0, 0, []  # tree: [number of lines, hash], larger ones first

    def __iter__(self):
        with self.file:
            while True:
                line = self.file.readline(LINE_MAX + 2)
                if not line:
                    return
                if not line.endswith(b"\n") or len(line) > LINE_MAX + 1:
                    raise Unreadable("a line has no end, or is longer than %d bytes" % LINE_MAX)
                row = parse(line[:-1])
                if canonical(row) != line[:-1] or not isinstance(row, dict):
                    raise Unreadable("not a canonical row")
                self.add(line)
                yield row

    def add(self, line):
        self.count += 1
        self.bytes += len(line)
        self.tree.append((1, blake(b"\0" + line[:-1])))
        while len(self.tree) > 1 and self.tree[-2][0] == self.tree[-1][0]:
            (n, left), (_, right) = self.tree[-2:]
            self.tree[-2:] = [(2 * n, blake(b"\1" + left + right))]

    def root(self):
        if not self.tree:
            return blake(b"").hex()
        node = self.tree[-1][1]
        for _, left in reversed(self.tree[:-1]):
            node = blake(b"\1" + left + node)
        return node.hex()


# ---- the shape of the document -----------------------------------------------------------------
# A type is a set of letters: s string, n number >= 0, b boolean, z null, o object, l list, a anything.
# A field is its type, or (type, inner): for o the fields of the object, for l the field of its items.
# A key with "?" may be absent; {"*": ...} allows further keys.


def fields(kind, names):
    return dict.fromkeys(names.split(), kind)


PROOF = {"kind?": "s", "lemmas?": ("l", "s"), "decoded_tokens?": ("lz", "n"), "reference_tokens?": ("lz", "n"),
         "detail?": ("oz", {"conversion": "s", "values_preserved": "b", "worst_relative_error_ppm": "nz"}),
         **fields("nz", "unit_layers? layers? positions_checked? positions_total? source_positions_checked? "
                        "source_positions_total? source_padding_positions? dest_padding_positions? "
                        "unread_padding_positions? roundtrip_diff_positions? gather_payloads?"),
         **fields("bz", "source_bijective? dest_bijective? gather_agrees?"),
         **fields("sz", "logits_digest? reference_logits_digest?")}
STORE_PROOF = {"kind?": "s", "value_preserving?": "b", "decoded_tokens?": ("lz", "n"), "reference_tokens?": ("lz", "n"),
               **fields("nz", "rows? encoded_rows? blocks? overflow_blocks? outliers? saturated? relative_l2_ppm? "
                              "worst_element_ppm? ratio_ppm?"), "cosine_ppm?": "n-z",
               **fields("sz", "codes_digest? reference_codes_digest? slots_digest? repacked_slots_digest? values_digest? "
                              "reference_values_digest? logits_digest? reference_logits_digest?")}
STUDY_PROOF = {"kind?": "s", **fields("sz", "accept? base_logits_digest? logits_digest?"),
               **fields("nz", "passages? top1_ppm? k_overflow_blocks? v_overflow_blocks?"),
               **fields("n-z", "base_nll_nano? nll_nano? ppl_change_ppm? kl_nano? k_error_ppm? v_error_ppm?"),
               "per_passage?": ("lz", ("o", {**fields("n-z", "ppl_change_ppm kl_nano"), "top1_ppm": "nz"}))}
WITNESS = fields("n", "shard_heads heads whole_positions whole_differs shard_positions shard_differs")
TP_PROOF = {**PROOF, **fields("nz", "ranks? rounds? wire_bytes? least_wire_bytes? wire_bytes_back? least_wire_bytes_back?"),
            "wire_minimal?": "bz", "witness?": ("oz", WITNESS)}
PROOFS = {"attribution": STUDY_PROOF, "codec": STORE_PROOF, "move": PROOF, "pair": PROOF, "tp": TP_PROOF}
OBSERVED = {"attribution": STUDY_OBSERVATIONS, "codec": STORE_OBSERVATIONS, "move": OBSERVATIONS, "pair": OBSERVATIONS,
            "tp": OBSERVATIONS}
ROW = {**fields("s", "check pair_id src dst verdict"), "geometry": "n", "params": ("o", {"*": "a"}), "same_image": "b",
       **fields("sz", "error_class frontier_code frontier_reason"), "transformations": ("l", "s"),
       "native_bytes": ("o", fields("nz", "src dst")),
       "observations": ("o", {o + "?": "bz" for o in OBSERVATIONS}), "proof?": ("oz", PROOF)}
ROWS = {check: {**ROW, "observations": ("o", {o + "?": "bz" for o in OBSERVED[check]}), "proof?": ("oz", PROOFS[check])}
        for check in CHECKS}
DOCUMENT = {
    "schema": "s",
    "campaign": ("o", {"name": "s", "digest": "s", "spec": ("o", {"*": "a"})}),
    "method": ("o", {**fields("n", "payloads decode_steps vocabulary"), "payload_kinds": ("l", "s"), "tail": ("sl", "s"),
                     "tail_bits": ("o", {"*": "a"}), **fields("s", "values weight_seed value_seed reproduce")}),
    "catalogue": ("l", ("o", {"digest": "s", "*": "a"})),
    "geometries": ("l", ("o", {**fields("n", "layers tokens kv_heads head_dim head_dim_v?"), "element": "s"})),
    "bindings": ("l", ("o", {"layout": "s", "geometry": "n", "exists": "b", "reason": "sz", "is_identity": "b",
                             "native_shapes": ("oz", {"k": ("l", "n"), "v": ("l", "n")})})),
    "vocabulary": ("l", "s"),
    "boundary": ("o", {"holds": ("l", "s"), "does_not_hold": ("l", "s"), "note": "s"}),
    "rows": ("l", ("o", ROW)),
    "rows_file?": ("o", {**fields("n", "count bytes"), "merkle_root": "s"}),
    "controls": ("l", ("o", {**fields("s", "name expected_guard actual_guard detail"), "passed": "b"})),
    "checks": ("l", ("o", {"name": "s", "passed": "b", "detail": "s"})),
    "known_limits": ("l", ("o", {"name": "s", "text": "s", "demonstrated": "b"})),
    "floors": ("o", dict.fromkeys(FLOORS, "n")),
    "observed": ("o", {"verdicts": ("o", dict.fromkeys(VERDICTS, "n")),
                       **fields("n", "rows positions_checked source_positions_checked view_rows same_image_rows empty_rows "
                                     "words frontier_codes checks controls known_limits")}),
    "subject?": ("o", {"name": "s", "digest": "s"}),
    "body_digest": "s",
    "run": ("o", {"source": ("o", {"commit": "s", "dirty": "b", "flags": "s", "*": "a"}), "ranks": "n",
                  "devices": ("l", ("o", {"rank": "n", **fields("s", "host device name"), "*": "a"})), "transports": ("l", "s"), "versions": ("o", {"*": "a"}),
                  "transports_why?": ("l", "s"),
                  "failures": ("l", ("o", {**fields("s", "check pair_id error_class host device text"),
                                           **fields("n", "geometry rank"), "params": ("o", {"*": "a"})})),
                  "differences?": ("l", ("o", {"what": "s", "values": ("l", ("o", {
                      "value": "s", "ranks?": ("l", "n"), "hosts?": ("l", "s"), "parts?": ("l", "s")}))})),
                  "wire?": ("l", ("o", fields("n", "rank sent received least"))),
                  "started": "s", "elapsed_ms": "n", "*": "a"}),
    "signature": ("o", fields("s", "alg key_id public_key sig")),
}


def format_faults(doc):
    """Texts of a sound shape that no such text can be."""
    subject, run = doc.get("subject"), doc["run"]
    if subject is not None and not re.fullmatch("[ -~]{1,512}", subject["name"]):
        yield "$.subject.name", "1 to 512 printable ASCII characters", subject["name"]
    if subject is not None and not re.fullmatch("sha256:[0-9a-f]{64}", subject["digest"]):
        yield "$.subject.digest", "sha256: and 64 lower-case hex digits", subject["digest"]
    moment = re.fullmatch("([0-9-]{10})T([01][0-9]|2[0-3]):[0-5][0-9]:([0-5][0-9]|60)Z", run["started"])
    if moment is None or not is_day(moment[1]):
        yield "$.run.started", "YYYY-MM-DDTHH:MM:SSZ", run["started"]
    for i, entry in enumerate(run["devices"]):
        if entry["device"] not in DEVICES:
            yield "$.run.devices[%d].device" % i, " or ".join(DEVICES), entry["device"]
    for i, name in enumerate(run["transports"]):
        if name not in TRANSPORTS:
            yield "$.run.transports[%d]" % i, " or ".join(TRANSPORTS), name


KINDS = {bool: "b", str: "s", type(None): "z", dict: "o", list: "l"}


def kind_of(v):
    if type(v) is int:
        return "n" if v >= 0 else "-"
    return KINDS[type(v)]


def fits(value, field):
    """Whether a value without parts is of the field's type: what most values are, told without going into them."""
    return type(field) is str and (field == "a" or kind_of(value) in field)


def shape_faults(value, field, path):
    kind, inner = field if isinstance(field, tuple) else (field, None)
    if kind == "a":
        return
    if kind_of(value) not in kind:
        yield path, "a value of type " + kind, value
    elif isinstance(value, list):
        for i, item in enumerate(value):
            if not fits(item, inner):
                yield from shape_faults(item, inner, "%s[%d]" % (path, i))
    elif isinstance(value, dict) and inner is not None:
        known = set()
        if inner is ROW and isinstance(value.get("check"), str):  # the keys of a row are those of its check
            inner = ROWS.get(value["check"], ROW)
        for key, sub in inner.items():
            name = key.rstrip("?")
            known.add(name)
            if name in value:
                if name != "*" and not fits(value[name], sub):
                    yield from shape_faults(value[name], sub, path + "." + name)
            elif not key.endswith("?") and name != "*":
                yield path + "." + name, "a value of type " + (sub if isinstance(sub, str) else sub[0]), None
        if "*" not in inner:
            for name in value:
                if name not in known:
                    yield path + "." + name[:64], "no such key", value[name]


# ---- declared layouts --------------------------------------------------------------------------

LAYOUT_KEYS = set("name engine version attention kv k_axes v_axes block x x_bytes tx element tp role pages "
                  "page_stride_bytes row_lanes cite evidence notes digest".split())
AXES = "L KV T Tb Ti Tg Tx H D Dg Dx C".split()
TOKEN_FORMS = ({"T"}, {"Tb", "Ti"}, {"Tb", "Tg", "Tx"})
LANE_FORMS = ({"D"}, {"Dg", "Dx"})


class Layout:
    """One catalogue entry; `faults` lists (key, what was expected)."""

    def __init__(self, entry):
        self.entry, self.faults = entry, []
        get = lambda key: entry.get(key)
        for key in entry:
            if key not in LAYOUT_KEYS:
                self.bad(key, "no such key")
        for key in ("engine", "cite", "name"):
            if not isinstance(get(key), str) or get(key) == "":
                self.bad(key, "a text")
        for key in ("version", "evidence", "notes"):
            if get(key) is not None and (not isinstance(get(key), str) or get(key) == ""):
                self.bad(key, "a text")
        self.name = get("name")
        if isinstance(self.name, str) and not re.fullmatch("[0-9A-Za-z][0-9A-Za-z._-]{0,63}", self.name):
            self.bad("name", "a name")
        self.attention = self.choice("attention", ("gqa", "mla"), None)
        self.kv = self.choice("kv", ("separate", "interleaved", "latent"), None)
        self.role = self.choice("role", ("lossless", "frontier", "lossy"), "lossless")
        self.choice("pages", ("contiguous",), "contiguous")
        self.element = self.choice("element", ("same", *ELEMENT_BYTES), "same")
        if self.kv == "latent" and self.attention != "mla":
            self.bad("attention", "mla")
        most = (1 << 31) - 1
        self.block, self.x, self.x_bytes, self.tx, self.row_lanes, self.stride = (
            self.size(key, most) for key in ("block", "x", "x_bytes", "tx", "row_lanes", "page_stride_bytes"))
        self.tp = self.read_tp()
        self.axes = [[], []]
        if not self.faults:
            self.read_axes()
        if not self.faults:
            self.check_sizes()

    def bad(self, key, expected):
        self.faults.append((key, expected))

    def choice(self, key, allowed, default):
        value = self.entry.get(key)
        if value is None and default is not None:
            return default
        if value not in allowed or not isinstance(value, str):
            self.bad(key, " or ".join(allowed))
        return value

    def size(self, key, most):
        value = self.entry.get(key)
        if value is None:
            return 0
        if kind_of(value) != "n" or not 1 <= value <= (1 << 50 if key == "page_stride_bytes" else most):
            self.bad(key, "a number in its range")
            return 0
        return value

    def read_tp(self):
        tp = self.entry.get("tp")
        if tp is None:
            return 1, 0
        if (not isinstance(tp, dict) or set(tp) != {"size", "rank"} or any(kind_of(n) != "n" for n in tp.values())
                or not 1 <= tp["size"] <= 1 << 20 or tp["rank"] >= tp["size"]):
            self.bad("tp", "{size, rank}")
            return 1, 0
        return tp["size"], tp["rank"]

    def read_axes(self):
        lists = [self.entry.get("k_axes"), self.entry.get("v_axes")]
        if self.kv == "latent":
            if lists[1] is not None:
                self.bad("v_axes", "none")
            lists[1] = []
        elif lists[1] is None:
            lists[1] = lists[0]
        for key, axes in zip(("k_axes", "v_axes"), lists):
            if key == "v_axes" and self.kv == "latent":
                continue
            if (not isinstance(axes, list) or not 1 <= len(axes) <= 10
                    or any(a not in AXES if isinstance(a, str) else True for a in axes) or len(set(axes)) != len(axes)):
                self.bad(key, "axes, each once")
            elif not self.covers(set(axes)):
                self.bad(key, "each canonical axis once")
        if self.faults:
            return
        self.axes = lists
        k, v = lists
        if self.kv != "latent" and ("L" in k) != ("L" in v):
            self.bad("v_axes", "L in both")
        if self.kv == "interleaved" and (set(k) != set(v) or k[:k.index("KV") + 1] != v[:k.index("KV") + 1]):
            self.bad("v_axes", "the axes of K up to KV, the same behind it")

    def covers(self, axes):
        lanes = axes & {"D", "Dg", "Dx", "C"}
        if axes & {"T", "Tb", "Ti", "Tg", "Tx"} not in TOKEN_FORMS or ("KV" in axes) != (self.kv == "interleaved"):
            return False
        return lanes == {"C"} and "H" not in axes if self.kv == "latent" else lanes in LANE_FORMS and "H" in axes

    def check_sizes(self):
        if self.has("Tb") != (self.block > 0):
            self.bad("block", "with Tb")
        if self.has("Dx") != (self.x > 0 or self.x_bytes > 0) or (self.x and self.x_bytes):
            self.bad("x", "x or x_bytes with Dx")
        if self.has("Tx") != (self.tx > 0) or (self.tx and self.block and self.block % self.tx):
            self.bad("tx", "a divisor of block, with Tx")
        if self.stride and not self.block:
            self.bad("page_stride_bytes", "none without Tb")
        if self.stride and self.kv == "interleaved" and len({frozenset(a[:a.index("Tb")]) for a in self.axes if "Tb" in a}) > 1:
            self.bad("page_stride_bytes", "none where K and V of one array differ before Tb")
        if self.row_lanes and any(axes and not {"D", "C"} & set(axes) for axes in self.axes):
            self.bad("row_lanes", "none without D or C")

    def has(self, axis):
        return axis in self.axes[0] or axis in self.axes[1]

    def element_at(self, g):
        return g.element if self.element == "same" else self.element

    def x_at(self, g):
        return self.x or self.x_bytes // ELEMENT_BYTES[self.element_at(g)]

    def descriptor(self, g):
        return (self.attention, self.kv, self.axes, self.block, self.x_at(g), self.tx, self.stride, self.row_lanes,
                self.element_at(g), self.tp)


class Geometry:
    def __init__(self, obj):
        self.layers, self.tokens, self.heads, self.dim, self.element = (
            obj.get(k) for k in ("layers", "tokens", "kv_heads", "head_dim", "element"))
        self.dim_v = obj.get("head_dim_v", self.dim)
        sizes = (self.layers, self.heads, self.dim, self.dim_v)
        self.good = (all(kind_of(n) == "n" and n >= 1 for n in sizes) and kind_of(self.tokens) == "n"
                     and isinstance(self.element, str) and self.element in ELEMENT_BYTES)

    def key(self):
        return self.layers, self.tokens, self.heads, self.dim, self.dim_v, self.element

    def width(self, half):
        return self.dim_v if half else self.dim


# ---- layouts at a geometry ----------------------------------------------------------------------


class Bound:
    """A layout at a geometry, for a unit of some layers: sizes, and where each canonical axis leads."""

    def __init__(self, layout, g, layers):
        self.layout, self.g, self.layers = layout, g, layers
        self.element = layout.element_at(g)
        self.bytes = ELEMENT_BYTES[self.element]
        self.held = self.find_heads()
        self.exists = self.held is not None and self.fits()
        self.sizes, self.strides, spans = [[], []], [{}, {}], [0, 0]
        for half in (0, 1):
            if self.exists and layout.axes[half]:
                spans[half] = self.place(half)
        if not self.exists:
            return
        self.starts = [0, spans[0] if layout.kv == "separate" else self.strides[1].get("KV", 0)]
        native = sum(spans) if layout.kv == "separate" else spans[0]
        if not layout.has("L"):
            for strides in self.strides:
                strides["L"] = native
            native *= layers
        self.native = native
        heads, width = (1, g.dim) if layout.kv == "latent" else (self.held[1], g.dim + g.dim_v)
        self.elements = layers * g.tokens * heads * width
        units = g.layers // layers
        self.too_large = max(native, self.elements) * 4 * units >= INT_LIMIT

    def find_heads(self):
        (size, rank), total = self.layout.tp, self.g.heads
        if self.layout.kv == "latent":
            return 0, total
        if total % size == 0:
            return rank * (total // size), total // size
        return (rank * total // size, 1) if size % total == 0 else None

    def fits(self):
        layout, g = self.layout, self.g
        if layout.kv != "separate" and g.dim != g.dim_v or layout.kv == "latent" and g.heads != 1:
            return False
        if layout.x_bytes % self.bytes or layout.stride % self.bytes:
            return False
        for half, axes in enumerate(layout.axes):
            if "Dx" in axes and g.width(half) % layout.x_at(g) or axes and 0 < layout.row_lanes < g.width(half):
                return False
        return True

    def place(self, half):
        layout, g = self.layout, self.g
        width, x, lanes = g.width(half), layout.x_at(g), layout.row_lanes or g.width(half)
        block, tx = layout.block or 1, layout.tx or 1
        size = {"L": self.layers, "KV": 2, "T": g.tokens, "Tb": (g.tokens + block - 1) // block, "Ti": block,
                "Tg": block // tx, "Tx": tx, "H": self.held[1], "D": lanes, "C": lanes, "Dg": width // x if x else 0, "Dx": x}
        self.sizes[half] = [size[a] for a in layout.axes[half]]
        step = 1
        for axis in reversed(layout.axes[half]):
            if axis == "Tb" and layout.stride:
                if step * self.bytes > layout.stride:
                    self.exists = False
                step = layout.stride // self.bytes
            self.strides[half][axis] = step
            step *= size[axis]
        return step

    def lead(self, half, axis):
        """[(weight, stride)] of the digits that a canonical axis (L T H D) has here, innermost first."""
        layout, strides = self.layout, self.strides[half]
        weights = {"L": {"L": 1}, "T": {"T": 1, "Ti": 1, "Tx": 1, "Tg": layout.tx, "Tb": layout.block}, "H": {"H": 1},
                   "D": {"D": 1, "C": 1, "Dx": 1, "Dg": layout.x_at(self.g)}}[axis]
        return [(w, strides[a]) for a, w in weights.items() if a in strides]


def step_of(digits, i):
    """How far the position moves between index i - 1 and i."""
    at = lambda j: sum(stride * (j // w % inner) for w, stride, inner in digits)
    return at(i) - at(i - 1)


def same_walk(a, b, extent):
    """Whether two digit lists lead to the same positions on [0, extent). The step from i - 1 to i depends
    only on which weights divide i, so comparing the steps at products of weights compares them all."""
    lists = []
    for digits in (a, b):
        lists.append([(w, s, (digits[k + 1][0] // w) if k + 1 < len(digits) else max(extent, 1))
                      for k, (w, s) in enumerate(digits)])
    weights = sorted({w for digits in lists for w, _, _ in digits} | {1})
    probes = {1}
    for w in weights:
        for other in weights:
            probes |= {w, other, w * other // gcd(w, other)}
    for p in list(probes):
        probes |= {p * 2, p + 1}
    return all(step_of(lists[0], i) == step_of(lists[1], i) for i in probes if 0 < i < extent)


def gcd(a, b):
    while b:
        a, b = b, a % b
    return a


def same_places(leads_a, leads_b, starts_a, starts_b, g, layers, heads, halves):
    for half in range(halves):
        if starts_a[half] != starts_b[half]:
            return False
        for axis, extent in (("L", layers), ("T", g.tokens), ("H", heads), ("D", g.width(half))):
            if not same_walk(leads_a(half, axis), leads_b(half, axis), extent):
                return False
    return True


def same_image(a, b):
    if a.element != b.element or a.native != b.native:
        return False
    halves = 1 if a.layout.kv == "latent" else 2
    return a.g.tokens == 0 or same_places(a.lead, b.lead, a.starts, b.starts, a.g, a.layers, a.held[1], halves)


def is_identity(own):
    g, latent = own.g, own.layout.kv == "latent"
    if own.element != g.element or own.native != own.elements:
        return False
    heads = 1 if latent else own.held[1]
    lead = lambda half, axis: {"L": [(1, g.tokens * heads * (g.dim if latent else g.dim + g.dim_v))],
                               "T": [(1, heads * g.width(half))], "H": [(1, g.width(half))], "D": [(1, 1)]}[axis]
    starts = [0, g.tokens * heads * g.dim]
    return g.tokens == 0 or same_places(own.lead, lead, own.starts, starts, g, own.layers, heads, 1 if latent else 2)


# ---- pairs ---------------------------------------------------------------------------------------


def read_tokens_whole(axes):
    out = []
    for axis in axes:
        if axis == "Ti" and out and out[-1] == "Tb":
            out[-1] = "T"
        else:
            out.append(axis)
    return out


def normal_axes(axes):
    axes = [a for a in axes if a != "L"]
    axes = read_tokens_whole(axes[1:] if axes[:1] == ["KV"] else axes)
    return [a for a in axes if a != "KV"]


def axes_before(axes, stop):
    return read_tokens_whole(axes[:axes.index(stop)] if stop in axes else axes)


def is_head_first(axes):
    for axis in axes:
        if axis in ("H", "T", "Tb"):
            return axis == "H"
    return False


def frontier_of(a, b):
    la, lb = a.layout, b.layout
    if la.attention != lb.attention or (la.kv == "latent") != (lb.kv == "latent"):
        return "X1_LATENT_KV"
    if a.held is None or b.held is None:
        return "X4_GEOMETRY_UNREPRESENTABLE"
    if a.held != b.held:
        return "X2_HEAD_GATHER"
    return None if a.exists and b.exists else "X4_GEOMETRY_UNREPRESENTABLE"


def words_of(a, b, g):
    src, dst = a.layout, b.layout
    if a.held is None or b.held is None or frontier_of(a, b) in ("X1_LATENT_KV", "X2_HEAD_GATHER"):
        return []
    if src.descriptor(g) == dst.descriptor(g):
        return ["view_reinterpret"]
    words = set()
    if src.element_at(g) != dst.element_at(g):
        words.add("requantize")
    if any((src.block if "Tb" in s else 0) != (dst.block if "Tb" in d else 0) for s, d in zip(src.axes, dst.axes)):
        words.add("reblock")
    words |= {("interleaved", "separate"): {"kv_split"}, ("separate", "interleaved"): {"kv_merge"}}.get((src.kv, dst.kv), set())
    for axis, gain, loss, change, differs in (
            ("Dx", "head_dim_vectorize", "head_dim_devectorize", "head_dim_revectorize", src.x_at(g) != dst.x_at(g)),
            ("Tx", "token_vectorize", "token_devectorize", "token_revectorize", src.tx != dst.tx),
            ("L", "layer_merge", "layer_split", "layer_move",
             any(axes_before(s, "L") != axes_before(d, "L") for s, d in zip(src.axes, dst.axes)))):
        if src.has(axis) and dst.has(axis):
            words |= {change} if differs else set()
        elif src.has(axis) or dst.has(axis):
            words.add(loss if src.has(axis) else gain)
    turned = ["T" in v and "D" in v and v.index("D") < v.index("T") for v in (src.axes[1], dst.axes[1])]
    if turned[0] != turned[1]:
        words.add("v_dim_transpose")
    turns = [is_head_first(s) != is_head_first(d) for s, d in zip(src.axes, dst.axes)]
    if any(turns):
        words.add("head_order_transpose")
    if normal_axes(src.axes[0]) != normal_axes(dst.axes[0]):
        words |= set() if turns[0] else {"axis_permute"}
    else:
        if not turns[1] and "v_dim_transpose" not in words and normal_axes(src.axes[1]) != normal_axes(dst.axes[1]):
            words.add("v_axis_permute")
        no_l = [[x for x in side.axes[0] if x != "L"] for side in (src, dst)]
        if src.kv == dst.kv == "interleaved" and axes_before(no_l[0], "KV") != axes_before(no_l[1], "KV"):
            words.add("kv_move")
    if src.stride != dst.stride or src.row_lanes != dst.row_lanes:
        words.add("page_pad")
    if dst.tp[0] > g.heads:
        words.add("head_replicate")
    if src.tp[0] > g.heads:
        words.add("head_dedupe")
    return sorted(words)


# ---- trust and signature --------------------------------------------------------------------------


def key_id(public):
    return hashlib.blake2b(public, digest_size=32).hexdigest()[:16]


def read_trust(path):
    """The public keys of a trust file; ValueError names the bad line."""
    keys = []
    with open(path, "rb") as f:
        text = f.read(65537)
    if len(text) > 65536:
        raise ValueError("%s: larger than a public keys file" % path)
    for number, line in enumerate(text.decode("utf-8", "replace").split("\n"), 1):
        parts = line.split()
        if not parts or parts[0].startswith("#"):
            continue
        if len(parts) < 3 or parts[0] != "ed25519" or not re.fullmatch("[0-9a-f]{64}", parts[2]):
            raise ValueError("%s: line %d: \"ed25519 KEY_ID PUBLIC_KEY\" is expected" % (path, number))
        public = bytes.fromhex(parts[2])
        if parts[1] != key_id(public):
            raise ValueError("%s: line %d: the key id does not belong to the public key" % (path, number))
        keys.append(public)
    if not keys:
        raise ValueError("%s: holds no public key" % path)
    return keys


def find_trust(given):
    if given is None:
        given = os.environ.get("KVGRID_TRUST") or None
    if given is None:
        folder = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.environ.get("HOME") or "/nonexistent", ".config")
        path = os.path.join(folder, "kvgrid", "trusted.pub")
        given = path if os.path.lexists(path) else None
    return [] if given is None else read_trust(given)


def openssl_verify(public, message, signature):
    """True, False, or None where openssl is not there."""
    if shutil.which("openssl") is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = lambda name: os.path.join(folder, name)
        for name, data in (("key", bytes.fromhex("302a300506032b6570032100") + public), ("text", message), ("sig", signature)):
            with open(path(name), "wb") as f:
                f.write(data)
        done = subprocess.run(["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", path("key"), "-keyform", "DER", "-rawin",
                               "-in", path("text"), "-sigfile", path("sig")], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, check=False)
    return done.returncode == 0


# ---- rows of the codec ----------------------------------------------------------------------------


class Cell:
    """What a row is of, and what follows from that. a, b: the images, for pairs and moves."""

    def __init__(self, check, index, g, key, **more):
        self.check, self.index, self.g, self.key = check, index, g, key
        self.tail, self.a, self.b, self.code, self.words, self.twins, self.too_large = "stale", None, None, None, [], False, False
        self.__dict__.update(more)


class Pages:
    """Sealed pages as an image: bytes without padding, a layer at a time."""

    def __init__(self, positions):
        self.native = self.elements = positions
        self.element, self.bytes, self.layers, self.exists, self.too_large = "fp8_e4m3", 1, 1, True, False


def power_of_two(least):
    return 1 << max(least - 1, 0).bit_length()


def rounded_up(a, b):
    return -(-a // b)


class Slot:
    """The slot of a block of one head, and the basis page that a group of blocks shares."""

    def __init__(self, recipe, stream, dim, bits, block):
        self.e = min(dim, power_of_two((dim + 1) // 2))
        self.lanes = block * power_of_two(self.e)
        self.shared = recipe == "kv1-shared" or (recipe, stream) == ("published-harness", "v")
        residual = block * rounded_up(power_of_two(self.e) * bits, 8)
        self.exists = dim <= 1024 and (recipe != "published-serving" or residual == rounded_up(self.lanes * bits, 8))
        self.page = 48 + 2 * self.e * dim + 2 * dim
        self.bytes = (48 if self.shared else self.page) + 32 * self.e + rounded_up(4 * block, 8) + 4 * block + residual
        self.entries = None  # outliers that fit
        if stream == "k":
            self.entries = rounded_up(self.lanes * 80000, PPM)
            self.bytes += 2 * block + 4 * self.entries


class Store:
    """Sizes of a codec cell: rows of a head, blocks, bytes."""

    def __init__(self, recipe, params, g, block):
        stream, bits = params["stream"], int(params.get("bits", 3 if params["stream"] == "k" else 2))
        self.dim = dim = g.dim if stream == "k" else g.dim_v
        self.rows = g.layers * g.tokens * g.heads
        self.plain, self.encoded, self.blocks, self.swap, self.slot = 2 * self.rows * dim, self.rows, 0, 0, None
        self.nothing = self.rows == 0 or params["payload"] == "zeros"
        self.exists = recipe in ("fp8", "int4-token") or dim <= 1024
        if recipe in ENCODERS:
            self.slot = Slot(recipe, stream, dim, bits, block)
            self.exists = self.slot.exists
            self.bytes = self.encode(recipe, stream, g, block)
        else:
            self.bytes = self.rows * {"fp8": dim, "int4-token": 2 + rounded_up(dim, 2),
                                      "rotation": 2 + rounded_up(power_of_two(dim) * bits, 8)}[recipe]

    def too_large(self):
        return self.plain >= INT_LIMIT or self.exists and self.bytes >= INT_LIMIT

    def encode(self, recipe, stream, g, block):
        mixed, plain = recipe == "published-harness", 2 * self.dim
        left = set()
        if mixed and g.layers > 4:
            left = {0, 1, g.layers - 2, g.layers - 1} | ({7, 14} if g.layers == 28 else set())
        lanes = (g.layers - len(left)) * (1 if mixed else g.heads)
        rows = g.tokens * g.heads if mixed else g.tokens
        blocks, rest = divmod(rows, block)
        groups = 0
        if self.slot.shared:
            groups = min(blocks, 1) if mixed else rounded_up(blocks, 4)
        self.blocks = lanes * blocks
        self.encoded = self.blocks * block
        self.swap = block * plain - self.slot.bytes
        encoded = lanes * (blocks * self.slot.bytes + groups * self.slot.page + rest * plain)
        return encoded + len(left) * g.tokens * g.heads * plain


def agreeing(ppm, tokens):
    """How many tokens have this share in parts per million; None where no number of them has."""
    if not 0 <= ppm <= PPM:
        return None
    same = (ppm * tokens + PPM // 2) // PPM
    return same if 2 * abs(ppm * tokens - same * PPM) <= tokens else None


class CodecRows:
    """The part of the verifier that docs/codec-rows.md is about."""

    # -- sections of the campaign

    def section(self, name, section, known, required):
        if not isinstance(section, dict):
            self.malformed(name, "an object", section)
            return {}
        for key in section:
            if key not in known:
                self.malformed("%s.%s" % (name, key[:64]), "no such key", section[key])
        for key in required:
            if key not in section:
                self.malformed("%s.%s" % (name, key), "a list", "missing")
        return section

    def name_list(self, where, section, key, names, default=()):
        chosen = section.get(key, list(default))
        if (not isinstance(chosen, list) or key in section and not chosen
                or any(not isinstance(n, str) or n not in names for n in chosen) or len(set(chosen)) != len(chosen)):
            self.malformed("%s.%s" % (where, key), "names that are known here, each once", chosen)
            return []
        return sorted(chosen)

    def number_in(self, where, section, key, default, least, most, power=False):
        value = section.get(key, default)
        if kind_of(value) != "n" or not least <= value <= most or power and value & (value - 1):
            self.malformed("%s.%s" % (where, key), "a number that fits here", value)
            return default
        return value

    def payload_files(self, section):
        """Bytes of each payload file:NAME."""
        files, known = section.get("files", []), {}
        good = isinstance(files, list) and len(files) <= 16 and ("files" not in section or len(files) >= 1)
        for entry in files if good else ():
            good &= (isinstance(entry, dict) and set(entry) == {"name", "bytes", "digest"} and kind_of(entry["bytes"]) == "n"
                     and isinstance(entry["name"], str) and re.fullmatch("[0-9A-Za-z._-]{1,64}", entry["name"]) is not None
                     and isinstance(entry["digest"], str) and decode_fits("digest", entry["digest"]))
            if good:
                known["file:" + entry["name"]] = entry["bytes"]
        if not good or len(known) != len(files):
            self.malformed("codec.files", "1 to 16 files with name, bytes and digest, each name once", files)
        return known

    def codec_section(self, given):
        known = ("recipes", "streams", "bits", "payloads", "block", "moves", "files")
        section = self.section("codec", given, known, ("recipes", "payloads"))
        recipes = self.name_list("codec", section, "recipes", RECIPES)
        self.files = self.payload_files(section)
        payloads = self.name_list("codec", section, "payloads", PAYLOADS + tuple(self.files))
        if not set(self.files) <= set(payloads):
            self.malformed("codec.payloads", "every file", payloads)
        streams = self.name_list("codec", section, "streams", ("k", "v"), ("k", "v"))
        moves = self.name_list("codec", section, "moves", ARRANGEMENTS)
        self.block = self.number_in("codec", section, "block", 512, 2, 65536, power=True)
        bits = section.get("bits", [])
        if (not isinstance(bits, list) or "bits" in section and not bits
                or any(kind_of(b) != "n" or not 1 <= b <= 4 for b in bits) or len(set(bits)) != len(bits)):
            self.malformed("codec.bits", "different numbers from 1 to 4", bits)
            bits = []
        cells = []
        for recipe in recipes:
            axis = [{"bits": str(b)} for b in sorted(bits)] if bits and recipe not in ("fp8", "int4-token") else [{}]
            cells += [("canonical->" + recipe, dict(b, payload=p, stream=s)) for b in axis for p in payloads for s in streams]
        moved = [("%s:%s->%s:%s" % (r, a, r, b), {}) for r in recipes if r in PAGED for a in moves for b in moves if a != b]
        if "moves" in section and not moved:
            self.malformed("codec.moves", "two arrangements, and kv1 or published-serving among the recipes", moves)
        return {"codec": cells, "move": moved}

    def study_section(self, given):
        known = ("recipes", "cells", "seeds", "passages", "evaluated", "block")
        section = self.section("attribution", given, known, ("recipes",))
        seeds = section.get("seeds")
        if (not isinstance(seeds, list) or not 1 <= len(seeds) <= 64 or any(kind_of(s) != "n" for s in seeds)
                or len(set(seeds)) != len(seeds)):
            self.malformed("attribution.seeds", "1 to 64 different numbers", seeds)
            seeds = []
        self.passages = self.number_in("attribution", section, "passages", 4, 1, 8)
        self.evaluated = self.number_in("attribution", section, "evaluated", 128, 1, 4096)
        self.study_block = self.number_in("attribution", section, "block", 512, 2, 4096, power=True)
        return {"recipes": self.name_list("attribution", section, "recipes", ENCODERS), "seeds": sorted(str(s) for s in seeds),
                "cells": self.name_list("attribution", section, "cells", STUDY_CELLS, STUDY_CELLS)}

    # -- cells

    def point_lists(self, check, index):
        """The cells of a check at a geometry in row order: (pair_id, params), and their places by pair_id and params."""
        layers = min(self.geometries[index].layers, STUDY_LAYERS) if check == "attribution" else 0
        if (check, layers) not in self.point_cache:
            points = []
            if check == "tp":
                points = self.tp or []
            elif check != "attribution":
                points = self.codec[check] if self.codec else []
            elif self.study:
                cells = set(self.study["cells"]) - {"layers"}
                if "layers" in self.study["cells"]:
                    cells |= {"layer-%d" % i for i in range(layers)}
                points = [("canonical->" + r, {"cell": c, "seed": s}) for r in self.study["recipes"] for c in sorted(cells)
                          for s in self.study["seeds"]]
            places = {(pair_id, canonical(params)): i for i, (pair_id, params) in enumerate(points)}
            self.point_cache[check, layers] = points, places
        return self.point_cache[check, layers]

    def points(self, check, index):
        return self.point_lists(check, index)[0]

    def point_in_part(self, check, index, place):
        if self.parts == 1:
            return True
        if check not in self.points_before:
            counts = [len(self.points(check, i)) for i in range(len(self.geometries))]
            self.points_before[check] = [0] + list(itertools.accumulate(counts))
        return self.number_in_part((CHECKS.index(check) + 1) * 1000003 + self.points_before[check][index] + place)

    def point_cell(self, row, path):
        check, index = row["check"], row["geometry"]
        if {"attribution": self.study, "tp": self.tp}.get(check, self.codec) is None:
            self.fault(11, path + "check", "a check of the campaign", check)
            return None
        if index >= len(self.geometries):
            self.fault(11, path + "geometry", "an index in geometries", index)
            return None
        place = self.point_lists(check, index)[1].get((row["src"] + "->" + row["dst"], canonical(row["params"])))
        if place is None or not row["src"] or "->" in row["src"]:
            self.fault(11, path + "params", "src, dst and params of a cell of the campaign", row["params"])
            return None
        if not self.want(11, path + "pair_id", row["src"] + "->" + row["dst"], row["pair_id"]):
            return None
        if not self.point_in_part(check, index, place):
            self.fault(11, path + "pair_id", "a cell of this part of the campaign", row["pair_id"])
            return None
        cell = Cell(check, index, self.geometries[index], (check, index, place))
        {"codec": self.codec_cell, "move": self.move_cell, "attribution": self.study_cell,
         "tp": self.tp_cell}[check](cell, row)
        return cell

    def codec_cell(self, cell, row):
        cell.size = Store(row["dst"], row["params"], cell.g, self.block)
        g, cell.reference = cell.g, row["params"]["payload"]
        tensor = cell.size.rows * (g.dim + g.dim_v) * ELEMENT_BYTES[g.element]  # that a file must be
        cell.size.exists &= self.files.get(cell.reference, tensor) == tensor
        cell.code = None if cell.size.exists else CODES[2]
        cell.too_large = cell.size.too_large()

    def move_cell(self, cell, row):
        g = cell.g
        recipe, src = row["src"].split(":")
        dst = row["dst"].split(":")[1]
        slots = [Slot(recipe, stream, dim, bits, self.block) for stream, dim, bits in (("k", g.dim, 3), ("v", g.dim_v, 2))]
        cell.words = sorted([word for word, holds in (
            ("head_order_transpose", (src == "head-major") != (dst == "head-major")), ("kv_merge", src == "kv-pools"),
            ("kv_split", dst == "kv-pools"), ("page_remap", (src == "table") != (dst == "table"))) if holds])
        blocks = g.tokens // self.block
        if blocks == 0 or not all(slot.exists for slot in slots):
            cell.code = CODES[2]
            return
        cell.a = cell.b = Pages(blocks * g.heads * sum(slot.bytes for slot in slots))
        cell.too_large, cell.reference, cell.payloads = cell.a.native * g.layers >= INT_LIMIT, recipe, 6

    def study_cell(self, cell, row):
        g = cell.g
        runs = (g.layers <= STUDY_LAYERS and g.heads <= 64 and g.dim == g.dim_v <= 1024 and g.dim % 2 == 0
                and 1 <= g.tokens <= 32768
                and all(Slot(row["dst"], stream, g.dim, bits, self.study_block).exists for stream, bits in (("k", 3), ("v", 2))))
        cell.code, cell.params = None if runs else CODES[2], row["params"]

    # -- proofs

    def store_proof(self, row, proof, path, seen, cell, unproven):
        here, size = path + "proof.", cell.size
        present = self.presence(proof, here, unproven)
        self.want(3, here + "kind", "codec-store-decode", proof.get("kind"))
        for key, number in (("rows", size.rows), ("encoded_rows", size.encoded), ("blocks", size.blocks)):
            if present(key):
                self.want(4, here + key, number, proof[key])

        def within(key, least, most):
            if not present(key):
                return None
            if not least <= proof[key] <= most:
                self.fault(4, here + key, "%d to %d" % (least, most), proof[key])
                return None
            return proof[key]

        part = size.slot is not None and size.slot.entries is not None
        overflow = within("overflow_blocks", 0, size.blocks if part else 0)
        fit, lanes = (size.slot.entries, size.slot.lanes) if part else (0, 0)
        if overflow is None:
            present("outliers")
        else:
            within("outliers", overflow * (fit + 1), (size.blocks - overflow) * min(fit, lanes) + overflow * lanes)
        within("saturated", 0, 2 * size.encoded)
        self.store_bytes(row, proof, path, size, overflow, unproven, present)
        for key in ("relative_l2_ppm", "worst_element_ppm", "cosine_ppm"):
            if key not in proof:
                present(key)
            elif size.nothing:
                self.want(2, here + key, None, proof[key])
            elif key == "cosine_ppm" and proof[key] is not None and abs(proof[key]) > PPM:
                self.fault(2, here + key, "at most 1000000 in magnitude", proof[key])
        if "value_preserving" in proof:
            self.want(2, here + "value_preserving", False, proof["value_preserving"])
        else:
            present("value_preserving")
        for o, keys in zip(STORE_OBSERVATIONS, DIGEST_PAIRS):
            known = [key for key in keys if present(key)]
            for key in known:
                if not decode_fits(key, proof[key]):
                    self.fault(13, here + key, "64 hex digits", proof[key])
            if seen[o] is not None and len(known) == 2:
                self.want(2, path + "observations." + o, proof[keys[0]] == proof[keys[1]], seen[o])
            elif seen[o] is not None and unproven:
                self.fault(2, path + "observations." + o, "null, as its digests are null", seen[o])

    def store_bytes(self, row, proof, path, size, overflow, unproven, present):
        src, dst = row["native_bytes"]["src"], row["native_bytes"]["dst"]
        if not unproven or src is not None:
            self.want(4, path + "native_bytes.src", size.plain, src)
        if overflow is not None and (not unproven or dst is not None):
            self.want(4, path + "native_bytes.dst", size.bytes + overflow * size.swap, dst)
        if "ratio_ppm" not in proof:
            present("ratio_ppm")
        elif dst == 0:
            self.want(2, path + "proof.ratio_ppm", None, proof["ratio_ppm"])
        elif dst is not None and present("ratio_ppm"):
            self.want(2, path + "proof.ratio_ppm", PPM * size.plain // dst, proof["ratio_ppm"])

    def study_proof(self, row, proof, path, seen, cell, unproven):
        here = path + "proof."
        present = self.presence(proof, here, unproven)
        self.want(3, here + "kind", "attribution-study", proof.get("kind"))
        for side in ("src", "dst"):
            if not unproven or row["native_bytes"][side] is not None:
                self.want(4, path + "native_bytes." + side, 0, row["native_bytes"][side])
        if present("passages"):
            self.want(4, here + "passages", self.passages, proof["passages"])
        scored = self.scores(proof, here, present, unproven)
        top1 = proof.get("top1_ppm") if scored else None
        if present("accept") and (scored or not unproven):
            self.want(2, here + "accept", self.acceptance(proof, scored), proof["accept"])
        for o, derived in (("logits_are_finite", scored), ("top1_identical", top1 == PPM)):
            if seen[o] is not None:
                self.want(2, path + "observations." + o, derived, seen[o])
        for key in ("k_error_ppm", "v_error_ppm"):
            if present(key) and proof[key] < -1:
                self.fault(2, here + key, "a number >= 0, or -1", proof[key])
        present("k_overflow_blocks")
        present("v_overflow_blocks")
        self.base_run(proof, here, cell, scored, present, unproven)

    def acceptance(self, proof, scored):
        change, top1 = abs(proof["ppl_change_ppm"]) if scored else 0, proof["top1_ppm"] if scored else -1
        if change <= 10000 and top1 >= 950000:
            return "ACCEPT"
        return "MARGINAL" if change <= 30000 and top1 >= 850000 else "REJECT"

    def scores(self, proof, here, present, unproven):
        """Whether the row has all scores: then they are the means of those of its passages."""
        keys = ("ppl_change_ppm", "kl_nano", "top1_ppm")
        values = [proof.get(key) for key in keys + ("nll_nano",)]
        scored, some = None not in values, any(v is not None for v in values)
        for key in keys + ("nll_nano",):
            if key not in proof or proof[key] is None and some and not unproven:
                present(key)
        in_range = scored and proof["top1_ppm"] <= PPM
        if scored and not in_range:
            self.fault(2, here + "top1_ppm", "0 to 1000000", proof["top1_ppm"])
        if not present("per_passage"):
            return scored
        passages = proof["per_passage"]
        if len(passages) != self.passages:
            self.fault(4, here + "per_passage", "%d passages" % self.passages, passages)
            return scored
        good, same = True, 0
        for i, passage in enumerate(passages):
            there = [passage[key] is not None for key in keys]
            if not all(there) if scored else any(there):
                self.fault(3, here + "per_passage[%d]" % i, "three scores, or none as the row has none", passage)
                good = False
            if not all(there) or not good:
                continue
            agree = agreeing(passage["top1_ppm"], self.evaluated)
            if agree is None:
                self.fault(2, here + "per_passage[%d].top1_ppm" % i, "the share of a number of tokens", passage["top1_ppm"])
                good = False
            same += agree or 0
        if good and scored:
            n, tokens = self.passages, self.passages * self.evaluated
            if in_range and 2 * abs(proof["top1_ppm"] * tokens - same * PPM) > tokens:
                self.fault(2, here + "top1_ppm", "the share of tokens that agree, by the passages", proof["top1_ppm"])
            for key in keys[:2]:
                if abs(proof[key] * n - sum(passage[key] for passage in passages)) > 2 * n:
                    self.fault(2, here + key, "the mean of the passages", proof[key])
        return scored

    def base_run(self, proof, here, cell, scored, present, unproven):
        """Rows of one geometry and seed have one base run; the same logits have the same scores."""
        if cell.index != self.bases_at:  # rows come by geometry
            self.bases, self.bases_at = {}, cell.index
        digests = []
        for key in ("base_logits_digest", "logits_digest"):
            digests.append(proof[key] if present(key) else None)
            if digests[-1] is not None and not decode_fits(key, digests[-1]):
                self.fault(13, here + key, "64 hex digits", digests[-1])
                digests[-1] = None
        nll = proof["base_nll_nano"] if present("base_nll_nano") else None
        for key, value in (("base_nll_nano", nll), ("base_logits_digest", digests[0])):
            if value is not None:
                self.want(13, here + key, self.bases.setdefault((key, cell.params["seed"]), value), value)
        identity, both = cell.params["cell"] == "identity", None not in digests
        code, same = 9 if identity else 2, both and digests[0] == digests[1]
        if identity and both and not same:
            self.fault(code, here + "logits_digest", "the base run's, as identity changes nothing", digests[1])
        no_change = scored and proof["ppl_change_ppm"] == proof["kl_nano"] == 0 and proof["top1_ppm"] == PPM and (
            nll is None or proof["nll_nano"] == nll)
        if (identity or same) and (scored or identity and not unproven) and not no_change:
            self.fault(code, here[:-1], "changes of 0, top-1 of 1000000 and the base run's likelihood", "others")


class TpRows:
    """The part of the verifier that docs/tp-rows.md is about."""

    def tp_section(self, given):
        known = ("pairs", "pages", "pipeline", "sizes", "sends", "chunk", "stored")
        paged, staged = ("pages" in given, "pipeline" in given) if isinstance(given, dict) else (False, False)
        alone = staged and not paged and isinstance(given, dict) and "pairs" not in given  # stages alone
        needed = () if alone else ("sizes",) if paged or staged else ("pairs", "sizes")
        section = self.section("tp", given, known, needed)
        whole = sorted(name for name, layout in self.layouts.items() if layout.tp[0] == 1)
        is_whole = lambda name: isinstance(name, str) and name in whole
        sizes = [] if alone else self.sizes_of(section, "tp.sizes")
        if alone and "sizes" in section:
            self.malformed("tp.sizes", "no such key without pairs or pages", section["sizes"])
        sends = self.name_list("tp", section, "sends", SENDS, ("whole",))
        self.chunk = self.number_in("tp", section, "chunk", 16, 1, 1 << 40)
        if "chunk" in section and "chunks" not in sends:
            self.malformed("tp.chunk", "no such key where no chunks are sent", section["chunk"])
        stored = section.get("stored", {})
        if (not isinstance(stored, dict) or "stored" in section and not stored
                or not all(is_whole(name) for pair in stored.items() for name in pair)):
            self.malformed("tp.stored", "layouts by the names of layouts", stored)
        pairs = [] if (paged or staged) and "pairs" not in section else self.pairs_of(section, "tp.pairs", whole)
        pairs = pairs + [[name, name] for name in (self.sealed_pages(section["pages"]) if paged else ())]
        cells = [("%s->%s" % (s, d), {"from": str(p), "send": send, "to": str(q)}) for s, d in pairs for p in sizes
                 for q in sizes for send in sends if (q == 1 < p if send == "shard" else s != d or p != q)]
        cells += self.pipeline(section["pipeline"], whole) if staged else []
        if len(cells) > 32768:
            self.malformed("tp.pairs", "at most 32768 cells a geometry", len(cells))
            return []
        if set(sends) - {params["send"] for _, params in cells} and (alone or pairs and sizes):
            self.malformed("tp.sends", "ways that a cell is sent in", sends)
        return sorted(cells, key=lambda cell: (cell[0].encode(), canonical(cell[1])))

    def sizes_of(self, section, where):
        sizes = section.get("sizes")
        if (not isinstance(sizes, list) or not 1 <= len(sizes) <= 64 or len(set(map(str, sizes))) != len(sizes)
                or any(kind_of(s) != "n" or not 1 <= s <= 64 for s in sizes)):
            self.malformed(where, "different numbers from 1 to 64", sizes)
            return []
        return sizes

    def pairs_of(self, section, where, names):
        pairs = section.get("pairs")
        if pairs == "all-ordered":
            return [[s, d] for s in names for d in names]
        if (not isinstance(pairs, list) or not pairs
                or any(not isinstance(p, list) or len(p) != 2 or any(not isinstance(n, str) or n not in names for n in p)
                       for p in pairs) or len(set(map(tuple, pairs))) != len(pairs)):
            self.malformed(where, "all-ordered, or pairs of layouts that can be named here, each once", pairs)
            return []
        return pairs

    def pipeline(self, given, whole):
        """Cells between pipeline stages."""
        section = self.section("tp.pipeline", given, ("pairs", "splits", "sizes"), ("pairs", "splits"))
        sizes = self.sizes_of(section, "tp.pipeline.sizes") if "sizes" in section else [1]
        pairs = self.pairs_of(section, "tp.pipeline.pairs", [n for n in whole if not self.layouts[n].has("L")])
        splits = section.get("splits")
        texts = [canonical(split).decode() for split in splits] if isinstance(splits, list) else []
        if (not 1 <= len(texts) <= 16 or len(set(texts)) != len(texts)
                or not all(self.is_split(split, max(sizes, default=1)) for split in splits)):
            self.malformed("tp.pipeline.splits", "numbers of stages or lists of stages, each once, of at most 64 ranks", splits)
            return []
        self.splits = dict(zip(texts, splits))
        self.stages, self.between = {}, {}
        return [("%s->%s" % (s, d), {"from": str(p), "from_stages": a, "send": "whole", "to": str(q), "to_stages": b})
                for s, d in pairs for p in sizes for q in sizes for a in texts for b in texts if (s, p, a) != (d, q, b)]

    def is_split(self, split, size):
        if not isinstance(split, list):
            return kind_of(split) == "n" and 1 <= split * size <= 64
        if not 1 <= len(split) * size <= 64 or any(not isinstance(stage, list) or not stage for stage in split):
            return False
        layers = [layer for stage in split for layer in stage]
        return (len(layers) <= 512 and all(kind_of(layer) == "n" and layer <= 65535 for layer in layers)
                and len(set(layers)) == len(layers))

    def stages_at(self, text, layers):
        """The stage of each layer, and how many there are; None where the split does not hold the layers of the model."""
        if (text, layers) not in self.stages:
            split = self.splits[text]
            if not isinstance(split, list):
                split = [range(i * layers // split, (i + 1) * layers // split) for i in range(split)] if split <= layers else []
            stages = {layer: i for i, stage in enumerate(split) for layer in stage}
            fits = set(stages) == set(range(layers))
            self.stages[text, layers] = ([stages[layer] for layer in range(layers)], len(split)) if fits else None
        return self.stages[text, layers]

    def layers_between(self, texts, layers):
        """How many layers go from which stage of the one split to which of the other."""
        key = (*texts, layers)
        if key not in self.between:
            a, b = (self.stages_at(text, layers)[0] for text in texts)
            self.between[key] = collections.Counter(zip(a, b))
        return self.between[key]

    def sealed_pages(self, pages):
        """Sides of sealed pages of the codec."""
        recipes, block = (pages.get("recipes"), pages.get("block", 512)) if isinstance(pages, dict) else (None, None)
        if (not isinstance(recipes, list) or not recipes or set(pages) > {"recipes", "block"} or kind_of(block) != "n"
                or any(not isinstance(r, str) or r not in PAGED for r in recipes) or len(set(recipes)) != len(recipes)
                or not 2 <= block <= 65536 or block & (block - 1)):
            self.malformed("tp.pages", "recipes kv1 and published-serving, each once, and a power of two as block", pages)
            return []
        self.page_block = block
        return [recipe + ":pages" for recipe in recipes]

    def shard_of(self, layout, size, g, layers):
        shard = copy.copy(layout)
        shard.tp = (size, 0)
        return Bound(shard, g, layers)

    def layout_sides(self, cell, row, sizes, send):
        """Whole images and shards of a cell of layouts; its words; lanes of a head, tokens and rounds on the wire."""
        g, whole = cell.g, [self.layouts[row["src"]], self.layouts[row["dst"]]]
        layers = g.layers if any(layout.has("L") for layout in whole) else 1
        full = [self.bound(layout, cell.index, layers) for layout in whole]
        shards = [self.shard_of(layout, size, g, layers) for layout, size in zip(whole, sizes)]
        latent = whole[0].kv == "latent"
        cell.payloads, cell.reference, cell.heads = self.payloads(g), (sizes[1], latent), 1 if latent else g.heads
        if frontier_of(full[0], full[1]) == "X1_LATENT_KV":
            cell.code = "X1_LATENT_KV"
        cell.rounds = {"layers": layers, "chunks": self.chunk_rounds(g.tokens, whole[0].block or 1)}.get(send, 1)
        return full, shards, words_of(full[0], full[1], g), (g.dim if latent else g.dim + g.dim_v) * g.tokens

    def page_sides(self, cell, row, sizes, send):
        """The same of sealed pages."""
        g, recipe = cell.g, row["src"].split(":")[0]
        slots = [Slot(recipe, stream, dim, bits, self.page_block) for stream, dim, bits in (("k", g.dim, 3), ("v", g.dim_v, 2))]
        blocks, page = g.tokens // self.page_block, sum(slot.bytes for slot in slots)
        exists = blocks > 0 and all(slot.exists for slot in slots)
        cell.payloads, cell.reference, cell.heads = 6, (sizes[1], recipe), g.heads
        full, shards = [], []
        for size in sizes:
            full.append(Pages(blocks * g.heads * page))
            shard = g.heads % size == 0 or size % g.heads == 0
            held = (0, max(g.heads // size, 1)) if shard else None
            shards.append(Pages(blocks * held[1] * page if shard else 0))
            shards[-1].held, shards[-1].exists = held, shard and exists
        cell.too_large = exists and blocks * g.heads * page * g.layers >= INT_LIMIT // 64
        cell.rounds = 1
        if send == "chunks" and exists:
            before = (g.tokens - 1) // self.chunk
            cell.rounds = blocks if self.chunk <= self.page_block else before + (blocks > before * self.chunk // self.page_block)
        return full, shards, ["view_reinterpret"], page * blocks

    def tp_cell(self, cell, row):
        g, params = cell.g, row["params"]
        sizes, one = [int(params["from"]), int(params["to"])], params["send"] == "shard"
        sides = self.page_sides if ":" in row["src"] else self.layout_sides
        full, shards, words, head = sides(cell, row, sizes, params["send"])
        heads, cell.tail, cell.one, cell.whole = cell.heads, self.tails[0], shards[0], full[1]
        if cell.too_large:
            return
        exist = [shard.held is not None for shard in shards]
        # the heads that each rank of each size holds
        held = [[set(range(r * heads // s, max((r + 1) * heads // s, r * heads // s + 1))) for r in range(s)] for s in sizes]
        stages, travel = [([0], 1)] * 2, {(0, 0): 1}  # of one stage, all layers are there
        if "from_stages" in params:
            texts = params["from_stages"], params["to_stages"]
            stages = [self.stages_at(text, g.layers) for text in texts]
            travel = self.layers_between(texts, g.layers) if None not in stages else None
            cell.reference += (params["to_stages"],)
        fit = None not in stages
        if cell.code is not None:
            pass
        elif not (shards[0].exists and shards[1].exists and fit):
            cell.code = "X4_GEOMETRY_UNREPRESENTABLE"
        elif one and len(held[0][0]) != heads:
            cell.code = "X2_HEAD_GATHER"
        if cell.code == "X1_LATENT_KV" or not all(exist) or one and len(held[0][0]) != heads:
            cell.too_large = full[1].exists and full[1].too_large
            return
        if one:
            sizes[0], held[0] = 1, held[0][:1]
        more = {word for word, holds in (("tp_reshard", len(held[0][0]) != len(held[1][0])), ("head_replicate", sizes[1] > heads),
                                         ("head_dedupe", sizes[0] > heads),
                                         ("pp_reshard", fit and any(i != k for i, k in travel))) if holds}
        cell.words = sorted(set(words) - ({"view_reinterpret"} if more else set()) | more)
        if cell.code is not None:
            return
        for shard, size in zip(shards, sizes):
            shard.native, shard.elements = shard.native * size, shard.elements * size
            cell.too_large |= shard.too_large or shard.native > INT_LIMIT
        cell.a, cell.b, cell.ranks = shards[0], shards[1], max(size * n for size, (_, n) in zip(sizes, stages))
        head *= min(shard.bytes for shard in shards) * (1 if "from_stages" in params else g.layers)

        def lacking(there, back):
            """Heads that travel, by layer: rank r of stage i is rank i x size + r."""
            size, wants = len(held[there]), held[back]
            total = 0
            for ends, layers in travel.items():
                i, k = ends[there], ends[back]
                source = {i * size + r: has for r, has in enumerate(held[there])}
                total += layers * sum(len(has - source.get(k * len(wants) + r, set())) for r, has in enumerate(wants))
            return total

        cell.least = head * lacking(0, 1), head * lacking(1, 0)
        cell.too_large |= max(cell.least) >= INT_LIMIT

    def chunk_rounds(self, tokens, block):
        """Chunks that complete a page which was not sent before."""
        sent, rounds = 0, 0
        for here in range(self.chunk, tokens + self.chunk, self.chunk) if tokens // self.chunk < 10 ** 6 else ():
            ready = tokens if here >= tokens else here // block * block
            rounds, sent = rounds + (ready > sent), ready
        return rounds if tokens // self.chunk < 10 ** 6 else min(-(-tokens // self.chunk),
                                                                 (tokens - 1) // self.chunk * self.chunk // block + 1)

    def tp_proof(self, row, proof, path, seen, cell, unproven):
        here, present = path + "proof.", self.presence(proof, path + "proof.", unproven)
        if self.presence(proof, here, False)("ranks"):
            self.want(4, here + "ranks", cell.ranks, proof["ranks"])
        there, back = cell.least
        for key, number in (("rounds", cell.rounds), ("wire_bytes", there), ("least_wire_bytes", there),
                            ("wire_bytes_back", back), ("least_wire_bytes_back", back), ("wire_minimal", True)):
            if present(key):
                self.want(4, here + key, number, proof[key])
        self.want(3, here + "witness", None, proof.get("witness", "missing"))
        self.proof(row, proof, path, seen, cell, unproven)

    def tp_witness(self, row, proof, path, cell):
        here, witness = path + "proof.witness", proof.get("witness", "missing")
        if cell.code != "X2_HEAD_GATHER":
            self.want(3, here, None, witness)
            return
        if not isinstance(witness, dict):
            self.fault(3, here, "two caches that have the same shard", witness)
            return
        heads, whole = len(range(cell.one.held[1])), cell.whole
        for key, number in (("shard_heads", heads), ("heads", cell.heads), ("whole_positions", whole.native),
                            ("shard_positions", cell.one.native), ("shard_differs", 0)):
            self.want(4, here + "." + key, number, witness[key])
        most = whole.elements // cell.heads * (cell.heads - heads)  # the shard's own heads do not differ
        if witness["whole_differs"] > most or witness["whole_differs"] == 0 and cell.g.tokens > 0:
            self.fault(4, here + ".whole_differs", "positions of the heads that the shard lacks", witness["whole_differs"])

    def note_tp(self, row, proof):
        witness = proof.get("witness")
        if row["frontier_code"] == "X2_HEAD_GATHER":
            self.shown_rows += 1
            self.tp_wrong |= not witness or witness["shard_differs"] != 0 or witness["shard_heads"] >= witness["heads"]
        if row["verdict"] not in DID_NOT_RUN:
            self.resharded_rows += 1
            self.tp_wrong |= (proof.get("wire_minimal") is not True or proof.get("wire_bytes") != proof.get("least_wire_bytes")
                              or proof.get("wire_bytes_back") != proof.get("least_wire_bytes_back"))


# ---- the verifier ----------------------------------------------------------------------------------


class Verifier(CodecRows, TpRows):
    def __init__(self, trusted, required=None, check_signature=openssl_verify):
        self.trusted, self.required, self.check_signature = trusted, required or REQUIRED, check_signature
        self.faults, self.signature_checked = [], True
        self.claimed = dict.fromkeys(VERDICTS, 0)
        self.positions, self.rows, self.content_read, self.measured = 0, 0, False, False
        self.key_id = ""

    def fault(self, code, path, expected, actual):
        text = actual if isinstance(actual, str) else json.dumps(actual, ensure_ascii=False)
        self.faults.append((code, path, str(expected), text[:240]))

    def want(self, code, path, expected, actual):
        if type(expected) is type(actual) and expected == actual:
            return True
        self.fault(code, path, json.dumps(expected), actual)
        return False

    def verify(self, data, path=None):
        """path: where the document was read from; its row file stands beside it."""
        self.path = path
        try:
            doc = parse(data)
        except Unreadable as error:
            self.fault(0, "$", "one JSON document", str(error))
            return self
        if canonical(doc) != data:
            self.fault(0, "$", "canonical JSON", "other bytes")
        before = len(self.faults)
        for path, expected, actual in shape_faults(doc, ("o", DOCUMENT), "$"):
            self.fault(0, path, expected, actual)
        if isinstance(doc, dict):
            if "rows_file" in doc and doc.get("rows") and isinstance(doc["rows"], list):
                self.fault(0, "$.rows", "[] beside rows_file", doc["rows"])
            if isinstance(doc.get("schema"), str):
                self.want(0, "$.schema", "kvgrid.certificate/v1", doc["schema"])
            self.signature(doc)
        shaped = lambda: not any(f[0] == 0 for f in self.faults[before:])
        for path, expected, actual in format_faults(doc) if shaped() else ():
            self.fault(0, path, expected, actual)
        if shaped():
            self.doc = doc
            self.content()
        return self

    def exit_code(self, allow_unproven=False):
        codes = {f[0] for f in self.faults}
        if codes:
            return 1 if 0 in codes else 3
        if not self.signature_checked:
            return 2
        unproven = self.claimed["UNPROVEN"] and not allow_unproven
        return 4 if self.claimed["FAILED"] or unproven or self.nothing_checked() else 0

    def nothing_checked(self):
        return not self.positions and not self.measured

    # -- signature

    def signature(self, doc):
        if "body_digest" in doc:
            self.want(1, "$.body_digest", digest(without(doc, "run", "body_digest", "signature")), doc["body_digest"])
        sig = doc.get("signature")
        if not isinstance(sig, dict) or not isinstance(sig.get("public_key"), str) or not isinstance(sig.get("sig"), str):
            return
        self.want(1, "$.signature.alg", "ed25519", sig.get("alg"))
        if not re.fullmatch("[0-9a-f]{64}", sig["public_key"]):
            self.fault(1, "$.signature.public_key", "64 hex digits", "signature wrong: other text")
            return
        public = bytes.fromhex(sig["public_key"])
        self.key_id = key_id(public)
        self.want(1, "$.signature.key_id", self.key_id, sig.get("key_id"))
        good = re.fullmatch("[0-9a-f]{128}", sig["sig"]) is not None
        if good:
            good = self.check_signature(public, canonical(without(doc, "signature")), bytes.fromhex(sig["sig"]))
        if good is None:
            self.signature_checked = False
        elif not good:
            self.fault(1, "$.signature.sig", "the signature of these bytes by this key", "signature wrong")
        if not self.trusted:
            self.fault(1, "$.signature.public_key", "a signer that the caller trusts", "no trust given")
        elif public not in self.trusted:
            self.fault(1, "$.signature.public_key", "a signer that the caller trusts", "signer unknown: key " + self.key_id)

    # -- declarations

    def content(self):
        self.guards()
        self.ranks()
        good = self.catalogue() and self.declarations()
        if self.all_rows(good):
            self.missing_cells()
            if +self.told:
                self.fault(10, "$.run.failures", "a FAILED row for each entry", "%d entries without one" % sum(self.told.values()))
            self.counts()
            self.vocabulary()
            self.checks()
            self.boundary()

    def declarations(self):
        spec_good = self.spec()
        if not self.geometry_list():
            return False
        self.bindings()
        if spec_good:
            self.method()
        return spec_good

    def has_codec(self):
        return bool({"codec", "attribution"} & set(self.doc["campaign"]["spec"]))

    def has_tp(self):
        return "tp" in self.doc["campaign"]["spec"]

    def guards(self):
        for kind, flag in (("controls", "passed"), ("checks", "passed"), ("known_limits", "demonstrated")):
            names, seen = list(self.required[kind]), set()
            if kind == "checks" and self.has_codec():
                names.append("codec_agrees")
            if kind == "checks" and self.has_tp():
                names.append("tp_wire_is_minimal")
            for i, entry in enumerate(self.doc[kind]):
                path, name = "$.%s[%d]." % (kind, i), entry["name"]
                self.want(9, path + flag, True, entry[flag])
                if name not in names or name in seen:
                    self.fault(8, path + "name", "each name once" if name in seen else "a name that can be judged here", name)
                for key in ("expected_guard", "actual_guard") if kind == "controls" and name in names else ():
                    self.want(9, path + key, GUARDS[name], entry[key])
                seen.add(name)
            for name in names:
                if name not in seen:
                    self.fault(8, "$." + kind, name, "no entry of this name")

    def ranks(self):
        run = self.doc["run"]
        if not run["devices"]:
            self.fault(10, "$.run.devices", "at least one", "none")
        self.want(10, "$.run.ranks", len(run["devices"]), run["ranks"])
        following = 0
        for i, entry in enumerate(run["devices"]):
            if entry["rank"] != following and not (entry["rank"] == 0 and "parts" in run):
                self.fault(10, "$.run.devices[%d].rank" % i, "each rank once, in order", entry["rank"])
                break
            following = entry["rank"] + 1
        self.transports(run)
        wire = run.get("wire", [])
        if "wire" in run and ("parts" in run or not run["transports"]):
            self.fault(10, "$.run.wire", "no such key where there are parts, or no transport", str(len(wire)))
        elif "wire" in run and (not wire or len(wire) != len(run["devices"])):
            self.fault(10, "$.run.wire", "one entry for each rank", str(len(wire)))
        for i, entry in enumerate(wire):
            self.want(10, "$.run.wire[%d].rank" % i, i, entry["rank"])
            self.want(10, "$.run.wire[%d].received" % i, entry["least"], entry["received"])
        if sum(entry["sent"] - entry["received"] for entry in wire) % 2**64:
            self.fault(10, "$.run.wire", "as many bytes sent as received", "others")

    def transports(self, run):
        """Only where the campaign moves shards, one a run: NCCL between GPUs, MPI between ranks."""
        names, needed = run["transports"], {"nccl": ("two ranks whose device is cuda", {"cuda"}), "mpi": ("two ranks", set(DEVICES))}
        if names and not self.has_tp():
            self.fault(10, "$.run.transports", "none where the campaign has no tp", names)
        for i, name in enumerate(names):
            here, (wanted, devices) = "$.run.transports[%d]" % i, needed.get(name, ("", None))
            if name in names[:i] or i > 0 and "parts" not in run:
                self.fault(10, here, "one transport of a run, of parts each once", name)
            if devices is not None and sum(entry["device"] in devices for entry in run["devices"]) < 2:
                self.fault(10, here, wanted, name)
        told = {why.split(": ")[0] if ": " in why else None for why in run.get("transports_why", [])}
        if "transports_why" in run and told != set(names):
            self.fault(10, "$.run.transports_why", '"TRANSPORT: REASON" of each of run.transports, and no other',
                       run["transports_why"])

    def checks(self):
        """What the checks come to by rows and controls: a check that says better is worth nothing."""
        claims = self.claims or {}
        held = lambda name: next((entry["passed"] for entry in self.doc["controls"] if entry["name"] == name), False)
        holds = {
            "codec_agrees": not self.codec_disagrees,
            "tp_wire_is_minimal": not self.tp_wrong,
            "token_class_is_unread_padding": not self.class_is_not_padding,
            "token_identical_means_padding_only": not self.differs_elsewhere,
            "reference_sequence_not_degenerate": self.reference_varies or not self.has_tokens,
            "claimed_vocabulary_exercised": set(claims.get("words", [])) <= self.seen_words | self.seen_codes,
            "claimed_frontier_codes_reached": set(claims.get("frontier_codes", [])) <= self.seen_words | self.seen_codes,
            "token_leg_not_vacuous": held("corrupted_cache_element") and held("source_tail_in_the_tokens"),
            "round_trip_alone_is_not_exact": held("reinterpreting_translator")}
        for i, entry in enumerate(self.doc["checks"]):
            if entry["passed"] and not holds.get(entry["name"], True):
                self.fault(9, "$.checks[%d].passed" % i, "false, by the rows and controls", True)

    def boundary(self):
        """The lines that follow from the campaign and its rows."""
        exact = self.counted["EXACT_BYTE"] + self.counted["EXACT_TOKEN"]
        wanted = {
            "holds": ["The shapes of %d declared layouts, each with its citation." % len(self.layouts),
                      "The canonical tensor [L][KV][T][H][D] as the common meaning of all layouts.",
                      "Every native position of both sides was checked in %d rows: %d destination and %d source positions."
                      % (self.ran_rows, self.sums["positions_checked"], self.sums["source_positions_checked"]),
                      "In %d rows tokens and logits equal those of a reference that this run computed itself through the "
                      "same decode." % self.decoded_rows],
            "does_not_hold": ["That any engine accepts these bytes.",
                              "Any geometry other than the %d listed." % len(self.geometries),
                              "Throughput, latency, memory or cost of any engine.",
                              "The counts are no statement about vendors."],
            "note": "The %d refused rows are as much the result as the %d exact ones." % (self.counted["REFUSED"], exact)}
        if self.has_codec():
            wanted["holds"].append("%d codec rows were stored and read back by a fast implementation and by a plain one, and %d "
                                   "attribution rows come from a small model with weights made up from a seed."
                                   % (self.stored_rows, self.studied_rows))
            wanted["does_not_hold"].append("That a loss measured on made-up rows or on the small model is that of any language "
                                           "model.")
        if self.has_tp():
            wanted["holds"].append("In %d tp rows shards were moved between ranks, and each rank received what it lacked and no "
                                   "more; %d refusals show two caches that have the same shard."
                                   % (self.resharded_rows, self.shown_rows))
            wanted["does_not_hold"].append("That an engine's own transfer between tensor-parallel sizes sends these bytes.")
        for key, lines in wanted.items():
            self.want(10, "$.boundary." + key, lines, self.doc["boundary"][key])

    def catalogue(self):
        entries = self.doc["catalogue"]
        if len(entries) > LIST_MAX:
            self.fault(0, "$.catalogue", "at most %d layouts" % LIST_MAX, "more")
            return False
        layouts, good = [], True
        for i, entry in enumerate(entries):
            layout = Layout(without(entry, "digest"))
            layouts.append(layout)
            for key, expected in layout.faults:
                good = False
                self.fault(0, "$.catalogue[%d].%s" % (i, key), expected, entry.get(key))
            self.want(11, "$.catalogue[%d].digest" % i, digest(without(entry, "digest")), entry["digest"])
        if not good:
            return False
        for i in range(1, len(layouts)):
            if layouts[i - 1].name >= layouts[i].name:
                self.fault(11, "$.catalogue[%d].name" % i, "names in order, each once", layouts[i].name)
        self.layouts = {layout.name: layout for layout in layouts}
        self.names = {name: i for i, name in enumerate(sorted(self.layouts, key=str.encode))}
        return len(self.layouts) == len(layouts)

    def malformed(self, key, expected, value):
        self.fault(0, "$.campaign.spec." + key, expected, value)
        self.spec_good = False

    def spec(self):
        campaign, spec = self.doc["campaign"], self.doc["campaign"]["spec"]
        self.spec_good = True
        if isinstance(spec.get("name"), str):
            self.want(11, "$.campaign.name", spec["name"], campaign["name"])
        else:
            self.malformed("name", "a text", spec.get("name"))
        digests = {entry["name"]: entry["digest"] for entry in self.doc["catalogue"]}
        self.want(11, "$.campaign.digest", digest({"layouts": digests, "spec": spec}), campaign["digest"])
        known = "schema name select pairs geometries tail values seed claims floors expect part codec attribution tp".split()
        for key in spec:
            if key not in known:
                self.malformed(key[:64], "no such key", spec[key])
        if spec.get("schema") != "kvgrid.campaign/v1":
            self.malformed("schema", "kvgrid.campaign/v1", spec.get("schema"))
        if "expect" in spec:
            self.expectations(spec["expect"])
        self.values = spec.get("values", "payloads")
        if self.values not in ("payloads", "exhaustive"):
            self.malformed("values", "payloads or exhaustive", self.values)
        self.seed = spec.get("seed", 1)
        if isinstance(self.seed, str) and re.fullmatch("0*[0-9]{1,20}", self.seed) and int(self.seed[-20:]) < 1 << 64:
            self.seed = int(self.seed[-20:])
        elif kind_of(self.seed) != "n":
            self.malformed("seed", "a number", self.seed)
        self.claims, self.given_floors = spec.get("claims"), spec.get("floors", {})
        self.check_claims()
        if not isinstance(self.given_floors, dict) or any(k not in FLOORS or kind_of(n) != "n"
                                                          for k, n in self.given_floors.items()):
            self.malformed("floors", "numbers by the names of floors", self.given_floors)
        self.select(spec)
        self.codec = self.codec_section(spec["codec"]) if "codec" in spec else None
        self.study = self.study_section(spec["attribution"]) if "attribution" in spec else None
        self.tp = self.tp_section(spec["tp"]) if "tp" in spec else None
        if (self.has_codec() or self.has_tp()) and "pairs" not in spec:
            self.pairs = set()  # these alone
        else:
            self.pair_selection(spec.get("pairs"))
        self.tail_selection(spec.get("tail", "stale"))
        self.part_of_campaign(spec)
        return self.spec_good

    def expectations(self, rules):
        """Only the shape: what a gate expects decides nothing in the body."""
        if not isinstance(rules, list) or not 1 <= len(rules) <= 2048:
            self.malformed("expect", "a list of rules", rules)
            return
        for i, rule in enumerate(rules):
            fault = expect_fault(rule)
            if fault is not None:
                self.malformed("expect[%d]" % i, fault, rule)

    def part_of_campaign(self, spec):
        self.part = self.parts = 1
        if "part" not in spec:
            return
        found = re.fullmatch("([1-9][0-9]{0,4})/([1-9][0-9]{0,4})", spec["part"]) if isinstance(spec["part"], str) else None
        if found is None or not int(found[1]) <= int(found[2]) <= 65536:
            self.malformed("part", "i/n", spec["part"])
            return
        self.part, self.parts = int(found[1]), int(found[2])
        self.claims, self.given_floors = None, {}  # they hold for the whole campaign

    def cell_number(self, geometry, src, dst, tail):
        n = len(self.names)
        return ((geometry * n + self.names[src]) * n + self.names[dst]) * len(self.tails) + self.tails.index(tail)

    def in_part(self, geometry, src, dst, tail):
        return self.parts == 1 or self.number_in_part(self.cell_number(geometry, src, dst, tail))

    def number_in_part(self, number):
        return (number * 2654435761 & 0xFFFFFFFF) // 65536 % self.parts + 1 == self.part

    def check_claims(self):
        claims = self.claims
        if claims is None and "claims" not in self.doc["campaign"]["spec"]:
            return
        good = isinstance(claims, dict) and set(claims) <= {"words", "frontier_codes", "checks"}
        if not good or not all(text_list(entry) for entry in claims.values()):
            self.malformed("claims", "lists of texts", claims)

    def select(self, spec):
        if "select" not in spec:
            return
        if not text_list(spec["select"]):
            self.malformed("select", "a list of names and patterns", spec["select"])
            return
        chosen = set()
        for i, pattern in enumerate(spec["select"]):
            found = {name for name in self.layouts if matches(pattern, name)}
            if not found:
                self.fault(11, "$.campaign.spec.select[%d]" % i, "a layout of the catalogue", pattern)
            chosen |= found
        for name in self.layouts:
            if name not in chosen:
                self.fault(11, "$.catalogue", "only layouts that campaign.spec selects", name)

    def pair_selection(self, pairs):
        names = list(self.layouts)
        if pairs == "all-ordered":
            self.pairs = {(s, d) for s in names for d in names if s != d}
        elif pairs == "published":
            if "vllm-fa" not in self.layouts:
                self.fault(11, "$.campaign.spec.pairs", "the layout vllm-fa", "no such layout")
            lossless = {n for n in names if self.layouts[n].role == "lossless"}
            self.pairs = {(s, d) for s in names for d in names if s != d and (
                s in lossless and d in lossless or s == "vllm-fa" and d not in lossless
                or d == "vllm-fa" and s not in lossless)}
        elif isinstance(pairs, list) and pairs:
            self.pairs = set()
            for i, entry in enumerate(pairs):
                if (not isinstance(entry, list) or len(entry) != 2 or not all(isinstance(n, str) for n in entry)
                        or entry[0] == entry[1]):
                    self.malformed("pairs[%d]" % i, "[SRC, DST] of two layouts", entry)
                    return
                unknown = [n for n in entry if n not in self.layouts]
                for n in unknown:
                    self.fault(11, "$.campaign.spec.pairs[%d]" % i, "a layout of the catalogue", n)
                if not unknown and tuple(entry) in self.pairs:
                    self.fault(12, "$.campaign.spec.pairs[%d]" % i, "each pair once", entry)
                if not unknown:
                    self.pairs.add(tuple(entry))
        else:
            self.malformed("pairs", "all-ordered, published or a list of pairs", pairs)

    def tail_selection(self, tail):
        tails = tail if isinstance(tail, list) else [tail]
        if not 1 <= len(tails) <= 3 or any(t not in ("stale", "zero", "nan") or not isinstance(t, str) for t in tails):
            self.malformed("tail", "stale, zero, nan or a list of them", tail)
        elif len(set(tails)) != len(tails):
            self.fault(12, "$.campaign.spec.tail", "each tail once", tail)
        self.tails = sorted({t for t in tails if isinstance(t, str)})

    def geometry_list(self):
        self.geometries = [Geometry(obj) for obj in self.doc["geometries"]]
        good = True
        for i, (g, obj) in enumerate(zip(self.geometries, self.doc["geometries"])):
            if not g.good or obj.get("head_dim_v") == g.dim:
                self.fault(0, "$.geometries[%d]" % i, "a geometry", obj)
                good = False
        if not good:
            return False
        if len({g.key() for g in self.geometries}) != len(self.geometries):
            self.fault(12, "$.geometries", "each geometry once", "one stands twice")
        declared = self.doc["campaign"]["spec"].get("geometries")
        if not isinstance(declared, list) or not declared:
            self.fault(0, "$.campaign.spec.geometries", "a list of geometries", declared)
            return False
        at = 0
        for i, obj in enumerate(declared):
            for g in expand_geometry(obj):
                if g is None:
                    self.fault(0, "$.campaign.spec.geometries[%d]" % i, "values or lists of values", obj)
                    return False
                if at < len(self.geometries) and g.key() != self.geometries[at].key():
                    self.fault(11, "$.geometries[%d]" % at, "the geometry that campaign.spec expands to", "another")
                at += 1
                if at > len(self.geometries):
                    break
        if at != len(self.geometries):
            self.fault(11, "$.geometries", "%d or more geometries" % at, len(self.geometries))
        return True

    def bindings(self):
        entries, names = self.doc["bindings"], sorted(self.layouts)
        wanted = ((i, g, name) for i, g in enumerate(self.geometries) for name in names)
        if len(entries) != len(self.geometries) * len(names):
            self.fault(11, "$.bindings", len(self.geometries) * len(names), len(entries))
        for k, (entry, (i, g, name)) in enumerate(zip(entries, wanted)):
            path, layout = "$.bindings[%d]." % k, self.layouts[name]
            own = Bound(layout, g, g.layers if layout.has("L") else 1)
            self.want(11, path + "layout", name, entry["layout"])
            self.want(11, path + "geometry", i, entry["geometry"])
            if own.exists and own.too_large:
                self.fault(0, "$.geometries[%d]" % i, "sizes that a certificate can say", name)
                continue
            self.want(11, path + "exists", own.exists, entry["exists"])
            shapes = {"k": own.sizes[0], "v": own.sizes[1]} if own.exists else None
            self.want(11, path + "native_shapes", shapes, entry["native_shapes"])
            if own.exists and entry["reason"] is not None or not own.exists and not entry["reason"]:
                self.fault(11, path + "reason", "a reason exactly where it does not exist", entry["reason"])
            self.want(11, path + "is_identity", own.exists and is_identity(own), entry["is_identity"])
        self.doc["bindings"] = []  # by far the largest list of a sweep, and not needed any more

    def method(self):
        method, spec = self.doc["method"], self.doc["campaign"]["spec"]
        every = self.values == "exhaustive"
        self.want(3, "$.method.payloads", max((self.payloads(g) for g in self.geometries), default=0 if every else 6),
                  method["payloads"])
        self.want(13, "$.method.decode_steps", 8, method["decode_steps"])
        self.want(13, "$.method.vocabulary", 64, method["vocabulary"])
        kinds = method["payload_kinds"]
        if kinds != ["every_bit_pattern"] if every else len(kinds) != 6 or len(set(kinds)) != 6 or "" in kinds:
            self.fault(3, "$.method.payload_kinds", "every_bit_pattern" if every else "six different names", kinds)
        self.want(11, "$.method.values", self.values, method["values"])
        self.want(11, "$.method.weight_seed", str(self.seed), method["weight_seed"])
        self.want(11, "$.method.value_seed", str(self.seed), method["value_seed"])
        self.want(11, "$.method.tail", spec.get("tail", "stale"), method["tail"])
        bits = method["tail_bits"]
        if set(bits) != set(self.tails):
            self.fault(2, "$.method.tail_bits", self.tails, bits)
        for tail in self.tails:
            one = bits.get(tail)
            if not isinstance(one, dict) or set(one) != set(ELEMENT_BYTES):
                self.fault(2, "$.method.tail_bits." + tail, "an entry for each element type", one)
                continue
            for name, size in ELEMENT_BYTES.items():
                if not tail_bits_fit(tail, name, size, one[name]):
                    self.fault(2, "$.method.tail_bits.%s.%s" % (tail, name), "bits of this tail model", one[name])

    def payloads(self, g):
        return 1 << 8 * ELEMENT_BYTES[g.element] if self.values == "exhaustive" else 6

    # -- rows

    def rows_in_file(self):
        """Yields the rows of the row file with whether all so far have the right types; then compares the file."""
        declared, typed, file = self.doc["rows_file"], True, None
        try:
            file = RowFile(None if self.path is None else self.path + ".rows")
            for i, row in enumerate(file):
                for path, expected, actual in shape_faults(row, ("o", ROW), "$.rows[%d]" % i):
                    self.fault(0, path, expected, actual)
                    typed = False
                yield row, typed
        except (OSError, Unreadable) as error:
            at = "$.rows[%d]" % (file.count if file else 0)
            self.fault(0, at, "a row file of canonical rows, each with its newline", str(error))
            self.rows_read = False
            return
        self.rows_read = typed
        for code, key, found in ((10, "count", file.count), (10, "bytes", file.bytes), (1, "merkle_root", file.root())):
            self.want(code, "$.rows_file." + key, found, declared[key])

    def all_rows(self, judge):
        """Reads all rows, and judges them where the declarations are good; whether that could be done to the end."""
        self.rows_read = True
        if not judge:
            for _ in self.rows_in_file() if "rows_file" in self.doc else ():
                pass
            return False
        self.seen_words, self.seen_codes, self.cells = set(), set(), {}
        self.counted = dict.fromkeys(VERDICTS, 0)
        self.sums = dict.fromkeys("positions_checked source_positions_checked view_rows same_image_rows empty_rows".split(), 0)
        self.exact_found = self.exact_possible = False
        self.bounds, self.references, self.references_at = {}, {}, None
        self.told = collections.Counter(failure_key(f) for f in self.doc["run"]["failures"])
        self.ran_rows = self.decoded_rows = 0
        self.has_tokens = self.reference_varies = self.class_is_not_padding = self.differs_elsewhere = False
        self.stored_rows = self.studied_rows = 0
        self.measured = self.codec_disagrees = self.tp_wrong = False
        self.resharded_rows = self.shown_rows = 0
        self.bases, self.bases_at, self.made_checks = {}, None, set()
        self.point_cache, self.points_before = {}, {}
        last, misplaced, bound_at = None, False, None
        rows = self.rows_in_file() if "rows_file" in self.doc else ((row, True) for row in self.doc["rows"])
        for i, (row, typed) in enumerate(rows):
            self.rows += 1
            if not typed:
                continue
            if row["geometry"] != bound_at:  # rows come by geometry: what is bound to one is not needed at the next
                self.bounds, bound_at = {}, row["geometry"]
            cell, doubled = self.cell_of(row, i), False
            if cell is not None:
                self.row(row, "$.rows[%d]." % i, cell)
                self.made_checks.add(row["check"])
                key = cell.key
                doubled = key in self.cells
                if doubled:
                    self.fault(12, "$.rows[%d]" % i, "each cell once", "the same cell as row %d" % self.cells[key])
                self.cells.setdefault(key, i)
            if doubled:
                continue
            place = (row["check"].encode(), row["geometry"], row["pair_id"].encode(), canonical(row["params"]))
            if last is not None and last > place and not misplaced:
                self.fault(10, "$.rows[%d]" % i, "rows in order", row["pair_id"])
                misplaced = True
            last = place
        return self.rows_read

    def missing_cells(self):
        absent, missing, listed = self.absent_cells(), -len(self.cells), 0
        if self.parts == 1:
            missing += len(self.pairs) * len(self.geometries) * len(self.tails)
            missing += sum(len(self.points(check, i)) for check in POINT_CHECKS for i in range(len(self.geometries)))
        else:
            missing += sum(self.in_part(i, s, d, tail) for i in range(len(self.geometries)) for s, d in self.pairs
                           for tail in self.tails)
            missing += sum(self.point_in_part(check, i, place) for check in POINT_CHECKS for i in range(len(self.geometries))
                           for place in range(len(self.points(check, i))))
        while listed < min(missing, 100):
            self.fault(15, "$.rows", next(absent), "no row")
            listed += 1
        if missing > listed:
            self.fault(15, "$.rows", "%d further cells" % (missing - listed), "no row")

    def absent_cells(self):
        """Names the cells without a row, and notes that one of them might have been exact."""
        for check in POINT_CHECKS:
            for i in range(len(self.geometries)):
                for place, point in enumerate(self.points(check, i)):
                    if (check, i, place) not in self.cells and self.point_in_part(check, i, place):
                        yield "%s %s %s at geometry %d" % (check, point[0], canonical(point[1]).decode(), i)
        for i, g in enumerate(self.geometries):
            for s, d in sorted(self.pairs):
                for tail in self.tails:
                    if self.cell_number(i, s, d, tail) in self.cells or not self.in_part(i, s, d, tail):
                        continue
                    a, b = (Bound(self.layouts[n], g, 1) for n in (s, d))
                    if (frontier_of(a, b) is None and a.element == b.element
                            and a.layout.descriptor(g) != b.layout.descriptor(g)):
                        self.exact_possible = True
                    yield "%s->%s at geometry %d, tail %s" % (s, d, i, tail)

    def cell_of(self, row, i):
        path = "$.rows[%d]." % i
        if row["check"] not in CHECKS:
            self.fault(11, path + "check", " or ".join(CHECKS), row["check"])
            return None
        return self.pair_cell(row, path) if row["check"] == "pair" else self.point_cell(row, path)

    def pair_cell(self, row, path):
        good = True
        for holds, key, expected in ((row["src"] in self.layouts, "src", "a layout of the catalogue"),
                                     (row["dst"] in self.layouts, "dst", "a layout of the catalogue"),
                                     (row["geometry"] < len(self.geometries), "geometry", "an index in geometries")):
            if not holds:
                self.fault(11, path + key, expected, row[key])
                good = False
        params, tail = row["params"], None
        if len(self.tails) == 1 and not params:
            tail = self.tails[0]
        elif len(self.tails) > 1 and set(params) == {"tail"} and params["tail"] in self.tails:
            tail = params["tail"]
        if tail is None:
            self.fault(11, path + "params", "parameters of a cell", params)
        if not good or tail is None or not self.want(11, path + "pair_id", row["src"] + "->" + row["dst"], row["pair_id"]):
            return None
        if (row["src"], row["dst"]) not in self.pairs:
            self.fault(11, path + "pair_id", "a pair of the campaign", row["pair_id"])
            return None
        if not self.in_part(row["geometry"], row["src"], row["dst"], tail):
            self.fault(11, path + "pair_id", "a cell of this part of the campaign", row["pair_id"])
            return None
        index, src, dst = row["geometry"], self.layouts[row["src"]], self.layouts[row["dst"]]
        g = self.geometries[index]
        layers = g.layers if src.has("L") or dst.has("L") else 1
        a, b = self.bound(src, index, layers), self.bound(dst, index, layers)
        return Cell("pair", index, g, self.cell_number(index, row["src"], row["dst"], tail), tail=tail, a=a, b=b,
                    code=frontier_of(a, b), words=words_of(a, b, g), payloads=self.payloads(g),
                    twins=src.descriptor(g) == dst.descriptor(g), reference=(a.held, src.kv == "latent"),
                    too_large=any(side.exists and side.too_large for side in (a, b)))

    def bound(self, layout, index, layers):
        key = layout.name, index, layers
        if key not in self.bounds:
            self.bounds[key] = Bound(layout, self.geometries[index], layers)
        return self.bounds[key]

    def row(self, row, path, cell):
        if cell.too_large:
            self.fault(0, path[:-1], "sizes that a certificate can say", row["pair_id"])
            return
        self.seen_words |= set(row["transformations"]) & set(WORDS)
        if row["transformations"] != cell.words or not cell.words and row["verdict"].startswith("EXACT_"):
            self.fault(12 if cell.twins else 5, path + "transformations", cell.words, row["transformations"])
        if row["verdict"] not in VERDICTS:
            self.fault(2, path + "verdict", "one of the six verdicts", row["verdict"])
            return
        self.count(row, cell)
        self.note_checks(row, cell)
        if cell.code is None:
            self.want(14, path + "frontier_code", None, row["frontier_code"])
            self.want(14, path + "frontier_reason", None, row["frontier_reason"])
            if row["verdict"] == "REFUSED":
                self.fault(14, path + "verdict", "a grade, as no frontier code applies", "REFUSED")
            elif row["verdict"] == "FAILED":
                if row["error_class"] not in ERROR_CLASSES:
                    self.fault(2, path + "error_class", " or ".join(ERROR_CLASSES), row["error_class"])
                if self.told[failure_key(row)] > 0:
                    self.told[failure_key(row)] -= 1  # two rows need two entries
                else:
                    self.fault(10, "$.run.failures", "an entry for each FAILED row", row["pair_id"])
                self.nothing_claimed(row, path, "failed", cell)
            else:
                self.ran(row, path, cell)
        elif self.want(14, path + "verdict", "REFUSED", row["verdict"]):
            self.want(14, path + "frontier_code", cell.code, row["frontier_code"])
            if not row["frontier_reason"]:
                self.fault(14, path + "frontier_reason", "a reason", row["frontier_reason"])
            self.want(2, path + "error_class", None, row["error_class"])
            self.nothing_claimed(row, path, "frontier", cell)

    def count(self, row, cell):
        proof, verdict = row.get("proof") or {}, row["verdict"]
        checked = proof.get("positions_checked") or 0
        self.claimed[verdict] += 1
        self.positions += checked
        if row["frontier_code"] in CODES:
            self.seen_codes.add(row["frontier_code"])
        self.sums["same_image_rows"] += row["same_image"]
        ran = verdict not in DID_NOT_RUN
        self.sums["empty_rows"] += ran and cell.g.tokens == 0
        if ran and set(row["transformations"]) & set(WORDS) == {"view_reinterpret"}:
            self.sums["view_rows"] += 1
            return
        self.counted[verdict] += 1
        self.sums["positions_checked"] += checked
        self.sums["source_positions_checked"] += proof.get("source_positions_checked") or 0
        if cell.check != "pair":  # the hunt is for pairs
            return
        self.exact_found |= verdict.startswith("EXACT_")
        if (verdict not in ("FAILED", "UNPROVEN") and cell.code is None and cell.a.element == cell.b.element
                and cell.words != ["view_reinterpret"]):
            self.exact_possible = True

    def note_checks(self, row, cell):
        proof, token, a, g = row.get("proof") or {}, row["verdict"] == "EXACT_TOKEN", cell.a, cell.g
        if cell.check == "tp":
            self.note_tp(row, proof)
        if row["verdict"] in DID_NOT_RUN:
            return
        if cell.check in ("codec", "attribution"):
            codec = cell.check == "codec"
            self.stored_rows += codec
            self.studied_rows += not codec
            self.measured |= not codec or g.tokens > 0
            references = OBSERVED[cell.check][:3 if codec else 2]  # the others are findings
            self.codec_disagrees |= any(row["observations"].get(o) is not True for o in references)
        else:
            self.ran_rows += 1
            self.decoded_rows += row["observations"].get(TOKENS) is True
        if cell.check == "attribution":  # no token leg
            return
        self.has_tokens |= g.tokens > 0
        self.reference_varies |= g.tokens > 0 and len(set(proof.get("reference_tokens") or [])) > 1
        if row["verdict"] == "NOT_EXACT" or a is None or not a.exists:
            return
        unread = (a.native - a.elements) * (g.layers // a.layers)
        self.class_is_not_padding |= token != (unread > 0 and cell.tail != "zero")
        self.differs_elsewhere |= token and (proof.get("roundtrip_diff_positions") != unread or unread == 0)

    def nothing_claimed(self, row, path, kind, cell):
        for o in OBSERVED[row["check"]]:
            self.want(2, path + "observations." + o, None, row["observations"].get(o, "missing"))
        for side in ("src", "dst"):
            self.want(4, path + "native_bytes." + side, None, row["native_bytes"][side])
        self.want(2, path + "same_image", False, row["same_image"])
        proof = row.get("proof") or {}
        if cell.check == "tp":
            self.tp_witness(row, proof, path, cell)
        for key in PROOFS[row["check"]]:
            if key == "witness?":
                continue
            expected = {"kind": kind, "lemmas": [], "value_preserving": False}.get(key[:-1])
            self.want(3, path + "proof." + key[:-1], expected, proof.get(key[:-1], "missing"))

    def ran(self, row, path, cell):
        seen, a, b, check = {}, cell.a, cell.b, row["check"]
        for o in OBSERVED[check]:
            if o not in row["observations"]:
                self.fault(2, path + "observations." + o, "true, false or null", "missing")
            seen[o] = row["observations"].get(o)
        images, unproven = a is not None, row["verdict"] == "UNPROVEN"
        lossy = a.element != b.element and cell.g.tokens > 0 if images else True
        self.want(2, path + "verdict", grade(seen, lossy), row["verdict"])
        self.want(2, path + "error_class", None, row["error_class"])
        if not unproven or row["same_image"]:
            self.want(2, path + "same_image", check == "pair" and same_image(a, b), row["same_image"])
        for side, bound in (("src", a), ("dst", b)) if images else ():
            if not unproven or row["native_bytes"][side] is not None:
                self.want(4, path + "native_bytes." + side, bound.native * bound.bytes, row["native_bytes"][side])
        proof = row.get("proof")
        if proof is None:
            self.fault(3, path + "proof", "a proof", None)
        elif check == "attribution":
            self.study_proof(row, proof, path, seen, cell, unproven)
        else:
            (self.tp_proof if check == "tp" else self.proof if images else self.store_proof)(row, proof, path, seen, cell, unproven)
            for key in ("decoded_tokens", "reference_tokens", "logits_digest", "reference_logits_digest"):
                if key not in proof:
                    self.fault(3, path + "proof." + key, "a value", "missing")
            self.token_leg(proof, path, seen[TOKENS])
            self.reference(proof, path, cell)

    def presence(self, proof, here, unproven):
        """Whether a key of the proof holds a value: null or absent is an H3, null not in an UNPROVEN row."""
        def present(key):
            if proof.get(key) is not None:
                return True
            if key not in proof or not unproven:
                self.fault(3, here + key, "a value", "null" if key in proof else "missing")
            return False
        return present

    def proof(self, row, proof, path, seen, cell, unproven):
        a, b, g, tail = cell.a, cell.b, cell.g, cell.tail
        units, here = g.layers // a.layers, path + "proof."
        padding, present = a.native - a.elements, self.presence(proof, here, unproven)
        self.want(3, here + "kind", "tp-shards-exhaustive" if cell.check == "tp" else "index-permutation-exhaustive",
                  proof.get("kind"))
        for code, key, number in ((4, "unit_layers", a.layers), (4, "layers", g.layers), (4, "positions_total", b.native),
                                  (4, "source_positions_total", a.native), (4, "source_padding_positions", padding),
                                  (4, "dest_padding_positions", b.native - b.elements),
                                  (2, "unread_padding_positions", padding * units), (3, "gather_payloads", cell.payloads)):
            if present(key):
                self.want(code, here + key, number, proof[key])
        for key, total in (("positions_checked", b.native), ("source_positions_checked", a.native)):
            if present(key) and (proof[key] > total or proof[key] != total and not unproven):
                self.fault(4, here + key, total, proof[key])
        maps = [proof[key] for key in ("source_bijective", "dest_bijective", "gather_agrees") if present(key)]
        maps_known, maps = len(maps) == 3, all(maps) and len(maps) == 3
        diff_known = present("roundtrip_diff_positions")
        diff = proof["roundtrip_diff_positions"] if diff_known else -1
        if diff > a.native * units:
            self.fault(2, here + "roundtrip_diff_positions", "at most %d" % (a.native * units), diff)
        converts, stale = a.element != b.element, 0 if tail == "zero" else padding * units
        for o, known, derived, may_be_false in (
                (FORWARD, maps_known, maps, converts and a.element != g.element),
                (IDENTICAL, diff_known, diff == 0, False),
                (DIFF, diff_known, diff == stale, diff > 0 and (converts or cell.check == "tp"))):
            if seen[o] is None:
                continue
            if not known and unproven or known and seen[o] != derived and not (may_be_false and seen[o] is False):
                self.fault(2, path + "observations." + o, derived if known else None, seen[o])
        lemmas = proof.get("lemmas")
        if (lemmas is None or sorted(set(lemmas)) != lemmas or not set(lemmas) <= set(LEMMAS)
                or row["verdict"].startswith("EXACT_") and not lemmas):
            self.fault(3, here + "lemmas", "names of lemmas, sorted", lemmas)
        self.detail(proof, here, a, b, present)

    def detail(self, proof, here, a, b, present):
        if a.element == b.element:
            self.want(3, here + "detail", None, proof.get("detail", "missing"))
        elif present("detail"):
            detail = proof["detail"]
            self.want(3, here + "detail.conversion", a.element + "->" + b.element, detail["conversion"])
            widens = a.element == "fp8_e4m3" or b.element == "f32"
            if widens or b.elements == 0:
                self.want(2, here + "detail.values_preserved", True, detail["values_preserved"])
            if detail["values_preserved"]:
                self.want(2, here + "detail.worst_relative_error_ppm", 0, detail["worst_relative_error_ppm"])

    def token_leg(self, proof, path, claim):
        keys, complete = ("decoded_tokens", "reference_tokens", "logits_digest", "reference_logits_digest"), True
        for key in keys:
            value = proof.get(key)
            if value is None:
                complete = False
            if claim is not None if value is None else not decode_fits(key, value):
                self.fault(13, path + "proof." + key, "the decode that tokens_identical was observed by", value)
                complete = False
        if complete and claim is not None:
            decoded, reference, logits, reference_logits = (proof[key] for key in keys)
            self.want(13, path + "observations.tokens_identical", decoded == reference and logits == reference_logits, claim)

    def reference(self, proof, path, cell):
        """Rows that decode one canonical tensor name one reference: geometry, heads and latent rows decide which; of codec rows
        geometry and payload, of moves geometry and recipe."""
        if (cell.check, cell.index) != self.references_at:  # rows come by check and geometry
            self.references, self.references_at = {}, (cell.check, cell.index)
        for key in ("reference_tokens", "reference_logits_digest"):
            value = proof.get(key)
            if value is not None and decode_fits(key, value):
                first = self.references.setdefault((key, cell.reference), value)
                self.want(13, path + "proof." + key, first, value)

    # -- totals

    def counts(self):
        doc, observed, floors = self.doc, self.doc["observed"], self.doc["floors"]
        totals = {"rows": self.rows, "words": len(self.seen_words), "frontier_codes": len(self.seen_codes),
                  "checks": len(doc["checks"]), "controls": len(doc["controls"]), "known_limits": len(doc["known_limits"]),
                  **self.sums}
        for key, number in totals.items():
            self.want(10, "$.observed." + key, int(number), observed[key])
        for verdict, number in self.counted.items():
            self.want(10, "$.observed.verdicts." + verdict, number, observed["verdicts"][verdict])
        for key in FLOORS:
            number = self.counted[key.upper()] if key.upper() in self.counted else totals[key]
            self.want(8, "$.floors." + key, int(number), floors[key])
            if key in self.given_floors:
                self.want(8, "$.floors." + key, self.given_floors[key], floors[key])
        if self.exact_possible and not self.exact_found:
            self.fault(6, "$.rows", "at least one exact row", "none")

    def vocabulary(self):
        claims, listed = self.claims, self.doc["vocabulary"]
        if claims is None:
            wanted = sorted(self.seen_words | self.seen_codes)
        else:
            wanted = sorted(set(claims.get("words", []) + claims.get("frontier_codes", [])), key=lambda s: s.encode())
        if wanted != listed:
            self.fault(7, "$.vocabulary", wanted, listed)
        for name in wanted:
            if name not in self.seen_words and name not in self.seen_codes:
                self.fault(7, "$.rows", name, "in no row")
        made = {entry["name"] for entry in self.doc["checks"]} - set(CHECKS) | self.made_checks
        for name in (claims or {}).get("checks", []):
            if name not in made:
                self.fault(8, "$.checks", name, "claimed, but not made")


def text_like(pattern, v):
    return isinstance(v, str) and re.fullmatch(pattern, v) is not None


EXPECTED = ("EXACT_BYTE", "EXACT_TOKEN", "NOT_EXACT", "REFUSED", "UNPROVEN")
EXPECT_FILTERS = {
    "geometry": dict.fromkeys(("layers", "tokens", "kv_heads", "head_dim", "head_dim_v"), lambda v: kind_of(v) == "n") | {
        "element": lambda v: v in ("f16", "bf16", "f32", "fp8_e4m3")},
    "params": {
        "tail": lambda v: v in ("stale", "zero", "nan"),
        "payload": lambda v: text_like("[0-9A-Za-z._:-]{1,80}", v), "cell": lambda v: text_like("[0-9A-Za-z._:-]{1,80}", v),
        "stream": lambda v: v in ("k", "v"), "bits": lambda v: v in ("1", "2", "3", "4"),
        "seed": lambda v: text_like("0|[1-9][0-9]{0,15}", v), "send": lambda v: v in ("chunks", "layers", "shard", "whole"),
        "from": lambda v: text_like("[1-9]|[1-5][0-9]|6[0-4]", v), "to": lambda v: text_like("[1-9]|[1-5][0-9]|6[0-4]", v),
        "from_stages": lambda v: text_like("[][0-9,]{1,4096}", v), "to_stages": lambda v: text_like("[][0-9,]{1,4096}", v)},
    "waiver": {"reason": lambda v: isinstance(v, str) and v != "", "until": lambda v: isinstance(v, str) and is_day(v)},
}


def is_day(text):
    try:
        return re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", text) is not None and bool(datetime.date.fromisoformat(text))
    except ValueError:
        return False


def expect_fault(rule):
    """What is wrong with one rule of campaign.spec.expect, or None."""
    keys = {"pairs", "geometry", "params", "verdict", "at_least", "waiver"}
    if not isinstance(rule, dict) or not set(rule) <= keys:
        return "an object of " + ", ".join(sorted(keys))
    if not isinstance(rule.get("pairs"), str) or not re.fullmatch("(?:(?!->).)+?->[^>]+", rule["pairs"]):
        return "pairs SRC->DST"
    for name, fields in EXPECT_FILTERS.items():
        part = rule.get(name)
        if name not in rule:
            continue
        if not isinstance(part, dict) or not part or not set(part) <= set(fields):
            return name + " with some of " + ", ".join(sorted(fields))
        for key, value in part.items():
            values = value if isinstance(value, list) and name != "waiver" else [value]
            if not values or not all(not isinstance(v, (list, dict)) and fields[key](v) for v in values):
                return name + "." + key
        if name == "waiver" and len(part) != 2:
            return "waiver with reason and until"
    if ("verdict" in rule) == ("at_least" in rule):
        return "either verdict or at_least"
    if "at_least" in rule:
        return None if isinstance(rule["at_least"], str) and rule["at_least"] in EXPECTED else "at_least: a verdict"
    verdicts = rule["verdict"] if isinstance(rule["verdict"], list) else [rule["verdict"]]
    if not verdicts or not all(isinstance(v, str) and v in EXPECTED for v in verdicts) or len(set(verdicts)) != len(verdicts):
        return "verdict: verdicts, each once"
    return None


def matches(pattern, name):
    """Whether name matches a pattern of letters, * (any text) and ? (one character)."""
    reached = {0}  # lengths of the part of name that the pattern so far can match
    for c in pattern:
        if c == "*":
            reached = set(range(min(reached), len(name) + 1))
        else:
            reached = {at + 1 for at in reached if at < len(name) and c in ("?", name[at])}
        if not reached:
            return False
    return len(name) in reached


def text_list(value):
    return isinstance(value, list) and len(value) <= LIST_MAX and all(isinstance(v, str) for v in value)


def decode_fits(key, value):
    """Eight tokens of the vocabulary, or a digest."""
    if key.endswith("tokens"):
        return len(value) == 8 and all(t < 64 for t in value)
    return re.fullmatch("[0-9a-f]{64}", value) is not None


def failure_key(obj):
    return canonical([obj[k] for k in ("check", "pair_id", "geometry", "params", "error_class")])


def grade(seen, converts):
    if None in seen.values():
        return "UNPROVEN"
    if converts:
        return "NOT_EXACT"
    if seen[FORWARD] and seen[TOKENS] and seen[IDENTICAL]:
        return "EXACT_BYTE"
    return "EXACT_TOKEN" if seen[FORWARD] and seen[TOKENS] and seen[DIFF] else "NOT_EXACT"


def expand_geometry(obj):
    """Every Geometry of one object of the spec, in order; None where it is malformed."""
    keys = ("layers", "tokens", "kv_heads", "head_dim", "head_dim_v", "element")
    if not isinstance(obj, dict) or set(obj) - set(keys) or set(keys) - {"head_dim_v"} - set(obj):
        yield None
        return
    lists = [(k, obj[k] if isinstance(obj[k], list) else [obj[k]]) for k in keys if k in obj]
    if any(not values for _, values in lists):
        yield None
        return
    digits = [0] * len(lists)
    while True:
        g = Geometry({k: values[i] for (k, values), i in zip(lists, digits)})
        yield g if g.good else None
        for at in range(len(lists) - 1, -1, -1):
            digits[at] += 1
            if digits[at] < len(lists[at][1]):
                break
            digits[at] = 0
        else:
            return


def tail_bits_fit(tail, element, size, entry):
    if not isinstance(entry, dict) or set(entry) != {"stale", "fill"}:
        return False
    if not all(isinstance(v, str) and re.fullmatch("[0-9a-f]{%d}" % (2 * size), v) for v in entry.values()):
        return False
    stale, fill = int(entry["stale"], 16), int(entry["fill"], 16)
    above = {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F800000, "fp8_e4m3": 0x7E}[element]
    is_nan = lambda bits: bits & ((1 << (8 * size - 1)) - 1) > above
    if tail == "zero":
        return stale == fill == 0
    if fill == 0 or stale == fill or is_nan(fill):
        return False
    return is_nan(stale) if tail == "nan" else stale != 0 and not is_nan(stale)


# ---- what the caller demands of the run ---------------------------------------------------------


def read_demands(text):
    """--require as {"device": ..., "transport": ..., "ranks": ...}; ValueError says what is wrong."""
    known = {"device": "|".join(DEVICES), "transport": "mpi|nccl", "ranks": "[0-9]+"}
    demands = {}
    for part in text.split(","):
        found = re.fullmatch("(device|transport)=(.*)|(ranks)>=(.*)", part)
        key, value = (found[1] or found[3], found[2] or found[4]) if found else (None, None)
        if key is None or value is None or not re.fullmatch(known[key], value):
            raise ValueError("%r must be device=cpu|cuda, transport=mpi|nccl or ranks>=N" % part)
        if key in demands:
            raise ValueError("%s is given twice" % key)
        if key == "ranks" and not 1 <= int(value) <= 1 << 24:
            raise ValueError("ranks>=%s is out of range" % value)
        demands[key] = int(value) if key == "ranks" else value
    return demands


def unmet(demands, run):
    """Why a sound certificate's run is not what was demanded; empty where it is."""
    devices = [entry["device"] for entry in run["devices"]]
    if run["ranks"] < demands.get("ranks", 0):
        yield "--require ranks>=%d: there are %d" % (demands["ranks"], run["ranks"])
    others = [d for d in devices if d != demands.get("device", d)]
    if others:
        yield "--require device=%s: a rank has %s" % (demands["device"], others[0])
    if "transport" in demands and demands["transport"] not in run["transports"]:
        yield "--require transport=%s: this run moved nothing over it" % demands["transport"]


# ---- the program -----------------------------------------------------------------------------------


def conclusion(code, verifier):
    if code == 2:
        return "sound, but the signature was NOT checked: openssl is not there"
    if code == 4:
        return "sound, but " + ("nothing at all was checked" if verifier.nothing_checked() else "it holds FAILED or UNPROVEN rows")
    return {0: "sound", 1: "unreadable", 3: "refused"}[code]


def main():
    parser = argparse.ArgumentParser(description="Verify a kvgrid certificate, independently of kvgrid.")
    parser.add_argument("cert")
    parser.add_argument("--trust", metavar="FILE", help="public keys; else $KVGRID_TRUST, else the config folder")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("--allow-unproven", action="store_true")
    parser.add_argument("--allow-emulated", action="store_true")
    parser.add_argument("--require", metavar="WHAT", default=None)
    args = parser.parse_args()
    try:
        demands = {} if args.require is None else read_demands(args.require)
    except ValueError as error:
        parser.error("--require: %s" % error)
    try:
        with open(args.cert, "rb") as f:
            data = f.read(BYTES_MAX + 1)
        trusted = find_trust(args.trust)
    except (OSError, ValueError) as error:
        print("verify.py: %s" % error, file=sys.stderr)
        return 1
    v = Verifier(trusted).verify(data, args.cert)
    code = v.exit_code(args.allow_unproven)
    if not v.signature_checked:
        print("verify.py: the signature was not checked: the openssl program is needed for that", file=sys.stderr)
    if args.format == "json":
        print(json.dumps({"conclusion": conclusion(code, v), "exit": code, "key_id": v.key_id, "rows": v.rows,
                          "signature_checked": v.signature_checked, "verdicts": v.claimed,
                          "faults": [{"code": NAMES[c], "path": p, "expected": e, "actual": a} for c, p, e, a in v.faults]},
                         sort_keys=True, separators=(",", ":"), ensure_ascii=False))
    else:
        for c, p, e, a in v.faults:
            print("%s %s: expected %s, found %s" % (NAMES[c], p, e, a))
        if v.rows:
            print("%d rows, %s" % (v.rows, ", ".join("%d %s" % (n, k) for k, n in v.claimed.items() if n)))
        print("%s%s" % (conclusion(code, v), ": %d faults" % len(v.faults) if v.faults else ""))
    return demanded(v, demands, args.allow_emulated, code)


def demanded(v, demands, allow_emulated, code):
    """The exit code after the demands on `run`, which only a sound certificate can meet."""
    if code not in (0, 4):
        return code
    why = list(unmet(demands, v.doc["run"]))
    if not allow_emulated and any(entry["device"] == "emulated" for entry in v.doc["run"]["devices"]):
        why.append("the certificate was made on an emulated device; --allow-emulated accepts that")
    for line in why:
        print("verify.py: " + line, file=sys.stderr)
    return 4 if why else code


if __name__ == "__main__":
    sys.exit(main())
