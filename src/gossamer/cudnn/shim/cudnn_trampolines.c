/* Every function of cuDNN under its own name: on to the real library, or back to the caller. */
#include "cudnn_shim.h"

#ifdef CUDNN_SHIM_STAND_IN
#define VISIBILITY __attribute__((visibility("default")))
#else
/* Other cuDNNs in the process, and libraries that link against one, must not see these. */
#define VISIBILITY __attribute__((visibility("hidden")))
#endif

static const char ABSENT_TEXT[] = "cuDNN is not available";

static void copy_text(char *message, size_t size) {
    size_t i = 0;
    if (size == 0) return;
    for (; i + 1 < size && ABSENT_TEXT[i] != '\0'; i++) message[i] = ABSENT_TEXT[i];
    message[i] = '\0';
}

#define CALL_STATUS(name, arguments)                                                                     \
    if (real == NULL) return CUDNN_STATUS_NOT_INITIALIZED;                                               \
    if (real->name == NULL) return CUDNN_STATUS_NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE; /* it is too old */ \
    return real->name arguments;
#define CALL_SIZE(name, arguments) return real == NULL || real->name == NULL ? 0 : real->name arguments;
#define CALL_TEXT(name, arguments) return real == NULL || real->name == NULL ? ABSENT_TEXT : real->name arguments;
#define CALL_MESSAGE(name, arguments)           \
    if (real == NULL || real->name == NULL)     \
        copy_text arguments;                    \
    else                                        \
        real->name arguments;

#define CUDNN_FUNCTION(kind, returns, name, parameters, arguments, since, required) \
    VISIBILITY returns name parameters {                                            \
        const struct cudnn_shim_functions *real = cudnn_shim_load();                \
        CALL_##kind(name, arguments)                                                \
    }
#include "cudnn_symbols.inc"
