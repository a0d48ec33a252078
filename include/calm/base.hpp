#pragma once
/// \file
/// Shared basics: errors, random numbers, tokens, bf16, quoted text.
/// \shows{examples/10_temperature.cpp,main}

#include "calm/base/bf16.hpp"
#include "calm/base/error.hpp"
#include "calm/base/host_device.hpp"
#include "calm/base/quoted.hpp"
#include "calm/base/random.hpp"
#include "calm/base/token.hpp"
