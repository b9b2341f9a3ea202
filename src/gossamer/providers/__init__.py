"""The doors other than the native kernels': the CPU provider."""
