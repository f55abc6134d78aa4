"""The asynchronous primitives: 1-to-N dispatch and N-to-1 combine over shared memory (section 3.2)."""
