/* First-cause error records and the names of the codes. */
#include "base/kv_base.h"
#include "base/kv_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

kv_rc kv_err_set(kv_err *err, kv_rc rc, const char *func, int line, const char *fmt, ...)
{
    if (err == NULL || err->rc != KV_OK) return rc;
    err->rc = rc;
    err->func = func;
    err->line = line;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
    kv_text_tame(err->text); /* one line, whatever a file name or a document holds */
    return rc;
}

void kv_err_prefix(kv_err *err, const char *fmt, ...)
{
    if (err == NULL || err->rc == KV_OK) return;
    char old[KV_ERR_TEXT];
    memcpy(old, err->text, sizeof old);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
    size_t used = strlen(err->text);
    snprintf(err->text + used, sizeof err->text - used, ": %s", old);
    kv_text_tame(err->text); /* one line, whatever a file name or a document holds */
}

void kv_err_clear(kv_err *err)
{
    if (err != NULL) memset(err, 0, sizeof *err);
}

const char *kv_rc_name(kv_rc rc)
{
    switch (rc) {
    case KV_OK: return "KV_OK";
    case KV_EINVAL: return "KV_EINVAL";
    case KV_EFORMAT: return "KV_EFORMAT";
    case KV_EREAD: return "KV_EREAD";
    case KV_EWRITE: return "KV_EWRITE";
    case KV_ENOMEM: return "KV_ENOMEM";
    case KV_EUNSUP: return "KV_EUNSUP";
    case KV_EEXIST: return "KV_EEXIST";
    case KV_ESIG: return "KV_ESIG";
    case KV_EDEVICE: return "KV_EDEVICE";
    case KV_EMPI: return "KV_EMPI";
    case KV_EPEER: return "KV_EPEER";
    case KV_ETIME: return "KV_ETIME";
    case KV_EINTR: return "KV_EINTR";
    case KV_EBUG: return "KV_EBUG";
    case KV_RC_COUNT: break;
    }
    return "KV_E?";
}
