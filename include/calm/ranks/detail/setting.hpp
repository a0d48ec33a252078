#pragma once
// A setting that must be equal on all ranks.

#include <string>

namespace calm {

// A setting by its name, e.g. {"--temperature", "1/2"}.
struct setting {
    std::string name;   // as errors call it; unique
    std::string value;  // numbers with enough digits to be read back exactly
};

}  // namespace calm
