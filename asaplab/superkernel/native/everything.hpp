// The kernel's text, for a source file that is compiled for one instruction set.
#include <cstdint>
#include <cstring>

#include "kernels.hpp"

namespace {
#include "vector.hpp"
#include "dot.hpp"
#include "format.hpp"
#include "panels.hpp"
#include "mlp.hpp"
}  // namespace
