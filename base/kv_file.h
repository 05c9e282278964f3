/* Files: read whole, once; written whole or not at all. */
#ifndef KV_FILE_H
#define KV_FILE_H

#include <stdio.h>

#include "base/kv_base.h"

/* Reads all of path (at most limit bytes) into *out, which must be {0}; the caller frees it.
 * A directory, a named pipe, an unreadable file or one past the limit is KV_EREAD with the path in the text. A pipe that
 * is open already (/dev/fd/N) is read; where it says nothing for KV_FILE_WAIT_S seconds that is KV_EREAD too.
 * "-" is not special. */
kv_rc kv_file_read(const char *path, size_t limit, kv_buf *out, kv_err *err) KV_MUST_USE;

/* Opens a regular file for reading. KV_EREAD with the path, for what is none (at once: a pipe is not waited for) too. */
kv_rc kv_file_open_regular(const char *path, FILE **out, kv_err *err) KV_MUST_USE;

/* Waits until a pipe can be read or is at its end. KV_EREAD where that takes longer. */
#define KV_FILE_WAIT_S 60
kv_rc kv_file_wait(int fd, const char *path, int seconds, kv_err *err) KV_MUST_USE;
/* Whether path names a descriptor that is open already, as the shell's <(...) does. */
bool kv_path_is_descriptor(const char *path);

typedef enum { KV_FILE_REPLACE, KV_FILE_NEW } kv_file_mode; /* NEW: refuse if path exists */

/* Writes n bytes to a temporary name beside path, syncs, gives it permission bits `perm` and
 * moves it to path in one step. On any error nothing is left behind and an old file stays.
 * KV_EWRITE, or KV_EEXIST for KV_FILE_NEW. */
kv_rc kv_file_write(const char *path, const void *bytes, size_t n, unsigned perm, kv_file_mode mode, kv_err *err)
    KV_MUST_USE;

/* Moves a file that is written and synced to its name in one step, and syncs the folder, so that the name survives a power cut
 * too. KV_EWRITE; the file then still has its old name. */
kv_rc kv_file_rename(const char *from, const char *path, kv_err *err) KV_MUST_USE;

/* Checks now that kv_file_write could later put a file at path (folder exists, writable, path
 * is no directory), so that a long run does not fail at its end. */
kv_rc kv_file_can_write(const char *path, kv_err *err) KV_MUST_USE;

/* "dir/of/base_file" joined with rel unless rel is absolute; NULL when memory is out. */
char *kv_path_beside(const char *base_file, const char *rel) KV_MUST_USE;
bool kv_path_is_dir(const char *path);
bool kv_path_exists(const char *path);
/* KV_EWRITE where something stands at path that must not be replaced: a folder, device, pipe or link. */
kv_rc kv_path_check_output(const char *path, kv_err *err) KV_MUST_USE;
/* True if both exist and are one file: an output must not be an input. */
bool kv_path_same_file(const char *a, const char *b);

#endif
