// The kernel's text, for a source file that is compiled for one instruction set.
#include <cstdint>
#include <cstring>

#include "attention.hpp"

namespace {
#include "vector.hpp"
#include "dot.hpp"
#include "format.hpp"
#include "shares.hpp"
#include "weighted_sum.hpp"
#include "carver.hpp"
#include "blocked.hpp"
}  // namespace
