// Ordered flags, doorbells and row copies between processes that share memory (section 3.2).
// A flag is one 64-bit word on a cache line of its own: zero is free, else it is the writer's sequence number. Payload is
// written before the flag (release) and read after it (acquire). Addresses are plain integers: the caller maps memory.
#pragma once
#include <cstdint>

namespace asap {

constexpr int ABI = 2;  // raised with every change that backend.py must know of

struct Bell {  // one cache line: a counter that only grows, and how many wait for it to change
  uint32_t count;
  uint32_t waiters;
  uint32_t pad[14];
};

struct Put {  // one destination of a 1-to-N transfer
  uint64_t flag, bell;                      // of the receiver
  uint64_t value;                           // what to publish
  uint64_t header;                          // where the eight words go
  uint64_t words;                           // and where they come from; the last one is stamped when the flag is set
  uint64_t meta_to, meta_from, meta_bytes;  // counts
  uint64_t index_to, index_from, index_bytes;
  uint64_t to, from, row_bytes;             // rows, gathered from `from`
  uint64_t rows, count;                     // by this list; zero means in order
};

enum Outcome : int64_t { TIMED_OUT = -1, ABORTED = -2 };

int64_t now_ns();
uint64_t load(uint64_t address);
void store(uint64_t address, uint64_t value);
bool clear(uint64_t address, uint64_t expected);  // only what was taken: a late reset cannot erase the next arrival
uint32_t heard(uint64_t bell);
void ring(uint64_t bell);
// Until the bell has moved on from `count`: true, or false after the timeout. Spins `spin` times before it sleeps.
bool wait_bell(uint64_t bell, uint32_t count, uint32_t spin, int64_t timeout_ns);
// n words at `base` with `stride`.
void loads(uint64_t base, uint64_t stride, int64_t n, uint64_t out);
// How many of the words at n addresses hold their expected value.
int64_t count_ready(uint64_t addresses, uint64_t expected, int64_t n);
// Until n words at `base` with `stride` are at least `value`; 0, TIMED_OUT or ABORTED.
int64_t wait_at_least(uint64_t base, uint64_t stride, int64_t n, uint64_t value, uint64_t bell, uint64_t abort,
                      uint32_t spin, int64_t timeout_ns);
// All n puts, free targets first; waits on the sender's own bell while flags are set. Returns n, TIMED_OUT or ABORTED.
// done[k] is set for each put that was made.
int64_t put_all(uint64_t puts, int64_t n, uint64_t done, uint64_t own_bell, uint64_t abort, uint32_t spin,
                int64_t timeout_ns);
// Row from_rows[k] to row to_rows[k] for n rows; a list that is zero means in order.
void move_rows(uint64_t to, uint64_t to_rows_i32, uint64_t from, uint64_t from_rows_i32, int64_t n, uint64_t row_bytes);
// Sort (token, k) pairs by expert, keeping their order; see plan.py for the arrays.
void plan(uint64_t ids_i64, int64_t n, int64_t K, int64_t E_total, uint64_t bounds_i64, int64_t E, uint64_t counts_i32,
          uint64_t order_i32, uint64_t index_i32, uint64_t rows_i32, uint64_t row_ends_i64, uint64_t pair_ends_i64);

}  // namespace asap
