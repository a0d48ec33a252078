#pragma once
/// \file
/// Generation, and temperature from samples alone.
/// \shows{examples/15_serve.cpp,main}

#include "calm/sample/generate.hpp"
#include "calm/sample/generation_session.hpp"
#include "calm/sample/generation_settings.hpp"
#include "calm/sample/sample_token.hpp"
#include "calm/sample/sampler.hpp"
#include "calm/sample/sampler_cache.hpp"
#include "calm/sample/stop_strings.hpp"
#include "calm/sample/streamed_text.hpp"
#include "calm/sample/temperature.hpp"
#include "calm/sample/text_batch.hpp"
#include "calm/sample/token_sampler.hpp"
