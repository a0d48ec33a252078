#pragma once
// Where a program does its work: what --device says.

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace calm::apps {

// cpu; emulated, the kernels of a GPU on the host; cuda, an NVIDIA GPU; auto, a GPU where one is, else the cpu.
inline std::vector<std::string> const device_names{"cpu", "emulated", "cuda", "auto"};

struct device_choice {
    std::string name = "cpu";        // one of device_names
    std::optional<int> number = {};  // of a GPU, where it is given

    // Of a name, or of cuda:N. Throws errc::usage.
    static device_choice parse(std::string_view text);
    // As parse() reads it.
    [[nodiscard]] std::string text() const;
    // Of a GPU: the one given, else this process's number among the ranks on this machine.
    [[nodiscard]] int number_here() const;
};

// A sentence on so many products, above 0, that the library of a device does not support.
std::string sentence_on_unsupported(std::int64_t products);
// The same of so many times that attention was computed.
std::string sentence_on_unsupported_attention(std::int64_t times);

// What is said of a context at the end of work: that some products, or attention, took the slow way, and why; empty
// where none did.
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
