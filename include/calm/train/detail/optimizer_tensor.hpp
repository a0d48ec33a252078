#pragma once
// Optimizer state as it is saved.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace calm::detail {

// A tensor of optimizer state, to be saved and restored: float if `element` is 4, double if it is 8. The optimizer owns
// the bytes.
struct optimizer_tensor {
    static constexpr std::string_view first_moment = "exp_avg.";      // prefix of a name
    static constexpr std::string_view second_moment = "exp_avg_sq.";  // prefix of a name

    std::string name;                  // one of the prefixes, then the parameter's name
    std::size_t element;               // bytes per element: 4 or 8
    std::span<std::byte> bytes;        // of the elements held here
    std::size_t begin = 0;             // offset of `bytes` in the tensor; with several ranks each holds a part
    std::size_t whole = bytes.size();  // bytes of the whole tensor
};

// Total bytes of all whole tensors, also where other ranks hold parts of them.
inline std::size_t whole_bytes(std::vector<optimizer_tensor> const& tensors) {
    std::size_t bytes = 0;
    for (auto const& one : tensors) bytes += one.whole;
    return bytes;
}

}  // namespace calm::detail
