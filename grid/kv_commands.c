/* The list of commands. */
#include "grid/cli/kv_ask.h"
#include "grid/cli/kv_opts.h"

const kv_command kv_commands[] = {
    {"run", "[CAMPAIGN]", "run a campaign over all ranks and write a signed certificate",
     "CAMPAIGN is a JSON file; without one, --geometry and --pairs say what to check. Start it alone, with\n"
     "mpirun -n 8 kvgrid run ..., or with srun kvgrid run ... Default output: NAME.cert.json.",
     "out key pass-fd layouts select pairs geometry tail seed device share-gpu tp-emulate state part timeout "
     "time-limit "
     "cross-check "
     "progress require subject baseline accept-redeclared allow-unproven format",
     0, 1, kv_cmd_run},
    {"plan", "[CAMPAIGN]", "cells, bytes, memory and work, without running", NULL,
     "layouts select pairs geometry tail seed part ranks tp-emulate simulate cores sim-seed sim-seeds timeout format",
     0, 1, kv_cmd_plan},
    {"verify", "CERT", "re-derive everything a certificate says, and check its signature",
     "Exit code 0 sound, 1 unreadable, 3 refused, 4 sound but with FAILED or UNPROVEN rows.",
     "trust require expect allow-unproven allow-emulated format", 1, 1, kv_cmd_verify},
    {"merge", "PART...", "the certificates of all parts of a campaign (run --part) into one, signed",
     "Each part is verified first; the parts must be of one campaign, overlap nowhere and leave nothing out.",
     "out key pass-fd trust allow-unproven", 1, KV_POSITIONAL_MAX, kv_cmd_merge},
    {"show", "CERT [PAIR]", "matrix of grades, or one pair (\"SRC->DST\") in full",
     "--select takes layout patterns, which must fit both sides of a pair, or SRC->DST patterns. --geometry may give "
     "only\n"
     "some fields, as T=40. --verdict lists rows. With --format json each row that is left is one line.",
     "select geometry verdict format", 1, 2, kv_cmd_show},
    {"diff", "OLD NEW", "rows that got worse, better, new, gone or redeclared; exit code 4 if any got worse",
     "Worse is lower on EXACT_BYTE > EXACT_TOKEN > NOT_EXACT > REFUSED > UNPROVEN > FAILED, or an observation lost. "
     "Rows\n"
     "whose layout or geometry is declared otherwise come first and are exit code 4 unless accepted. It does not "
     "verify.",
     "accept-redeclared format", 2, 2, kv_cmd_diff},
    {"explain", "SRC DST", "one pair at one geometry, at once: grade, words, reason, strides", NULL,
     "geometry layouts tail seed format", 2, 2, kv_cmd_explain},
    {"export", "CERT", "a verified certificate in a format that other tools read",
     "Formats: --intoto, --junit, --csv. A certificate that verify refuses is not exported; FAILED and UNPROVEN rows "
     "are,\n"
     "as what they are. Exit code 0 written, whatever the rows say; 1 unreadable, 3 refused.",
     "intoto junit csv out key pass-fd trust", 1, 1, kv_cmd_export},
    {"layouts", "[NAME]", "the declared layouts", NULL, "layouts models format", 0, 1, kv_cmd_layouts},
    {"keygen", "FILE", "secret key to FILE (mode 0600), public key to FILE.pub; never overwrites", NULL, "seal pass-fd",
     1, 1, kv_cmd_keygen},
    {"bench", "", "speed of each part as a ratio to a plain copy",
     "It takes no campaign file. Pairs and geometries as for run; default: the published pairs at\n"
     "L=1,T=4096,H=8,D=128,e=f16 (T=65536 on a GPU). --codec measures blocks of its own.",
     "geometry pairs select layouts device share-gpu codec tp repeat timeout format", 0, 0, kv_cmd_bench},
    {"codec", "SUB-COMMAND ...", "store and decode KV-cache rows with the lossy block codec", NULL, NULL, 0, 0,
     kv_cmd_codec},
    {NULL, NULL, NULL, NULL, NULL, 0, 0, NULL},
};
