#pragma once
// Temperature from samples, and generation.

#include "calm/sample/generate.hpp"
#include "calm/sample/temperature.hpp"
