#pragma once
// What all ranks have to have alike.

#include <string>

namespace calm {

// A setting by its name, e.g. {"--temperature", "1/2"}.
struct setting {
    std::string name;   // as errors call it; each once
    std::string value;  // numbers with as many digits as give them back
};

}  // namespace calm
