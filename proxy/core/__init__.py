"""The gate and its words: pure, synchronous, without I/O."""
