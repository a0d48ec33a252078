#pragma once
// The ids of a text as a file that other programs read.

#include <string>

#include "calm/text/corpus.hpp"

namespace calm::apps {

// Writes all documents as one NumPy array (.npy, format 1.0) of int32, each followed by EOS if the vocabulary has one.
// Throws errc::storage; the path must not exist yet.
void write_token_array(corpus const& text, std::string const& path);

}  // namespace calm::apps
