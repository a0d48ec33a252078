#pragma once
// Progress of an evaluation on standard error.

#include "calm/tensor/core/extents.hpp"
#include "calm/text/detail/block_source.hpp"

namespace calm::apps {

// The same blocks; rank 0 reports how many of them are done and the time that is left, a few times per second on a
// terminal, else each minute. `positions` as evaluate_options has it: a subset is chosen in a first pass over the
// blocks.
block_source with_progress(block_source blocks, index_t positions);

}  // namespace calm::apps
