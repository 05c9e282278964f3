"""Small JSON chores of the command-line tests.

    doc.py value FILE PATH              one value as text
    doc.py body FILE                    canonical bytes without run, body_digest, signature
    doc.py campaign LAYOUTS FILE KEY=JSON...   write a small campaign
    doc.py canonical FILE               exit 1 unless the file is in canonical form and its body_digest is right
    doc.py forge IN OUT PUB EDIT...     apply edits (PATH=JSON, or PATH= to delete), fit the digest, sign with a key of our own
"""
import hashlib
import json
import sys
from pathlib import Path

OUTSIDE_BODY = ("run", "body_digest", "signature")


def canonical(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def digest(value):
    return hashlib.blake2b(canonical(value), digest_size=32).hexdigest()


def body(doc):
    return {key: value for key, value in doc.items() if key not in OUTSIDE_BODY}


def find(value, path):
    for key in path.split("."):
        value = value[int(key)] if isinstance(value, list) else value[key]
    return value


def edit(doc, change):
    path, _, text = change.partition("=")
    *parents, last = path.split(".")
    where = find(doc, ".".join(parents)) if parents else doc
    last = int(last) if isinstance(where, list) else last
    if text == "":
        del where[last]
    else:
        where[last] = json.loads(text)


# ---- Ed25519 (RFC 8032), slow and plain: a second opinion on what libsodium signs ---------------

P = 2**255 - 19
Q = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
BASE_Y = 4 * pow(5, P - 2, P) % P


def recover_x(y, sign):
    xx = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(xx, (P + 3) // 8, P)
    if (x * x - xx) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    if (x * x - xx) % P:
        raise ValueError("no point")
    return P - x if x % 2 != sign else x


def add(a, b):
    x1, y1, z1, t1 = a
    x2, y2, z2, t2 = b
    e, f = (y1 - x1) * (y2 - x2) % P, (y1 + x1) * (y2 + x2) % P
    g, h = 2 * t1 * t2 * D % P, 2 * z1 * z2 % P
    i, j, k, l = f - e, h - g, h + g, f + e
    return i * j % P, k * l % P, j * k % P, i * l % P


def times(n, point):
    out = (0, 1, 1, 0)
    while n:
        if n & 1:
            out = add(out, point)
        point = add(point, point)
        n >>= 1
    return out


BASE_X = recover_x(BASE_Y, 0)
BASE = (BASE_X, BASE_Y, 1, BASE_X * BASE_Y % P)


def pack(point):
    x, y, z, _ = point
    inv = pow(z, P - 2, P)
    x, y = x * inv % P, y * inv % P
    return (y | (x & 1) << 255).to_bytes(32, "little")


def unpack(text):
    y = int.from_bytes(text, "little")
    sign, y = y >> 255, y & (1 << 255) - 1
    x = recover_x(y, sign)
    return x, y, 1, x * y % P


def number(*parts):
    return int.from_bytes(hashlib.sha512(b"".join(parts)).digest(), "little") % Q


def secret_of(seed):
    h = hashlib.sha512(seed).digest()
    a = int.from_bytes(h[:32], "little") & (1 << 254) - 8 | 1 << 254
    return a, h[32:]


def public_of(seed):
    return pack(times(secret_of(seed)[0], BASE))


def sign(seed, message):
    a, prefix = secret_of(seed)
    public = public_of(seed)
    r = number(prefix, message)
    big_r = pack(times(r, BASE))
    return big_r + ((r + number(big_r, public, message) * a) % Q).to_bytes(32, "little")


def verifies(public, message, signature):
    big_r, s = signature[:32], int.from_bytes(signature[32:], "little")
    k = number(big_r, public, message)
    return s < Q and pack(times(s, BASE)) == pack(add(unpack(big_r), times(k, unpack(public))))


# ---- commands -----------------------------------------------------------------------------------

SEED = b"kvgrid tests: a throw-away key !"


def cmd_value(path, where):
    found = find(json.loads(Path(path).read_bytes()), where)
    print(found if isinstance(found, str) else json.dumps(found, sort_keys=True))


def cmd_body(path):
    sys.stdout.buffer.write(canonical(body(json.loads(Path(path).read_bytes()))))


def cmd_campaign(layouts, path, *changes):
    doc = {"schema": "kvgrid.campaign/v1", "name": "small", "layouts": [layouts], "select": ["sglang", "vllm-fa"],
           "pairs": "all-ordered",
           "geometries": [{"layers": 1, "tokens": 17, "kv_heads": 2, "head_dim": 8, "element": "f16"}]}
    for change in changes:
        if change != "select=" or "select" in doc:
            edit(doc, change)
    Path(path).write_text(json.dumps(doc, indent=1))


def cmd_canonical(path):
    data = Path(path).read_bytes()
    doc = json.loads(data)
    if data != canonical(doc):
        sys.exit("not in canonical form")
    if doc["body_digest"] != digest(body(doc)):
        sys.exit("body_digest is not the BLAKE2b-256 of the body")
    signature = doc.pop("signature")
    public = bytes.fromhex(signature["public_key"])
    if not verifies(public, canonical(doc), bytes.fromhex(signature["sig"])):
        sys.exit("the signature is not over the canonical bytes of the document without it")
    if signature["key_id"] != hashlib.blake2b(public, digest_size=32).hexdigest()[:16] or signature["alg"] != "ed25519":
        sys.exit("key_id or alg is wrong")
    for entry in doc["catalogue"]:
        if entry["digest"] != digest({k: v for k, v in entry.items() if k != "digest"}):
            sys.exit(f"catalogue: the digest of {entry['name']} is wrong")
    want = digest({"layouts": {e["name"]: e["digest"] for e in doc["catalogue"]}, "spec": doc["campaign"]["spec"]})
    if doc["campaign"]["digest"] != want or "layouts" in doc["campaign"]["spec"]:
        sys.exit("campaign.digest is wrong, or the spec has layout paths")


def cmd_forge(source, target, pub_like, pub_out, *changes):
    doc = json.loads(Path(source).read_bytes())
    public = public_of(SEED)
    real = doc["signature"]
    doc["signature"] = None
    for change in changes:
        edit(doc, change)
    doc.pop("signature", None)
    doc["body_digest"] = digest(body(doc))
    key_id = hashlib.blake2b(public, digest_size=32).hexdigest()[:16]
    doc["signature"] = {"alg": "ed25519", "key_id": key_id, "public_key": public.hex(), "sig": sign(SEED, canonical(doc_without(doc))).hex()}
    Path(target).write_bytes(canonical(doc))
    # A public key file of ours, shaped like the one that keygen wrote.
    text = Path(pub_like).read_text()
    Path(pub_out).write_text(text.replace(real["public_key"], public.hex()).replace(real["key_id"], key_id))


def doc_without(doc):
    return {key: value for key, value in doc.items() if key != "signature"}


if __name__ == "__main__":
    globals()["cmd_" + sys.argv[1]](*sys.argv[2:])
