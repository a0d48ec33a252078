#pragma once
// Where a program does its work: what --device says.

#include <string>
#include <string_view>
#include <vector>

namespace calm::apps {

// cpu; emulated, the kernels of a GPU on the host; cuda, an NVIDIA GPU; auto, a GPU where one is, else the cpu.
inline std::vector<std::string> const device_names{"cpu", "emulated", "cuda", "auto"};

struct device_choice {
    std::string name = "cpu";  // one of device_names
    int number = 0;            // of a GPU

    // Of a name, or of cuda:N. Throws errc::usage.
    static device_choice parse(std::string_view text);
    // As parse() reads it.
    [[nodiscard]] std::string text() const;
};

}  // namespace calm::apps
