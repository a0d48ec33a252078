#pragma once
// Writes the config.json of a test.

#include <string>

#include "calm/base/detail/file.hpp"
#include "calm/io/detail/config_json.hpp"

namespace calm::test {

inline void write_config_json(std::string const& path, model_description const& description) {
    replace_file(path, config_json_text(description));
}

}  // namespace calm::test
