#!/usr/bin/env python3
"""Certificates whose rows stand in a file beside them, sound and broken, like those of mutations.py.

    row_files.py OUT_FOLDER [--random N]

OUT_FOLDER/NAME.json, NAME.json.rows, expect.txt (NAME EXIT CODES, as in mutations.py), trusted.pub
"""
import argparse
import copy
import hashlib
import json
import os
import random
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import make_cert  # noqa: E402
import mutations  # noqa: E402

CASES = []


def blake(data):
    return hashlib.blake2b(data, digest_size=32).digest()


def merkle(lines):
    """Level by level, as docs/certificate.md says it."""
    level = [blake(b"\0" + line) for line in lines]
    if not level:
        return blake(b"").hex()
    while len(level) > 1:
        pairs = [blake(b"\1" + level[i] + level[i + 1]) for i in range(0, len(level) - 1, 2)]
        level = pairs + (level[-1:] if len(level) % 2 else [])
    return level[0].hex()


def declare(doc, data):
    """rows_file for these bytes, whatever they are."""
    lines = data.split(b"\n")[:-1]
    doc["rows"] = []
    doc["rows_file"] = {"count": len(lines), "bytes": len(data), "merkle_root": merkle(lines)}


def case(name, exit_code, codes, base="published", again=False):
    """Registers f(doc, data) -> the bytes of the row file or None; `again`: the document declares what f made."""
    def register(function):
        CASES.append((name, exit_code, codes, base, again, function))
        return function
    return register


@case("sound_rows_file", 0, "-")
@case("sound_mixed", 0, "-", base="mixed")
@case("sound_part", 0, "-", base="part")
@case("sound_wide", 0, "-", base="wide")
@case("sound_codec", 0, "-", base="codec")
@case("sound_codec_part", 0, "-", base="codec-part")
def _(doc, data):
    return data


@case("sound_other_file_beside", 0, "-")
def _(doc, data):
    doc["rows"] = [json.loads(line) for line in data.splitlines()]
    del doc["rows_file"]
    return b"of no meaning"


@case("missing", 1, "H0")
def _(doc, data):
    return None


@case("torn_newline", 1, "H0")
def _(doc, data):
    return data[:-1]


@case("torn_line", 1, "H0")
def _(doc, data):
    return data[:len(data) // 2]


@case("torn_and_declared", 1, "H0", again=True)
def _(doc, data):
    return data[:-1]


@case("last_row_dropped", 3, "H1,H10,H15")
def _(doc, data):
    return data[:data[:-1].rindex(b"\n") + 1]


@case("first_row_dropped", 3, "H1,H10,H15")
def _(doc, data):
    return data[data.index(b"\n") + 1:]


@case("empty", 3, "H1,H10,H15")
def _(doc, data):
    return b""


@case("empty_and_declared", 3, "H15", again=True)
def _(doc, data):
    return b""


@case("byte_changed", 3, "H1")
def _(doc, data):
    at = data.index(b'"reference_logits_digest":"') + 27
    return data[:at] + (b"1" if data[at:at + 1] == b"0" else b"0") + data[at + 1:]


@case("codec_figure_changed", 3, "H1,H4", base="codec")
def _(doc, data):
    assert b'"overflow_blocks":1,' in data
    return data.replace(b'"overflow_blocks":1,', b'"overflow_blocks":0,', 1)


@case("codec_row_of_other_keys", 1, "H0", base="codec", again=True)
def _(doc, data):
    return data.replace(b'"saturated":0,', b'"saturated":0,"source_bijective":true,', 1)


@case("codec_rows_in_another_order", 3, "H10", base="codec", again=True)
def _(doc, data):
    lines = data.splitlines(True)
    return b"".join(sorted(lines, key=lambda line: json.loads(line)["geometry"]))


@case("two_rows_changed_places", 3, "H1,H10")
def _(doc, data):
    lines = data.splitlines(True)
    lines[3], lines[4] = lines[4], lines[3]
    return b"".join(lines)


@case("changed_places_and_declared", 3, "H10", again=True)
def _(doc, data):
    lines = data.splitlines(True)
    lines[3], lines[4] = lines[4], lines[3]
    return b"".join(lines)


@case("row_twice", 3, "H1,H10,H12")
def _(doc, data):
    lines = data.splitlines(True)
    return b"".join(lines[:5] + lines[4:])


@case("row_twice_and_declared", 3, "H10,H12", again=True)
def _(doc, data):
    lines = data.splitlines(True)
    return b"".join(lines[:5] + lines[4:])


@case("of_another_certificate", 3, "H1,H10")
def _(doc, data):
    return rows_of(BASES["part"])


@case("of_another_seed", 3, "H1")
def _(doc, data):
    return rows_of(BASES["reseeded"])


@case("blank_line", 1, "H0", again=True)
def _(doc, data):
    return data + b"\n"


@case("blank_line_inside", 1, "H0")
def _(doc, data):
    at = data.index(b"\n")
    return data[:at] + b"\n" + data[at:]


@case("carriage_return", 1, "H0", again=True)
def _(doc, data):
    return data.replace(b"\n", b"\r\n")


@case("not_canonical", 1, "H0", again=True)
def _(doc, data):
    return data.replace(b'"check":', b'"check": ', 1)


@case("number_line", 1, "H0", again=True)
def _(doc, data):
    return data + b"7\n"


@case("list_line", 1, "H0", again=True)
def _(doc, data):
    return b"[]\n" + data


@case("zero_byte", 1, "H0", again=True)
def _(doc, data):
    return data + b"\0\n"


@case("no_utf8", 1, "H0", again=True)
def _(doc, data):
    return data.replace(b'"check":"pair"', b'"check":"p\xff"', 1)


@case("long_line", 1, "H0", again=True)
def _(doc, data):
    return data.replace(b'"check":"pair"', b'"check":"%s"' % (b"p" * (1 << 20)), 1)


@case("long_string", 3, "H11", again=True)
def _(doc, data):
    return data.replace(b'"check":"pair"', b'"check":"%s"' % (b"p" * 1000000), 1)


@case("row_of_wrong_type", 1, "H0", again=True)
def _(doc, data):
    return data.replace(b'"same_image":false', b'"same_image":0', 1)


@case("row_with_another_key", 1, "H0", again=True)
def _(doc, data):
    return data.replace(b'"check":', b'"charm":1,"check":', 1)


@case("lie_and_declared", 3, "H2", again=True)
def _(doc, data):
    return data.replace(b'"verdict":"NOT_EXACT"', b'"verdict":"EXACT_BYTE"', 1)


@case("lie", 3, "H1,H2,H10")
def _(doc, data):
    return data.replace(b'"verdict":"NOT_EXACT"', b'"verdict":"EXACT_BYTE"', 1)


@case("count_more", 3, "H10")
def _(doc, data):
    doc["rows_file"]["count"] += 1
    return data


@case("bytes_fewer", 3, "H10")
def _(doc, data):
    doc["rows_file"]["bytes"] -= 1
    return data


@case("other_root", 3, "H1")
def _(doc, data):
    doc["rows_file"]["merkle_root"] = "0" * 64
    return data


@case("root_in_capitals", 3, "H1")
def _(doc, data):
    doc["rows_file"]["merkle_root"] = doc["rows_file"]["merkle_root"].upper()
    return data


@case("root_is_long", 3, "H1")
def _(doc, data):
    doc["rows_file"]["merkle_root"] += "00"
    return data


@case("root_without_domains", 3, "H1")
def _(doc, data):
    level = [blake(line) for line in data.split(b"\n")[:-1]]
    while len(level) > 1:
        level = [blake(b"".join(level[i:i + 2])) for i in range(0, len(level), 2)]
    doc["rows_file"]["merkle_root"] = level[0].hex()
    return data


@case("last_node_doubled", 3, "H1")
def _(doc, data):
    lines = data.split(b"\n")[:-1]
    doc["rows_file"]["merkle_root"] = merkle(lines + lines[-1:])
    return data


@case("extra_key", 1, "H0")
def _(doc, data):
    doc["rows_file"]["name"] = "x"
    return data


@case("key_missing", 1, "H0")
def _(doc, data):
    del doc["rows_file"]["bytes"]
    return data


@case("count_is_a_text", 1, "H0")
def _(doc, data):
    doc["rows_file"]["count"] = "4"
    return data


@case("count_is_negative", 1, "H0")
def _(doc, data):
    doc["rows_file"]["count"] = -1
    return data


@case("file_is_null", 1, "H0")
def _(doc, data):
    doc["rows_file"] = None
    return data


@case("rows_in_both_places", 1, "H0")
def _(doc, data):
    doc["rows"] = [json.loads(line) for line in data.splitlines()]
    return data


@case("not_declared", 3, "H15")
def _(doc, data):
    del doc["rows_file"]
    return data


@case("bad_layout_and_file", 1, "H0,H1,H10")
def _(doc, data):
    doc["catalogue"][0]["kv"] = "sideways"
    return data[data.index(b"\n") + 1:]


@case("bad_spec_and_file", 1, "H0,H1,H10")
def _(doc, data):
    doc["campaign"]["spec"]["tail"] = "cat"
    mutations.redigest(doc)
    return data[data.index(b"\n") + 1:]


@case("bad_geometries_and_torn", 1, "H0")
def _(doc, data):
    doc["geometries"][0]["head_dim"] = 0
    return data[:-9]


def rows_of(doc):
    return b"".join(make_cert.canonical(row) + b"\n" for row in doc["rows"])


def random_edit(data, rng):
    at, lines = rng.randrange(len(data)), data.splitlines(True)
    k, j = rng.randrange(len(lines)), rng.randrange(len(lines))
    how = rng.randrange(6)
    if how == 0:
        return data[:at] + bytes([data[at] ^ 1 << rng.randrange(7)]) + data[at + 1:]
    if how == 1:
        return data[:at] + data[at + 1:]
    if how == 2:
        del lines[k]
    elif how == 3:
        lines.insert(k, lines[j])
    elif how == 4:
        lines[k], lines[j] = lines[j], lines[k]
    else:
        row = json.loads(lines[k])
        mutations.random_edit(row, rng)
        lines[k] = make_cert.canonical(row) + b"\n"
    return b"".join(lines)


BASES = {}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out")
    parser.add_argument("--random", type=int, default=0, metavar="N")
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    signer, expect = make_cert.Signer(), []
    BASES.update(mutations.documents())
    BASES["reseeded"] = copy.deepcopy(BASES["published"])
    for row in BASES["reseeded"]["rows"]:
        if row["proof"]["logits_digest"]:
            row["proof"]["logits_digest"] = row["proof"]["reference_logits_digest"] = "7" * 64

    def write(name, exit_code, codes, doc, data):
        path = os.path.join(args.out, name + ".json")
        for suffix, content in (("", signer.seal(doc)), (".rows", data)):
            if content is not None:
                with open(path + suffix, "wb") as f:
                    f.write(content)
        expect.append("%s %s %s\n" % (name, exit_code, codes))

    for name, exit_code, codes, base, again, function in CASES:
        doc = copy.deepcopy(BASES[base])
        data = rows_of(doc)
        declare(doc, data)
        changed = function(doc, data)
        if again:
            assert changed != data, name
            declare(doc, changed)
        write(name, exit_code, codes, doc, changed)
    rng = random.Random(1)
    for i in range(args.random):
        doc = copy.deepcopy(BASES[rng.choice(("published", "mixed"))])
        data = rows_of(doc)
        declare(doc, data)
        data = random_edit(data, rng)
        if rng.random() < 0.6:
            declare(doc, data)
        write("random_%04d" % i, "?", "?", doc, data)
    with open(os.path.join(args.out, "expect.txt"), "w") as f:
        f.writelines(expect)
    with open(os.path.join(args.out, "trusted.pub"), "w") as f:
        f.write(signer.trust_line())


if __name__ == "__main__":
    sys.exit(main())
