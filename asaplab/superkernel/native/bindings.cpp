// asaplab.superkernel._kernels: chooses the instruction set, deals blocks of rows to threads. Raw addresses in and out:
// the Python side checks shapes and keeps the memory alive.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#ifdef __linux__
#include <sys/mman.h>
#endif
#ifdef ASAPLAB_AMX
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "kernels.hpp"
#include "scratch.hpp"

namespace nb = nanobind;

namespace {

constexpr int ABI = 2;  // raised with every change that the Python side must know of

#ifdef ASAPLAB_AMX
// The processor has tile registers with bfloat16, and Linux lets this process keep their state.
bool may_use_tiles() {
  static const bool may = [] {
    unsigned a, b, c, d;
    constexpr unsigned BF16 = 1u << 22, TILE = 1u << 24;
    constexpr long REQUEST = 0x1023, TILE_DATA = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & BF16) && (d & TILE) &&
           syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
  }();
  return may;
}
#endif

bool has(const std::string& set) {
#ifdef ASAPLAB_X86
  if (set == "avx2") return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (set == "avx512")
    return has("avx2") && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  if (set == "avx512bf16") return has("avx512") && __builtin_cpu_supports("avx512bf16");
#ifdef ASAPLAB_AMX
  if (set == "amx") return has("avx512bf16") && may_use_tiles();
#endif
#endif
  return set == "wide";
}

const Kernel& kernel_for(const std::string& set, bool bfloat16) {
  if (!has(set)) throw std::invalid_argument("this machine has no " + set);
#ifdef ASAPLAB_X86
  if (set == "avx2") return bfloat16 ? avx2_bfloat16 : avx2_float32;
  if (set == "avx512") return bfloat16 ? avx512_bfloat16 : avx512_float32;
  if (set == "avx512bf16") return bfloat16 ? avx512bf16_bfloat16 : avx512_float32;
#ifdef ASAPLAB_AMX
  if (set == "amx") return bfloat16 ? amx_bfloat16 : avx512_float32;
#endif
#endif
  return bfloat16 ? wide_bfloat16 : wide_float32;
}

// Streaming through weights is bound by address translation as much as by memory; the kernel may refuse silently.
void prefer_huge_pages(uintptr_t address, size_t bytes) {
#ifdef __linux__
  const uintptr_t page = 4096, from = (address + page - 1) / page * page, to = (address + bytes) / page * page;
  if (to > from) madvise((void*)from, to - from, MADV_HUGEPAGE);
#endif
}

// Multiply-adds of a block; its weights count as eight rows more. Below SMALL another thread costs more than it takes.
int64_t work_of(const Block& block, Shape shape) { return 3 * shape.H * shape.I * (block.rows + 8); }
constexpr int64_t SMALL = 8 << 20;

// Deals blocks to threads, this one among them; all of them have one shape.
void run(void (*compute)(Shape, const Block&, void*), size_t scratch, Shape shape, const std::vector<Block>& blocks,
         int64_t threads) {
  const int64_t workers = std::min<int64_t>(threads, blocks.size());
  std::atomic<size_t> next{0};
  auto take_blocks = [&](char* memory) {
    for (size_t i; (i = next.fetch_add(1)) < blocks.size();) compute(shape, blocks[i], memory);
  };
  const size_t bytes = (scratch + 63) / 64 * 64;
  char* own = own_scratch(bytes);
  std::unique_ptr<char[]> rest(new char[std::max<int64_t>(workers - 1, 0) * bytes + 64]);
  std::vector<std::thread> others;
  for (int64_t t = 1; t < workers; t++) {
    try {
      others.emplace_back(take_blocks, aligned(rest.get()) + (t - 1) * bytes);
    } catch (const std::system_error&) {
      break;  // the threads there are do all the work
    }
  }
  take_blocks(own);
  for (auto& other : others) other.join();
}

enum Answer { DONE = 0, NO_SUCH_LAYER = 1, BAD_OFFSETS = 2 };

int grouped_mlp(const Kernel& kernel, Shape shape, size_t element, uintptr_t x, int64_t x_stride, int64_t m,
                uintptr_t offsets_at, uintptr_t layer_at, uintptr_t addresses_at, int64_t layers, int64_t experts,
                uintptr_t out, int64_t out_stride, int threads) {
  const int64_t* offsets = (const int64_t*)offsets_at;
  const int64_t layer = *(const int64_t*)layer_at;
  if (layer < 0 || layer >= layers) return NO_SUCH_LAYER;
  const uint64_t* addresses = (const uint64_t*)addresses_at + layer * experts * 2;
  if (!addresses[0]) return NO_SUCH_LAYER;
  if (offsets[0] != 0 || offsets[experts] != m) return BAD_OFFSETS;
  for (int64_t e = 0; e < experts; e++)
    if (offsets[e + 1] < offsets[e]) return BAD_OFFSETS;

  std::vector<Block> blocks;
  int64_t work = 0;
  for (int64_t e = 0; e < experts; e++) {
    const int64_t rows = offsets[e + 1] - offsets[e];
    const int64_t parts = (rows + kernel.most_rows - 1) / kernel.most_rows;
    for (int64_t part = 0; part < parts; part++) {
      const int64_t from = offsets[e] + rows * part / parts, to = offsets[e] + rows * (part + 1) / parts;
      blocks.push_back({(const char*)x + from * x_stride * element, x_stride, to - from, (const void*)addresses[2 * e],
                        (const void*)addresses[2 * e + 1], (char*)out + from * out_stride * element, out_stride});
      work += work_of(blocks.back(), shape);
    }
  }
  run(kernel.mlp, kernel.scratch_bytes(shape), shape, blocks, work < SMALL ? 1 : threads);
  return DONE;
}

// x (m, K) times one part of a weight (N, K), packed as a down weight, to N columns of out.
void linear(const Kernel& kernel, int64_t N, int64_t K, size_t element, uintptr_t x, int64_t x_stride, int64_t m,
            uintptr_t weight, uintptr_t out, int64_t out_stride, int threads) {
  std::vector<Block> blocks;
  const int64_t parts = (m + kernel.most_rows - 1) / kernel.most_rows;
  for (int64_t part = 0; part < parts; part++) {
    const int64_t from = m * part / parts, to = m * (part + 1) / parts;
    blocks.push_back({(const char*)x + from * x_stride * element, x_stride, to - from, nullptr, (const void*)weight,
                      (char*)out + from * out_stride * element, out_stride});
  }
  const Shape shape{N, K};
  run(kernel.linear, kernel.scratch_bytes(shape), shape, blocks, N * K * (m + 8) < SMALL ? 1 : threads);
}

}  // namespace

NB_MODULE(_kernels, module) {
  module.attr("ABI") = ABI;
  module.def("has", &has, "Whether this machine runs the instruction set");
  module.def("prefer_huge_pages", &prefer_huge_pages);
  module.def("packed_elements", [](const std::string& set, bool bfloat16, int64_t H, int64_t I) {
    const Kernel& kernel = kernel_for(set, bfloat16);
    return nb::make_tuple(kernel.packed_gate_up({H, I}), kernel.packed_down({H, I}));
  });
  module.def("pack", [](const std::string& set, bool bfloat16, int64_t H, int64_t I, uintptr_t gate_up, uintptr_t down,
                        uintptr_t packed_gate_up, uintptr_t packed_down) {
    const Kernel& kernel = kernel_for(set, bfloat16);
    nb::gil_scoped_release released;
    kernel.pack_gate_up({H, I}, (const void*)gate_up, (void*)packed_gate_up);
    kernel.pack_down({H, I}, (const void*)down, (void*)packed_down);
  });
  module.def("pack_linear", [](const std::string& set, bool bfloat16, int64_t N, int64_t K, uintptr_t weight,
                               uintptr_t packed) {
    nb::gil_scoped_release released;
    kernel_for(set, bfloat16).pack_down({N, K}, (const void*)weight, (void*)packed);
  });
  module.def("linear", [](const std::string& set, bool bfloat16, int64_t N, int64_t K, uintptr_t x, int64_t x_stride,
                          int64_t m, uintptr_t weight, uintptr_t out, int64_t out_stride, int threads) {
    nb::gil_scoped_release released;
    linear(kernel_for(set, bfloat16), N, K, bfloat16 ? 2 : 4, x, x_stride, m, weight, out, out_stride, threads);
  });
  module.def("grouped_mlp",
             [](const std::string& set, bool bfloat16, int64_t H, int64_t I, uintptr_t x, int64_t x_stride, int64_t m,
                uintptr_t offsets, uintptr_t layer, uintptr_t addresses, int64_t layers, int64_t experts,
                uintptr_t out, int64_t out_stride, int threads) {
               const Kernel& kernel = kernel_for(set, bfloat16);
               nb::gil_scoped_release released;
               return grouped_mlp(kernel, {H, I}, bfloat16 ? 2 : 4, x, x_stride, m, offsets, layer, addresses, layers,
                                  experts, out, out_stride, threads);
             });
}
