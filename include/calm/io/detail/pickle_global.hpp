#pragma once
// The Python names that a pickle of weights may refer to. They are compared, never looked up.

#include <array>
#include <optional>
#include <string_view>

#include "calm/io/detail/stored_tensor.hpp"

namespace calm::detail {

// An allowed name, "module name".
struct pickle_global {
    std::string_view name;
    stored_type type = stored_type::f32;  // of the elements, if it names a storage
};

inline constexpr std::string_view ordered_dictionary = "collections OrderedDict";
inline constexpr std::string_view rebuild_tensor = "torch._utils _rebuild_tensor_v2";
inline constexpr std::string_view rebuild_parameter = "torch._utils _rebuild_parameter";

inline constexpr std::array<pickle_global, 13> pickle_globals{{{ordered_dictionary},
                                                               {rebuild_tensor},
                                                               {rebuild_parameter},
                                                               {"torch FloatStorage", stored_type::f32},
                                                               {"torch DoubleStorage", stored_type::f64},
                                                               {"torch HalfStorage", stored_type::f16},
                                                               {"torch BFloat16Storage", stored_type::bf16},
                                                               {"torch LongStorage", stored_type::i64},
                                                               {"torch IntStorage", stored_type::i32},
                                                               {"torch ShortStorage", stored_type::i16},
                                                               {"torch CharStorage", stored_type::i8},
                                                               {"torch ByteStorage", stored_type::u8},
                                                               {"torch BoolStorage", stored_type::boolean}}};

// nullopt for a name that dictionaries of tensors do not need.
constexpr std::optional<pickle_global> find_pickle_global(std::string_view name) {
    for (auto const& one : pickle_globals)
        if (one.name == name) return one;
    return std::nullopt;
}

}  // namespace calm::detail
