#pragma once
// Where a program computes: the option --device.

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

// A message that the device's library did not support `products` matrix products (> 0).
std::string sentence_on_unsupported(std::int64_t products);
// A message that it did not support attention `times` times.
std::string sentence_on_unsupported_attention(std::int64_t times);

// A message at the end of work if some products or attention took the slow path; else empty.
template <class Context> std::string remark_on_products(Context const& ctx) {
    if constexpr (requires {
                      { ctx.unsupported_products() } -> std::integral;
                  })
        if (auto const products = ctx.unsupported_products(); products > 0) return sentence_on_unsupported(products);
    if constexpr (requires {
                      { ctx.unsupported_attentions() } -> std::integral;
                  })
        if (auto const times = ctx.unsupported_attentions(); times > 0) return sentence_on_unsupported_attention(times);
    return "";
}

}  // namespace calm::apps
