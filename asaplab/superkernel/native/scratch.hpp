// Working memory of the threads that compute.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

inline char* aligned(char* memory) { return memory + (64 - (uintptr_t)memory % 64) % 64; }

// The calling thread's own, kept from call to call.
inline char* own_scratch(size_t bytes) {
  thread_local std::unique_ptr<char[]> memory;
  thread_local size_t size = 0;
  if (size < bytes + 64) {
    memory.reset(new char[bytes + 64]);
    size = bytes + 64;
  }
  return aligned(memory.get());
}
