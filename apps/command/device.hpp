#pragma once
// Where a program computes: the option --device.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "calm/runs/detail/unsupported_work.hpp"

namespace calm::apps {

// cpu; emulated, for tests only, runs GPU kernels on the host; cuda is an NVIDIA GPU; auto takes a GPU if there is one,
// else the cpu.
inline std::vector<std::string> const device_names{"cpu", "emulated", "cuda", "auto"};

struct device_choice {
    std::string name = "cpu";        // one of device_names
    std::optional<int> number = {};  // of a GPU, if given

    // Parses a device name or cuda:N. Throws errc::usage.
    static device_choice parse(std::string_view text);
    // The inverse of parse().
    [[nodiscard]] std::string text() const;
    // The GPU's number: the given one, else this process's rank on this machine.
    [[nodiscard]] int number_here() const;
};

// A message at the end of work if products or attention took slower ways; else empty.
std::string remark_on(unsupported_work const& found);

}  // namespace calm::apps
