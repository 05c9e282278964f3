#!/usr/bin/env python3
"""Layout declarations, right and wrong, one a line: {"accepted": what certs/verify.py says, "layout": {...}}.

    declarations.py N      N random ones, behind all orders of one array with padded pages
"""
import itertools
import json
import os
import random
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "certs"))
sys.dont_write_bytecode = True
import make_cert  # noqa: E402
import verify  # noqa: E402

ODD = (None, "", "x", 0, 1, -1, 2, 3, 16, True, (1 << 31) - 1, 1 << 31, 1 << 50, (1 << 50) + 1, [], {}, ["T", "H", "D"], "same", "mla", "latent",
       {"size": 2, "rank": 1}, {"size": 2, "rank": 2}, {"size": 1}, {"size": 1 << 20, "rank": 0}, {"size": (1 << 20) + 1, "rank": 0},
       {"size": 2, "rank": 0, "more": 1}, "a" * 64, "a" * 65, ".a", "a b", "contiguous", "table")
KEYS = ("name engine version attention kv k_axes v_axes block x x_bytes tx element tp role pages page_stride_bytes row_lanes cite "
        "evidence notes more").split()
AXES = "L KV T Tb Ti Tg Tx H D Dg Dx C Q".split()


def padded_pages():
    """Every order of K and of V of one array: those that agree before KV and have the same factors, and all others."""
    axes = ("KV", "Tb", "Ti", "H", "D")
    for k, v in itertools.product(itertools.permutations(axes), repeat=2):
        if k[:2] == v[:2] or k.index("KV") == v.index("KV"):  # the rest differs in what is refused long before
            yield {"name": "p", "engine": "e", "cite": "c", "attention": "gqa", "kv": "interleaved", "k_axes": list(k), "v_axes": list(v),
                   "block": 4, "page_stride_bytes": 4096}


def mutated(entry, rng):
    for _ in range(rng.choice((0, 1, 1, 2))):
        kind, key = rng.randrange(6), rng.choice(KEYS)
        axes = entry.get(rng.choice(("k_axes", "v_axes")))
        if kind == 0:
            entry.pop(key, None)
        elif kind == 1:
            entry[key] = rng.choice(ODD)
        elif kind == 2 and isinstance(axes, list) and axes:
            axes[rng.randrange(len(axes))] = rng.choice(AXES)
        elif kind == 3 and isinstance(axes, list):
            rng.shuffle(axes)
        elif kind == 4 and isinstance(axes, list):
            axes.insert(rng.randrange(len(axes) + 1), rng.choice(AXES))
        else:
            entry["page_stride_bytes"] = 4096
    return entry


def main():
    rng = random.Random(3)
    some = (mutated(json.loads(json.dumps(make_cert.random_layout("r%d" % i, rng))), rng) for i in range(int(sys.argv[1])))
    for entry in itertools.chain(padded_pages(), some):
        print(json.dumps({"accepted": not verify.Layout(entry).faults, "layout": entry}, separators=(",", ":")))


if __name__ == "__main__":
    sys.exit(main())
