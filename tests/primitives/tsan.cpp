// Two senders and two receivers exchange rows through the native core under ThreadSanitizer; wrong bytes fail too.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "core.hpp"

using namespace asap;

constexpr int SENDERS = 2, RECEIVERS = 2, ROUNDS = 3000, ROWS = 4, WIDTH = 24;
constexpr int64_t LIMIT_NS = 60'000'000'000;

struct alignas(64) Line {
  uint64_t words[8];
};

struct Region {
  Line flag, header;
  int32_t rows[ROWS * WIDTH];
};

static uint64_t of(const void* p) { return reinterpret_cast<uint64_t>(p); }

static Bell bells[SENDERS + RECEIVERS];
static Region regions[RECEIVERS][SENDERS];
static Line counts[SENDERS + RECEIVERS];
static Bell meeting;
static uint64_t stop = 0;

static void fail(const char* what, int64_t outcome) {
  std::fprintf(stderr, "%s: %lld\n", what, static_cast<long long>(outcome));
  std::exit(1);
}

static void meet(int who, uint64_t round) {
  store(of(&counts[who]), round);
  ring(of(&meeting));
  int64_t outcome = wait_at_least(of(counts), 64, SENDERS + RECEIVERS, round, of(&meeting), of(&stop), 10, LIMIT_NS);
  if (outcome) fail("meeting", outcome);
}

static void send(int s) {
  for (uint64_t round = 1; round <= ROUNDS; ++round) {
    std::vector<int32_t> from(ROWS * WIDTH);
    for (int k = 0; k < ROWS * WIDTH; ++k) from[k] = static_cast<int32_t>(1000 * round + 10 * s + k % 7);
    const int32_t rows[ROWS] = {3, 1, 0, 2};
    uint64_t words[8] = {round, ROWS};
    Put puts[RECEIVERS] = {};
    uint8_t done[RECEIVERS] = {};
    for (int r = 0; r < RECEIVERS; ++r) {
      Region& g = regions[r][s];
      puts[r].flag = of(&g.flag), puts[r].bell = of(&bells[SENDERS + r]), puts[r].value = round;
      puts[r].header = of(&g.header), puts[r].words = of(words);
      puts[r].to = of(g.rows), puts[r].from = of(from.data()), puts[r].row_bytes = 4 * WIDTH;
      puts[r].rows = of(rows), puts[r].count = ROWS;
    }
    int64_t outcome = put_all(of(puts), RECEIVERS, of(done), of(&bells[s]), of(&stop), 10, LIMIT_NS);
    if (outcome != RECEIVERS) fail("put", outcome);
    if (round % 500 == 0) meet(s, round / 500);
  }
}

static void receive(int r) {
  uint64_t next[SENDERS], got = 0;
  for (auto& n : next) n = 1;
  uint64_t met = 0;
  while (got < SENDERS * static_cast<uint64_t>(ROUNDS)) {
    uint32_t count = heard(of(&bells[SENDERS + r]));
    bool any = false;
    for (int s = 0; s < SENDERS; ++s) {
      Region& g = regions[r][s];
      uint64_t value = load(of(&g.flag));
      if (!value) continue;
      any = true;
      if (value != next[s] || g.header.words[0] != value) fail("sequence", value);
      int32_t mine[ROWS * WIDTH];
      move_rows(of(mine), 0, of(g.rows), 0, ROWS, 4 * WIDTH);
      const int32_t first = static_cast<int32_t>(1000 * value + 10 * s + 3 * WIDTH % 7);
      if (mine[0] != first) fail("payload", mine[0]);
      if (!clear(of(&g.flag), value)) fail("clear", value);
      if (clear(of(&g.flag), value)) fail("late clear", value);
      ring(of(&bells[s]));
      ++next[s], ++got;
    }
    if (!any) wait_bell(of(&bells[SENDERS + r]), count, 10, 1'000'000);
    uint64_t least = next[0] < next[1] ? next[0] : next[1];
    while (met < (least - 1) / 500) meet(SENDERS + r, ++met);
  }
}

int main() {
  std::vector<std::thread> threads;
  for (int s = 0; s < SENDERS; ++s) threads.emplace_back(send, s);
  for (int r = 0; r < RECEIVERS; ++r) threads.emplace_back(receive, r);
  for (auto& t : threads) t.join();
  std::puts("clean");
}
