#pragma once
/// \file
/// Files of a training run: its directory, checkpoints, metrics. Links simdjson; needs nlohmann-json.
/// \shows{tests/runs/run_directory_test.cpp,found_step}

#include "calm/runs/checkpoint.hpp"
#include "calm/runs/metrics_log.hpp"
#include "calm/runs/model_tokenizer.hpp"
#include "calm/runs/recipe_record.hpp"
#include "calm/runs/run_directory.hpp"
