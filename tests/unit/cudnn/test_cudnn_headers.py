"""The reader of C headers that the audit stands on: what it understands, and that it passes over nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

import cudnn_headers
from cudnn_headers import HeaderError, Headers, Prototype, c_type

GRAPH = """
/** @file cudnn_graph.h
 *  @since cuDNN 9.0.0
 */
#if !defined(CUDNN_GRAPH_H_)
#define CUDNN_GRAPH_H_
#define CUDNN_CONTINUED(a) \\
    int nothing(a);
#if defined(__cplusplus)
extern "C" {
#endif
struct cudnnContext;
typedef struct cudnnContext *cudnnHandle_t CUDNN_DEPRECATED;
typedef struct cudnnRuntimeTag_t cudnnRuntimeTag_t CUDNN_DEPRECATED;
typedef struct cudnnDebugStruct { int a; cudnnStatus_t b[3]; } cudnnDebug_t;
typedef void *cudnnBackendDescriptor_t;
typedef void (*cudnnCallback_t)(int sev, void *udata, const cudnnDebug_t *dbg, const char *msg);

/** @brief Enum. @since cuDNN 9.2.0 */
typedef enum {
    CUDNN_A = 0, /**< First, with a comma; and more. @since cuDNN 9.0.0 */
    CUDNN_B, /* no version here: the enum's own counts */
    /* a comment before the next */
    CUDNN_C CUDNN_DEPRECATED_ENUM =
        CUDNN_A, /**< @deprecated. @since cuDNN 9.10.1 */
    CUDNN_D = (1U << 4) | 0x2,
    CUDNN_E /**< Last, no comma. @since cuDNN 9.11.0 */
} cudnnKind_t;

/** @brief Makes. @since cuDNN 9.5.0 */
// another comment
CUDNN_DEPRECATED cudnnStatus_t CUDNNWINAPI
cudnnMake(const cudnnHandle_t handle, const float *const *x,  int dims[], const int strides[ 8 ],
          cudnnBackendDescriptor_t const d, unsigned long long seed);
const char *CUDNNWINAPI cudnnSay(void);
#if defined(__cplusplus)
}
#endif
#endif /* CUDNN_GRAPH_H_ */
"""


def headers_of(folder: Path, graph: str) -> Headers:
    version = "#define CUDNN_MAJOR 9\n#define CUDNN_MINOR 28\n#define CUDNN_PATCHLEVEL 1\n"
    (folder / "cudnn_version.h").write_text(version, encoding="utf-8")
    (folder / "cudnn_graph.h").write_text(graph, encoding="utf-8")
    return cudnn_headers.read(folder)


def test_reads_a_header(tmp_path: Path) -> None:
    headers = headers_of(tmp_path, GRAPH)
    assert headers.version == 92801
    assert headers.enums == {"cudnnKind_t": {"CUDNN_A": 0, "CUDNN_B": 1, "CUDNN_C": 0, "CUDNN_D": 18, "CUDNN_E": 19}}
    assert headers.functions == {
        "cudnnMake": Prototype(
            "cudnnStatus_t",
            (
                ("cudnnHandle_t", "handle"),
                ("const float *const *", "x"),
                ("int *", "dims"),
                ("const int *", "strides"),
                ("cudnnBackendDescriptor_t", "d"),
                ("unsigned long long", "seed"),
            ),
        ),
        "cudnnSay": Prototype("const char *", ()),
    }
    assert headers.pointers == {"cudnnHandle_t", "cudnnBackendDescriptor_t", "cudnnCallback_t"}
    assert headers.structs == {"cudnnRuntimeTag_t", "cudnnDebug_t"}
    assert headers.since == {
        "CUDNN_A": 90000,
        "CUDNN_B": 90200,
        "CUDNN_C": 91001,
        "CUDNN_D": 90200,
        "CUDNN_E": 91100,
        "cudnnMake": 90500,
    }


@pytest.mark.parametrize(
    ("text", "spelling"),
    [
        ("const void*", "const void *"),
        ("void  * *", "void **"),
        ("const int", "int"),
        ("cudnnTensorFormat_t const", "cudnnTensorFormat_t"),
        ("float *const", "float *"),
        ("const void *const*", "const void *const *"),
        ("unsigned   long\nlong", "unsigned long long"),
    ],
)
def test_spelling_of_types(text: str, spelling: str) -> None:
    assert c_type(text) == spelling


@pytest.mark.parametrize(
    "text",
    [
        "extern int cudnnCounter;",
        "static inline int cudnnTwice(int x) { return 2 * x; }",
        "typedef union { int a; } cudnnUnion_t;",
        "typedef enum { CUDNN_A = sizeof(int) } cudnnKind_t;",
        "typedef enum { CUDNN_A = CUDNN_UNKNOWN } cudnnKind_t;",
        "typedef enum { not a name } cudnnKind_t;",
        "cudnnStatus_t cudnnMake(int);",
        "cudnnStatus_t cudnnMake(int a;",
        "cudnnStatus_t cudnnMake)int a(;",
        "",
    ],
)
def test_refuses_what_it_does_not_know(tmp_path: Path, text: str) -> None:
    with pytest.raises(HeaderError):
        headers_of(tmp_path, text)


def test_needs_the_version(tmp_path: Path) -> None:
    (tmp_path / "cudnn_version.h").write_text("#define CUDNN_MAJOR 9\n", encoding="utf-8")
    with pytest.raises(HeaderError, match="CUDNN_MINOR"):
        cudnn_headers.read(tmp_path)
