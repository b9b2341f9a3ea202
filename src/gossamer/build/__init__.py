"""[3] Build: a placed model becomes a Program (`programs`), and its kernels become machine code (`compilation`), which
is kept (`cache`). Importing this package imports none of them: the cache is looked at without a compiler, too.
"""
