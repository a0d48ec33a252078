#pragma once
/// \file
/// Token ids, and the limits of vocabularies.
/// \shows{examples/09_tokenizer.cpp}

#include <cstdint>

namespace calm {

/// A token id, 0 <= id < V.
using token_id = std::int32_t;

}  // namespace calm

namespace calm::limits {

/// Maximum vocabulary size including special tokens; each token is a row of a model's tables. Published vocabularies
/// have up to 300,000 tokens.
inline constexpr std::int64_t vocabulary = std::int64_t{1} << 20;
/// Maximum bytes of a tokenizer file; published ones have at most 35 MB.
inline constexpr std::uint64_t tokenizer_file = std::uint64_t{64} << 20;

}  // namespace calm::limits
