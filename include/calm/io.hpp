#pragma once
/// \file
/// Files: safetensors, PyTorch archives, config.json, model directories. Links simdjson; needs nlohmann-json.
/// \shows{tests/io/model_directory_test.cpp,check_input_is_kept}

#include "calm/io/convert_model.hpp"
#include "calm/io/describe_model.hpp"
#include "calm/io/load_model.hpp"
#include "calm/io/load_weights.hpp"
#include "calm/io/model_description.hpp"
#include "calm/io/open_weights.hpp"
#include "calm/io/read_model_description.hpp"
#include "calm/io/safetensors.hpp"
#include "calm/io/save_model.hpp"
#include "calm/io/save_weights.hpp"
#include "calm/io/stored_model.hpp"
#include "calm/io/stored_weights.hpp"
#include "calm/io/tensor_alias.hpp"
#include "calm/io/tensor_table.hpp"
