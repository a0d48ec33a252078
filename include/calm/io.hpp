#pragma once
// Files: safetensors, config.json, model directories. Links simdjson; needs nlohmann-json.

#include "calm/io/bounded_reader.hpp"
#include "calm/io/config_json.hpp"
#include "calm/io/file.hpp"
#include "calm/io/model_description.hpp"
#include "calm/io/model_directory.hpp"
#include "calm/io/replaced_directory.hpp"
#include "calm/io/safetensors.hpp"
#include "calm/io/stored_model.hpp"
#include "calm/io/stored_tensor.hpp"
#include "calm/io/weights.hpp"
