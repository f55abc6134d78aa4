#include "core.hpp"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <vector>

namespace asap {
namespace {

template <class T>
T* at(uint64_t address) {
  return reinterpret_cast<T*>(address);
}

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// From here on rows go past the caches: they would not stay there, and lines need not be read to be overwritten.
constexpr uint64_t STREAM_BYTES = 4 << 20;

#if defined(__SSE2__)
void copy_row(char* to, const char* from, uint64_t bytes, bool stream) {
  if (!stream) {
    std::memcpy(to, from, bytes);
    return;
  }
  for (uint64_t k = 0; k < bytes; k += 64) {
    const __m128i* in = reinterpret_cast<const __m128i*>(from + k);
    __m128i* out = reinterpret_cast<__m128i*>(to + k);
    const __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1);
    const __m128i c = _mm_loadu_si128(in + 2), d = _mm_loadu_si128(in + 3);
    _mm_stream_si128(out, a);
    _mm_stream_si128(out + 1, b);
    _mm_stream_si128(out + 2, c);
    _mm_stream_si128(out + 3, d);
  }
}
void streamed() { _mm_sfence(); }  // such stores are ordered by nothing else, not even by the flag that follows
#else
void copy_row(char* to, const char* from, uint64_t bytes, bool) { std::memcpy(to, from, bytes); }
void streamed() {}
#endif

// A wait that is longer than this looks at the abort word again even if nobody rings.
constexpr int64_t SLICE_NS = 100'000'000;

bool aborted(uint64_t abort) { return abort && __atomic_load_n(at<uint64_t>(abort), __ATOMIC_ACQUIRE); }

// The common shape of all waits: test, sleep until the bell rings, test again. Bounded.
template <class Test>
int64_t wait_for(Test test, uint64_t bell, uint64_t abort, uint32_t spin, int64_t timeout_ns) {
  const int64_t until = now_ns() + timeout_ns;
  for (;;) {
    const uint32_t count = heard(bell);
    if (test()) return 0;
    if (aborted(abort)) return ABORTED;
    const int64_t left = until - now_ns();
    if (left <= 0) return TIMED_OUT;
    wait_bell(bell, count, spin, left < SLICE_NS ? left : SLICE_NS);
  }
}

bool alignable(uint64_t to, uint64_t row_bytes) { return row_bytes % 64 == 0 && to % 16 == 0; }

// Rows of several puts in one pass over their common source: each token is read once and written wherever it goes.
void spread(const std::vector<const Put*>& puts) {
  const uint64_t row_bytes = puts[0]->row_bytes;
  int32_t last = 0;
  for (const Put* put : puts)
    for (uint64_t k = 0; k < put->count; ++k) last = std::max(last, at<const int32_t>(put->rows)[k]);
  std::vector<uint64_t> ends(last + 2);
  for (const Put* put : puts)
    for (uint64_t k = 0; k < put->count; ++k) ++ends[at<const int32_t>(put->rows)[k] + 1];
  for (int32_t token = 0; token <= last; ++token) ends[token + 1] += ends[token];
  std::vector<char*> targets(ends[last + 1]);
  std::vector<uint64_t> next(ends.begin(), ends.end() - 1);
  for (const Put* put : puts)
    for (uint64_t k = 0; k < put->count; ++k)
      targets[next[at<const int32_t>(put->rows)[k]]++] = at<char>(put->to) + k * row_bytes;
  const char* in = at<const char>(puts[0]->from);
  for (int32_t token = 0; token <= last; ++token)
    for (uint64_t k = ends[token]; k < ends[token + 1]; ++k)
      copy_row(targets[k], in + token * row_bytes, row_bytes, true);
  streamed();
}

// Whether it pays: there is much, all from one place, and in a form that can be streamed.
bool spreads(const std::vector<const Put*>& puts) {
  uint64_t bytes = 0;
  for (const Put* put : puts) {
    if (!put->rows || put->from != puts[0]->from || !alignable(put->to, put->row_bytes)) return false;
    bytes += put->count * put->row_bytes;
  }
  return puts.size() > 1 && bytes >= STREAM_BYTES;
}

void announce(const Put& put) {
  if (put.meta_bytes) std::memcpy(at<void>(put.meta_to), at<void>(put.meta_from), put.meta_bytes);
  if (put.index_bytes) std::memcpy(at<void>(put.index_to), at<void>(put.index_from), put.index_bytes);
  std::memcpy(at<void>(put.header), at<void>(put.words), 64);
  at<int64_t>(put.header)[7] = now_ns();
  store(put.flag, put.value);
  ring(put.bell);
}

}  // namespace

int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1'000'000'000LL + t.tv_nsec;
}

uint64_t load(uint64_t address) { return __atomic_load_n(at<uint64_t>(address), __ATOMIC_ACQUIRE); }

void store(uint64_t address, uint64_t value) { __atomic_store_n(at<uint64_t>(address), value, __ATOMIC_RELEASE); }

bool clear(uint64_t address, uint64_t expected) {
  return __atomic_compare_exchange_n(at<uint64_t>(address), &expected, 0, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

uint32_t heard(uint64_t bell) { return __atomic_load_n(&at<Bell>(bell)->count, __ATOMIC_SEQ_CST); }

void ring(uint64_t bell) {
  Bell* b = at<Bell>(bell);
  __atomic_fetch_add(&b->count, 1, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&b->waiters, __ATOMIC_SEQ_CST))
    syscall(SYS_futex, &b->count, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

bool wait_bell(uint64_t bell, uint32_t count, uint32_t spin, int64_t timeout_ns) {
  Bell* b = at<Bell>(bell);
  for (uint32_t k = 0; k < spin; ++k) {
    if (heard(bell) != count) return true;
    relax();
  }
  const int64_t until = now_ns() + timeout_ns;
  bool moved;
  // the ringer counts up and then looks for waiters; we announce ourselves and then look at the count: one of us sees
  __atomic_fetch_add(&b->waiters, 1, __ATOMIC_SEQ_CST);
  while (!(moved = heard(bell) != count)) {
    const int64_t left = until - now_ns();
    if (left <= 0) break;
    timespec t = {left / 1'000'000'000LL, left % 1'000'000'000LL};
    syscall(SYS_futex, &b->count, FUTEX_WAIT, count, &t, nullptr, 0);
  }
  __atomic_fetch_sub(&b->waiters, 1, __ATOMIC_SEQ_CST);
  return moved;
}

void loads(uint64_t base, uint64_t stride, int64_t n, uint64_t out) {
  for (int64_t k = 0; k < n; ++k) at<uint64_t>(out)[k] = load(base + k * stride);
}

int64_t count_ready(uint64_t addresses, uint64_t expected, int64_t n) {
  int64_t ready = 0;
  for (int64_t k = 0; k < n; ++k) {
    const uint64_t value = load(at<uint64_t>(addresses)[k]);
    ready += value == at<uint64_t>(expected)[k];
  }
  return ready;
}

int64_t wait_at_least(uint64_t base, uint64_t stride, int64_t n, uint64_t value, uint64_t bell, uint64_t abort,
                      uint32_t spin, int64_t timeout_ns) {
  auto test = [&] {
    for (int64_t k = 0; k < n; ++k)
      if (load(base + k * stride) < value) return false;
    return true;
  };
  return wait_for(test, bell, abort, spin, timeout_ns);
}

int64_t put_all(uint64_t puts, int64_t n, uint64_t done, uint64_t own_bell, uint64_t abort, uint32_t spin,
                int64_t timeout_ns) {
  const Put* put = at<const Put>(puts);
  uint8_t* made = at<uint8_t>(done);
  auto test = [&] {
    std::vector<const Put*> free;  // a target whose flag is set has not taken what it has: the others come first
    int64_t left = 0;
    for (int64_t k = 0; k < n; ++k) {
      if (made[k]) continue;
      if (load(put[k].flag)) {
        ++left;
      } else {
        free.push_back(put + k);
        made[k] = 1;
      }
    }
    const bool together = !free.empty() && spreads(free);
    if (together) spread(free);
    for (const Put* one : free) {
      if (!together) move_rows(one->to, 0, one->from, one->rows, static_cast<int64_t>(one->count), one->row_bytes);
      announce(*one);
    }
    return !left;
  };
  const int64_t outcome = wait_for(test, own_bell, abort, spin, timeout_ns);
  return outcome ? outcome : n;
}

void move_rows(uint64_t to, uint64_t to_rows_i32, uint64_t from, uint64_t from_rows_i32, int64_t n,
               uint64_t row_bytes) {
  const int32_t* put = at<const int32_t>(to_rows_i32);
  const int32_t* take = at<const int32_t>(from_rows_i32);
  char* out = at<char>(to);
  const char* in = at<const char>(from);
  if (!n) return;
  if (!put && !take) {
    std::memcpy(out, in, n * row_bytes);
    return;
  }
  const bool stream = n * row_bytes >= STREAM_BYTES && alignable(to, row_bytes);
  for (int64_t k = 0; k < n; ++k)
    copy_row(out + (put ? put[k] : k) * row_bytes, in + (take ? take[k] : k) * row_bytes, row_bytes, stream);
  if (stream) streamed();
}

void plan(uint64_t ids_i64, int64_t n, int64_t K, int64_t E_total, uint64_t bounds_i64, int64_t E, uint64_t counts_i32,
          uint64_t order_i32, uint64_t index_i32, uint64_t rows_i32, uint64_t row_ends_i64, uint64_t pair_ends_i64) {
  const int64_t* ids = at<const int64_t>(ids_i64);
  const int64_t* bounds = at<const int64_t>(bounds_i64);
  int32_t* counts = at<int32_t>(counts_i32);
  int32_t* order = at<int32_t>(order_i32);
  int32_t *index = at<int32_t>(index_i32), *rows = at<int32_t>(rows_i32);
  int64_t *row_ends = at<int64_t>(row_ends_i64), *pair_ends = at<int64_t>(pair_ends_i64);
  std::memset(counts, 0, E_total * sizeof(int32_t));
  for (int64_t p = 0; p < n * K; ++p) ++counts[ids[p]];
  std::vector<int64_t> next(E_total);
  for (int64_t e = 0, sum = 0; e < E_total; ++e) {
    next[e] = sum;
    sum += counts[e];
  }
  for (int64_t p = 0; p < n * K; ++p) order[next[ids[p]]++] = static_cast<int32_t>(p);
  std::vector<int32_t> row_of(n);
  std::vector<int64_t> seen(n, -1);
  int64_t filled = 0, pair = 0;
  for (int64_t device = 0; device < E; ++device) {
    const int64_t first = filled;
    int64_t end = pair;
    for (int64_t e = bounds[device]; e < bounds[device + 1]; ++e) end += counts[e];
    for (; pair < end; ++pair) {
      const int64_t token = order[pair] / K;
      if (seen[token] != device) {
        seen[token] = device;
        row_of[token] = static_cast<int32_t>(filled - first);
        rows[filled++] = static_cast<int32_t>(token);
      }
      index[pair] = row_of[token];
    }
    row_ends[device] = filled;
    pair_ends[device] = end;
  }
}

}  // namespace asap
