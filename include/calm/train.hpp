#pragma once
/// \file
/// Training and generation. For faster compilation these are separate: evaluation (calm/evaluate.hpp), files of
/// runs (calm/runs.hpp), of text (calm/text.hpp) and of weights (calm/io.hpp). Links libpcre2-8.
/// \shows{examples/12_training.cpp}

#include "calm/sample/generate.hpp"
#include "calm/text/stories.hpp"
#include "calm/text/tokenizer.hpp"
#include "calm/train/adamw_settings.hpp"
#include "calm/train/loop.hpp"
#include "calm/train/optimizer.hpp"
#include "calm/train/recipe.hpp"
#include "calm/train/schedule.hpp"
#include "calm/train/session.hpp"
#include "calm/train/text_recipes.hpp"
#include "calm/train/training_callbacks.hpp"
