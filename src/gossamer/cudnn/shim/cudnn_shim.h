/* cuDNN's functions for programs that run without cuDNN.
 *
 * cudnn_trampolines.c defines every function of cuDNN 9 under its own name. The first call looks for the real library;
 * where there is one, calls go there, and where there is none, they return: a status CUDNN_STATUS_NOT_INITIALIZED,
 * cudnnGetVersion 0, cudnnGetErrorString a fixed text. Link the two .c files into a program or a library instead of
 * -lcudnn; it will have no libcudnn among what it needs, and its trampolines are hidden from everything else.
 *
 * Include this file, or cuDNN's own <cudnn.h>, or both, <cudnn.h> first.
 */
#ifndef CUDNN_SHIM_H
#define CUDNN_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cudnn_types.h"

#if defined(__cplusplus)
extern "C" {
#endif

#ifndef CUDNN_H_
#define CUDNN_FUNCTION(kind, returns, name, parameters, arguments, since, required) returns name parameters;
#include "cudnn_symbols.inc"
#undef CUDNN_FUNCTION
#endif

/* The real library's functions. One that it is too old for is NULL; the required ones never are. */
struct cudnn_shim_functions {
#define CUDNN_FUNCTION(kind, returns, name, parameters, arguments, since, required) returns(*name) parameters;
#include "cudnn_symbols.inc"
#undef CUDNN_FUNCTION
};

/* Load cuDNN if that was not tried yet. NULL where there is none. Any thread may call this at any time: one of them
 * loads, the others wait. What was found stays; that nothing was found is remembered, too, until cudnn_shim_retry. */
const struct cudnn_shim_functions *cudnn_shim_load(void);

/* The real library's dlopen handle, for code that looks functions up itself; NULL where there is none. Loads. */
void *cudnn_shim_handle(void);

/* Forget that cuDNN was not found: the next call looks again. Changes nothing where it was found. */
void cudnn_shim_retry(void);

/* Write where cuDNN was found, or each place that was tried and why it was refused, a line each, cut off at `size`
 * bytes with the terminating zero. Does not load. */
void cudnn_shim_describe(char *text, size_t size);

#if defined(__cplusplus)
}
#endif
#endif
