#!/usr/bin/env python3
"""The JSON Schemas of certs/schema against real files: sound documents fit, H0 mutations of types do not.

    check_schema.py FOLDER      (made by mutations.py)

Exit 0 good, 1 not, 77 the jsonschema package is not there.
"""
import glob
import json
import os
import sys

try:
    import jsonschema
    import referencing
except ImportError:
    print("the Python package jsonschema is not there")
    sys.exit(77)

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
# broken in their types or closed lists of words, which a schema can see
SEEN = ("h0_schema h0_wrong_type h0_wrong_type_number h0_negative h0_missing_key h0_unknown_key h0_top_level_key h0_layout_axes "
        "h0_layout_key h0_spec_key h0_spec_pairs h1_alg h1_sig_short h2_unknown_verdict h2_failed_class h3_proof_deleted "
        "h3_proof_null h3_proof_empty h3_unknown_lemma h3_kind h13_short h13_out_of_vocabulary h14_no_reason "
        "h14_code_on_exact_row h13_method h0_expect_object h0_expect_empty h0_expect_key h0_expect_both h0_expect_neither "
        "h0_expect_verdict h0_expect_twice h0_expect_pairs h0_part_4 h0_part_9 h0_tail h0_seed h0_values h0_floors h0_claims "
        "h0_select h0_geometries h0_geometry_list h0_geometry_missing h0_geometry_key h0_geometry_zero "
        "h0_started_00 h0_started_03 h0_started_08 h0_device_text h0_device_no_rank h0_device_case h0_device_empty h0_subject_short "
        "h0_subject_other_hash h0_subject_upper h0_subject_long h0_subject_no_name h0_subject_letters h10_no_devices "
        "h0_codec_error_below_0 h0_codec_error_text h0_codec_preserving_null h0_codec_check h0_codec_check_pair h3_codec_kind "
        "h2_codec_preserving h2_codec_cosine_above_1 h13_codec_digest_short h13_codec_digest_upper h0_codec_observation_of_pairs "
        "h0_codec_proof_of_pairs h3_move_kind h0_study_passage_key h0_study_passage_text h2_study_accept_other h2_study_k_error "
        "h3_study_kind h11_codec_stream h11_study_seed_number h3_codec_refused_preserves h0_no_pairs_no_codec").split()
# sections of the codec: all but those of a block that is no power of two, or where one list does not fit another
SEEN += ["h0_section_%02d" % i for i in range(55) if i not in (6, 15, 24, 25, 46)]


def read(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def validators():
    schemas = {s["$id"]: s for s in map(read, glob.glob(os.path.join(ROOT, "certs", "schema", "*.schema.json")))}
    registry = referencing.Registry().with_resources(
        (name, referencing.Resource.from_contents(schema)) for name, schema in schemas.items())
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    return {name.split(".")[1]: jsonschema.Draft202012Validator(schema, registry=registry)
            for name, schema in schemas.items()}


def main():
    check, folder, faults = validators(), sys.argv[1], []

    def expect(kind, path, value, fits):
        error = next(iter(check[kind].iter_errors(value)), None)
        if fits and error is not None:
            faults.append("%s: %s: %s" % (path, error.json_path, error.message[:200]))
        elif not fits and error is None:
            faults.append("%s: the schema has nothing to say" % path)

    names = [n[:-5] for n in sorted(os.listdir(folder)) if n.endswith(".json")]
    for name in names:
        path = os.path.join(folder, name + ".json")
        if name.startswith(("sound_", "campaign_")) or name in SEEN:
            doc = read(path)
            expect("certificate", path, doc, name not in SEEN)
            if name not in SEEN:
                expect("campaign", path, doc["campaign"]["spec"], True)
                expect("layout", path, [{k: v for k, v in e.items() if k != "digest"} for e in doc["catalogue"]], True)
    for path in glob.glob(os.path.join(ROOT, "layouts", "published", "*.json")):
        expect("layout", path, read(path), True)
    expect("campaign", "published", read(os.path.join(ROOT, "jobs", "campaigns", "published.json")), True)
    for fault in faults:
        print(fault)
    print("%d documents, %d faults" % (len(names), len(faults)))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
