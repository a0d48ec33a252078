#pragma once
// Shared basics: errors, random numbers, files, characters, tokens. calm/base/simdjson.hpp is not included, because it
// links simdjson.

#include "calm/base/bf16.hpp"
#include "calm/base/checked.hpp"
#include "calm/base/error.hpp"
#include "calm/base/file.hpp"
#include "calm/base/host_device.hpp"
#include "calm/base/number_text.hpp"
#include "calm/base/quoted.hpp"
#include "calm/base/random.hpp"
#include "calm/base/sha256.hpp"
#include "calm/base/token.hpp"
#include "calm/base/utf8.hpp"
