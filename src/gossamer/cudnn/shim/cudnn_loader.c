/* Finds the real cuDNN, once, and looks up its functions. cudnn_shim.h says what its functions promise.
 *
 * Looked at, in this order:
 *   1. a cuDNN that is in the process already;
 *   2. the folders that were compiled in (cudnn_config.h);
 *   3. the folders that the dynamic loader searches: LD_LIBRARY_PATH as the process was started with it, the program's
 *      own RUNPATH, the system's folders;
 *   4. unless this is a stand-in: the dynamic loader's own search by name, which knows ld.so.cache as well. A stand-in
 *      bears that name itself, and would be what the loader finds.
 * A library never comes out of the working directory: relative folders in LD_LIBRARY_PATH are passed over, and with one
 * there the search by name, which would look into it, is not made. This file's own library and every other stand-in are
 * passed over, too.
 *
 * The library is opened RTLD_LOCAL, so that its symbols are nobody else's, and RTLD_NOW, so that it fails here if it
 * fails. Its own parts it opens itself. It must be of the same major version and have every required function.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dladdr, dlinfo, dl_iterate_phdr */
#endif
#include "cudnn_shim.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cudnn_config.h"

#ifdef CUDNN_SHIM_STAND_IN
#define VISIBILITY __attribute__((visibility("default")))
/* What only stand-ins have: by this they know each other. */
extern const char cudnn_shim_stand_in[];
VISIBILITY const char cudnn_shim_stand_in[] = "gossamer cudnn-shim";
#else
#define VISIBILITY __attribute__((visibility("hidden")))
#endif

#define VERSIONED_NAME "libcudnn.so." CUDNN_SHIM_MAJOR_TEXT
#define UNVERSIONED_NAME "libcudnn.so"

enum { MOST_RESIDENT = 8 };

struct symbol {
    const char *name;
    size_t offset; /* in struct cudnn_shim_functions */
    bool required;
};

static const struct symbol SYMBOLS[] = {
#define CUDNN_FUNCTION(kind, returns, name, parameters, arguments, since, required) \
    {#name, offsetof(struct cudnn_shim_functions, name), required},
#include "cudnn_symbols.inc"
#undef CUDNN_FUNCTION
};

/* `found` and `absent` are read without the lock, so that a call costs one load more than cuDNN itself; everything else
 * is under it. `loading` is the thread's own: a library that calls cuDNN while it is being opened finds it absent. */
static _Atomic(const struct cudnn_shim_functions *) found;
static atomic_bool absent;
static _Thread_local bool loading;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct cudnn_shim_functions functions;
static void *handle;
static char account[4096];

static void note(const char *target, const char *what) {
    size_t used = strlen(account);
    snprintf(account + used, sizeof account - used, "%s: %s\n", target, what);
}

static const char *refuse_version(size_t version) {
    static char text[128];
    size_t major = version / (version < 10000 ? 1000 : 10000); /* 8.9.7 counted as 8907, 9.0.0 as 90000 */
    if (major == CUDNN_SHIM_MAJOR) return NULL;
    snprintf(text, sizeof text, "its version is %zu, this program needs cuDNN " CUDNN_SHIM_MAJOR_TEXT, version);
    return text;
}

/* Fills in `functions`. */
static const char *refuse_functions(void *candidate) {
    static char text[128];
    for (size_t i = 0; i < sizeof SYMBOLS / sizeof *SYMBOLS; i++) {
        void *address = dlsym(candidate, SYMBOLS[i].name);
        if (address == NULL && SYMBOLS[i].required) {
            snprintf(text, sizeof text, "it has no function %s", SYMBOLS[i].name);
            return text;
        }
        memcpy((char *)&functions + SYMBOLS[i].offset, &address, sizeof address);
    }
    return NULL;
}

/* Why an open library cannot be used; NULL if it can. */
static const char *refuse(void *candidate) {
    size_t (*get_version)(void);
    void *address = dlsym(candidate, "cudnnGetVersion");
    const char *reason;
    if (dlsym(candidate, "cudnn_shim_stand_in") != NULL) return "this is a stand-in for cuDNN";
    if (address == NULL) return "it has no function cudnnGetVersion";
    memcpy(&get_version, &address, sizeof address);
    reason = refuse_version(get_version());
    return reason != NULL ? reason : refuse_functions(candidate);
}

static bool is_this_library(const char *path) {
    Dl_info own;
    struct stat ours, theirs;
    return dladdr(&functions, &own) != 0 && stat(own.dli_fname, &ours) == 0 && stat(path, &theirs) == 0 &&
           ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino;
}

static bool try_library(const char *target, int flags) {
    void *candidate;
    const char *reason;
    if (is_this_library(target)) return false;
    candidate = dlopen(target, RTLD_NOW | RTLD_LOCAL | flags);
    if (candidate == NULL) {
        const char *error = dlerror();
        note(target, error != NULL ? error : "dlopen gave no reason");
        return false;
    }
    reason = refuse(candidate);
    if (reason != NULL) {
        note(target, reason);
        dlclose(candidate);
        return false;
    }
    handle = candidate;
    account[0] = '\0';
    note(target, "this is used");
    return true;
}

static bool try_folder(const char *folder) {
    static const char *const NAMES[] = {VERSIONED_NAME, UNVERSIONED_NAME};
    if (folder[0] != '/') return false;
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        char path[PATH_MAX];
        int length = snprintf(path, sizeof path, "%s/%s", folder, NAMES[i]);
        if (length > 0 && (size_t)length < sizeof path && access(path, F_OK) == 0 && try_library(path, 0)) return true;
    }
    return false;
}

struct resident {
    size_t count;
    char paths[MOST_RESIDENT][PATH_MAX];
};

static int add_resident(struct dl_phdr_info *info, size_t size, void *context) {
    struct resident *resident = context;
    const char *slash = strrchr(info->dlpi_name, '/');
    (void)size;
    if (resident->count == MOST_RESIDENT || slash == NULL || info->dlpi_name[0] != '/') return 0;
    if (strncmp(slash + 1, UNVERSIONED_NAME, strlen(UNVERSIONED_NAME)) != 0) return 0;
    snprintf(resident->paths[resident->count++], PATH_MAX, "%s", info->dlpi_name);
    return 0;
}

static bool try_resident(void) {
    bool done = false;
    struct resident *resident = calloc(1, sizeof *resident);
    if (resident == NULL) return false;
    dl_iterate_phdr(add_resident, resident); /* which must not open libraries itself */
    for (size_t i = 0; i < resident->count && !done; i++) done = try_library(resident->paths[i], RTLD_NOLOAD);
    free(resident);
    return done;
}

static bool try_compiled_in(void) {
    static const char *const FOLDERS[] = {CUDNN_SHIM_FOLDERS NULL};
    for (size_t i = 0; FOLDERS[i] != NULL; i++) {
        if (try_folder(FOLDERS[i])) return true;
    }
    return false;
}

static bool try_search_path(bool *any_relative) {
    bool done = false;
    Dl_serinfo size, *list = NULL;
    void *program = dlopen(NULL, RTLD_LAZY);
    if (program == NULL) return false;
    if (dlinfo(program, RTLD_DI_SERINFOSIZE, &size) == 0 && (list = malloc(size.dls_size)) != NULL) {
        *list = size;
        if (dlinfo(program, RTLD_DI_SERINFO, list) == 0) {
            for (unsigned i = 0; i < list->dls_cnt && !done; i++) {
                const char *folder = list->dls_serpath[i].dls_name;
                if (folder[0] != '/') *any_relative = true;
                done = try_folder(folder);
            }
        }
    }
    free(list);
    dlclose(program);
    return done;
}

static bool try_by_name(void) {
#ifdef CUDNN_SHIM_STAND_IN
    return false;
#else
    return try_library(VERSIONED_NAME, 0) || try_library(UNVERSIONED_NAME, 0);
#endif
}

static void search(void) {
    bool any_relative = false;
    account[0] = '\0';
    if (try_resident() || try_compiled_in() || try_search_path(&any_relative) || (!any_relative && try_by_name())) {
        atomic_store_explicit(&found, &functions, memory_order_release);
    } else {
        atomic_store_explicit(&absent, true, memory_order_release);
    }
}

VISIBILITY const struct cudnn_shim_functions *cudnn_shim_load(void) {
    const struct cudnn_shim_functions *real = atomic_load_explicit(&found, memory_order_acquire);
    if (real != NULL || loading || atomic_load_explicit(&absent, memory_order_acquire)) return real;
    loading = true;
    pthread_mutex_lock(&lock);
    if (atomic_load(&found) == NULL && !atomic_load(&absent)) search();
    pthread_mutex_unlock(&lock);
    loading = false;
    return atomic_load_explicit(&found, memory_order_acquire);
}

VISIBILITY void *cudnn_shim_handle(void) {
    return cudnn_shim_load() == NULL ? NULL : handle; /* written before `found`, and never again */
}

VISIBILITY void cudnn_shim_retry(void) {
    atomic_store_explicit(&absent, false, memory_order_release);
}

VISIBILITY void cudnn_shim_describe(char *text, size_t size) {
    const char *nothing = "";
    if (loading) { /* the lock is this thread's own */
        snprintf(text, size, "cuDNN is being opened\n");
        return;
    }
    pthread_mutex_lock(&lock);
    if (atomic_load(&found) == NULL) {
        nothing = atomic_load(&absent) ? "no libcudnn in any folder that is searched\n" : "cuDNN was not needed yet\n";
    }
    snprintf(text, size, "%s", account[0] != '\0' ? account : nothing);
    pthread_mutex_unlock(&lock);
}
