from __future__ import annotations

from gossamer.model.passes import remove_unused


def test_nodes_optional_outputs_and_initializers(bench, text):
    assert bench.after(
        remove_unused,
        """
        g (float[1,1,4,4] x) => (float[1,1,3,3] y)
        <float[1] w = {2.0}, float[1] v = {3.0}>
        {
          a = Relu (x)
          b = Mul (a, w)
          c = Neg (b)
          y, indices = MaxPool <kernel_shape = [2, 2]> (a)
        }""",
    ) == text("""
        graph g(%x : float32[1,1,4,4]) {
          %a = Relu(%x)
          %y = MaxPool[kernel_shape=[2,2]](%a) : float32[1,1,3,3]
          return %y
        }
    """)


def test_an_unread_if_frees_what_its_branches_read(bench, text):
    assert bench.after(
        remove_unused,
        """
        g (bool c, float[2] x) => (float[2] y) {
          a = Abs (x)
          z = If (c) <
            then_branch = t () => (float[2] r) { r = Neg (a) },
            else_branch = e () => (float[2] r) { r = Relu (a) }
          >
          y = Relu (x)
        }""",
    ) == text("""
        graph g(%c : bool[], %x : float32[2]) {
          %y = Relu(%x) : float32[2]
          return %y
        }
    """)


def test_inside_branches(bench, text):
    assert bench.after(
        remove_unused,
        """
        g (bool c, float[2] x) => (float[2] y) {
          y = If (c) <
            then_branch = t () => (float[2] r) { u = Neg (x) v = Abs (u) r = Neg (x) },
            else_branch = e () => (float[2] r) { r = Relu (x) }
          >
        }""",
    ) == text("""
        graph g(%c : bool[], %x : float32[2]) {
          %y = If(%c) : float32[2]
            then_branch() {
              %r = Neg(%x) : float32[…]
              return %r
            }
            else_branch() {
              %r_1 = Relu(%x) : float32[…]
              return %r_1
            }
          return %y
        }
    """)


def test_middle_outputs_keep_their_place(bench, text):
    assert bench.after(
        remove_unused,
        f"""
        g (float[2,1,3] x) => (float[1,1,4] h)
        <float[1,16,3] w = {{{",".join(["0.1"] * 48)}}}, float[1,16,4] r = {{{",".join(["0.2"] * 64)}}}>
        {{ y, h, c = LSTM <hidden_size = 4> (x, w, r) }}""",
    ) == text("""
        graph g(%x : float32[2,1,3]) {
          %w : float32[1,16,3]
          %r : float32[1,16,4]
          _, %h = LSTM[hidden_size=4](%x, %w, %r) : float32[1,1,4]
          return %h
        }
    """)


def test_training_outputs_of_batch_normalization_stay(bench):
    bench.keeps(
        remove_unused,
        """
        g (float[2,3,4] x, float[3] s, float[3] b, float[3] m, float[3] v) => (float[2,3,4] y) {
          y, running_mean, running_variance = BatchNormalization <training_mode = 1> (x, s, b, m, v)
        }""",
    )
