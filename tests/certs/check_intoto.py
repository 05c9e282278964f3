"""Checks an envelope of `kvgrid export --intoto` with programs that share nothing with kvgrid.

    check_intoto.py openssl ENVELOPE CERT PUB           the signature by `openssl pkeyutl` over the PAE bytes
    check_intoto.py securesystemslib ENVELOPE CERT PUB  the envelope by securesystemslib, the statement by in-toto-attestation
    check_intoto.py venv DIR                            makes DIR/bin/python with both packages; exit 77 where it cannot

Both checks also derive the statement again from the certificate, and see that a changed payload is refused. CERT must
have the name that it had when it was exported. Exit 0 good, 1 bad, 77 could not look (the last line says why).
"""
import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

# Observations of a row of the codec that compare it with its reference.
AGREE = {"codec": ("store_agrees_with_reference", "slot_roundtrip_byte_identical", "decode_agrees_with_reference"),
         "attribution": ("identity_changes_nothing", "variants_agree")}
PACKAGES = ("securesystemslib[crypto]", "in-toto-attestation")
SPKI_ED25519 = bytes.fromhex("302a300506032b6570032100")  # RFC 8410, before the 32 bytes of the key


def skip(why):
    print(why)
    sys.exit(77)


def need(condition, what):
    if not condition:
        sys.exit(f"check_intoto.py: {what}")


def read_envelope(path):
    text = Path(path).read_text()
    need(text.endswith("\n") and text.count("\n") == 1, "the envelope is not one line")
    envelope = json.loads(text)
    need(sorted(envelope) == ["payload", "payloadType", "signatures"], f"keys of the envelope: {sorted(envelope)}")
    return envelope


def key_of(pub):
    word = next(line.split() for line in Path(pub).read_text().splitlines() if line.startswith("ed25519 "))
    return word[1], bytes.fromhex(word[2])


# ---- what the statement must say ---------------------------------------------------------------

def test_name(row, geometries):
    g = geometries[row["geometry"]]
    parts = [f"L={g['layers']}", f"T={g['tokens']}", f"H={g['kv_heads']}", f"D={g['head_dim']}"]
    if "head_dim_v" in g:
        parts.append(f"Dv={g['head_dim_v']}")
    parts.append(f"e={g['element']}")
    parts += [f"{key}={value}" for key, value in sorted(row["params"].items())]
    check = "" if row["check"] == "pair" else row["check"] + ":"
    return check + row["pair_id"] + "@" + ",".join(parts)


def expected_statement(cert_path):
    data = Path(cert_path).read_bytes()
    cert = json.loads(data)
    names = {"passedTests": [], "warnedTests": [], "failedTests": []}
    for entry in cert["checks"] + cert["controls"]:
        names["passedTests" if entry["passed"] else "failedTests"].append(entry["name"])
    for row in cert["rows"]:
        where = {"UNPROVEN": "warnedTests", "FAILED": "failedTests"}.get(row["verdict"], "passedTests")
        agrees = row["check"] in AGREE and all(row["observations"][o] is True for o in AGREE[row["check"]])
        if row["verdict"] == "NOT_EXACT" and "requantize" not in row["transformations"] and not agrees:
            where = "failedTests"
        names[where].append(test_name(row, cert["geometries"]))
    if not any((row.get("proof") or {}).get(key) for row in cert["rows"] for key in ("positions_checked", "rows", "passages")):
        names["warnedTests"].append("nothing_checked")
    file = {"name": Path(cert_path).name, "digest": {"sha256": hashlib.sha256(data).hexdigest()}}
    subject = file
    if "subject" in cert:
        subject = {"name": cert["subject"]["name"], "digest": {"sha256": cert["subject"]["digest"].split(":")[1]}}
    result = "FAILED" if names["failedTests"] else "WARNED" if names["warnedTests"] else "PASSED"
    extra = {"certificate": file, "body_digest": cert["body_digest"], "key_id": cert["signature"]["key_id"],
             "floors": cert["floors"], "observed": cert["observed"]}
    campaign = {"name": cert["campaign"]["name"], "digest": {"blake2b": cert["campaign"]["digest"]}}
    predicate = {"result": result, "configuration": [campaign], "kvgrid": extra}
    predicate.update({where: sorted(found) for where, found in names.items()})
    return {"_type": "https://in-toto.io/Statement/v1", "subject": [subject], "predicate": predicate,
            "predicateType": "https://in-toto.io/attestation/test-result/v0.1"}


def check_payload(envelope, cert_path):
    payload = base64.b64decode(envelope["payload"], validate=True)
    statement = json.loads(payload)
    want = expected_statement(cert_path)
    for key in sorted(set(statement) | set(want)):
        need(statement.get(key) == want.get(key), f"{key} of the statement is {statement.get(key)}, not {want.get(key)}")
    canonical = json.dumps(statement, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    need(payload == canonical, "the payload is not canonical")
    return payload


# ---- who checks the signature ------------------------------------------------------------------

def openssl_says(folder, public, message, signature):
    der = SPKI_ED25519 + public
    (folder / "key.pem").write_text(f"-----BEGIN PUBLIC KEY-----\n{base64.b64encode(der).decode()}\n-----END PUBLIC KEY-----\n")
    (folder / "pae").write_bytes(message)
    (folder / "sig").write_bytes(signature)
    done = subprocess.run(["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", "key.pem", "-rawin", "-in", "pae", "-sigfile", "sig"],
                          cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode == 0 and "Verified Successfully" in done.stdout


def cmd_openssl(envelope_path, cert_path, pub):
    if shutil.which("openssl") is None:
        skip("no openssl to check the envelope with")
    version = subprocess.run(["openssl", "version"], capture_output=True, text=True, check=False).stdout.split()
    if int(version[1].split(".")[0]) < 3:
        skip(f"openssl {version[1]} cannot check Ed25519 over a file; 3 or newer can")
    envelope = read_envelope(envelope_path)
    key_id, public = key_of(pub)
    payload = check_payload(envelope, cert_path)
    need([s["keyid"] for s in envelope["signatures"]] == [key_id], "the key id is not that of the public key")
    signature = base64.b64decode(envelope["signatures"][0]["sig"], validate=True)
    kind = envelope["payloadType"].encode()
    need(kind == b"application/vnd.in-toto+json", f"payloadType is {kind}")

    def pae(body):
        return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(body), body)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        need(openssl_says(folder, public, pae(payload), signature), "openssl does not verify the signature")
        changed = payload.replace(b'"result":"', b'"result":"X', 1)
        need(not openssl_says(folder, public, pae(changed), signature), "openssl verifies a changed payload")
        need(not openssl_says(folder, public, payload, signature), "the bare payload is signed, not its PAE")


def cmd_securesystemslib(envelope_path, cert_path, pub):
    from google.protobuf import json_format
    from in_toto_attestation.predicates.test_result.v0 import test_result_pb2
    from in_toto_attestation.v1 import statement_pb2
    from in_toto_attestation.v1.statement import Statement
    from securesystemslib.dsse import Envelope
    from securesystemslib.exceptions import VerificationError
    from securesystemslib.signer import SSlibKey

    envelope = read_envelope(envelope_path)
    payload = check_payload(envelope, cert_path)
    key_id, public = key_of(pub)
    key = SSlibKey(key_id, "ed25519", "ed25519", {"public": public.hex()})
    parsed = Envelope.from_dict(envelope)
    need(list(parsed.verify([key], 1)) == [key_id], "securesystemslib accepts another key")
    parsed.payload = payload.replace(b'"result":"', b'"result":"X', 1)
    try:
        parsed.verify([key], 1)
    except VerificationError:
        pass
    else:
        need(False, "securesystemslib verifies a changed payload")
    statement = json_format.Parse(payload, statement_pb2.Statement())
    Statement.copy_from_pb(statement).validate()
    predicate = json_format.ParseDict(json.loads(payload)["predicate"], test_result_pb2.TestResult(), ignore_unknown_fields=True)
    need(predicate.result in ("PASSED", "WARNED", "FAILED"), f"result is {predicate.result}")
    need(len(predicate.configuration) == 1 and len(predicate.passed_tests) > 0, "the predicate reads as empty")


def cmd_venv(folder):
    if os.environ.get("KV_NO_INSTALL"):
        skip("securesystemslib is not looked for: installing is switched off")
    pip = ["-m", "pip", "--disable-pip-version-check", "--quiet", "--retries", "1", "--timeout", "20"]
    python = str(Path(folder, "bin", "python"))
    for command in ([sys.executable, "-m", "venv", folder], [python, *pip, "install", *PACKAGES]):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
        except (OSError, subprocess.TimeoutExpired) as e:
            skip(f"securesystemslib cannot be installed: {e}")
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip().splitlines() or ["no reason given"]
            skip(f"securesystemslib cannot be installed: {said[-1]}")


if __name__ == "__main__":
    globals()["cmd_" + sys.argv[1]](*sys.argv[2:])
