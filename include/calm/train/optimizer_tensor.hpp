#pragma once
// What an optimizer remembers, as it is saved.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace calm {

// A tensor of an optimizer's memory, to be saved and to be filled again: float where an element has 4 bytes, double
// where it has 8. The optimizer owns the bytes.
struct optimizer_tensor {
    static constexpr std::string_view first_moment = "exp_avg.";      // begins a name
    static constexpr std::string_view second_moment = "exp_avg_sq.";  // begins a name

    std::string name;                  // one of the two, and the parameter's name
    std::size_t element;               // bytes of one: 4 or 8
    std::span<std::byte> bytes;        // of the elements that are here
    std::size_t begin = 0;             // bytes of the tensor before these; of several ranks each has a part of it
    std::size_t whole = bytes.size();  // bytes of all elements
};

// Bytes of all elements of all tensors, wherever they are.
inline std::size_t whole_bytes(std::vector<optimizer_tensor> const& tensors) {
    std::size_t bytes = 0;
    for (auto const& one : tensors) bytes += one.whole;
    return bytes;
}

}  // namespace calm
