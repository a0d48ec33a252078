#pragma once
// Names of configurations that are linked into the programs, whichever these are.

#include <string>

#include "registry.hpp"

namespace calm::test {

// The first of them; for a CALM prefers the energy head: untrained it repeats one patch and never generates EOS.
inline std::string compiled_configuration(bool autoregressive = false) {
    std::string name;
    for (auto const& one : apps::compiled_configurations()) {
        if (one.is_autoregressive() != autoregressive) continue;
        if (name.empty()) name = one.name;
        if (!autoregressive && one.calm().head.name() == "energy") return one.name;
    }
    return name;
}

}  // namespace calm::test
