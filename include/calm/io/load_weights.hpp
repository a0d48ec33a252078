#pragma once
/// \file
/// Loads parameters under the names that visit() gives them: the parameters_of and frozen_parameters_of a model.
/// \shows{tests/io/weights_test.cpp,bf16_weights_are_written_unchanged}

#include <algorithm>
#include <cstddef>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "calm/base/quoted.hpp"
#include "calm/io/detail/int8_tensors.hpp"
#include "calm/io/detail/parameters_on_host.hpp"
#include "calm/io/detail/stored_tensor.hpp"
#include "calm/io/tensor_alias.hpp"
#include "calm/io/tensor_table.hpp"
#include "calm/model/detail/tensor_shapes.hpp"
#include "calm/nn/param.hpp"
#include "calm/tensor/core/copy.hpp"

namespace calm {

namespace detail {

// "a, b, c and 3 more"
inline std::string some_of(std::vector<std::string> const& texts) {
    constexpr std::size_t most = 3;
    std::string text;
    for (std::size_t i = 0; i < std::min(most, texts.size()); ++i) text += (i > 0 ? ", " : "") + texts[i];
    if (texts.size() > most) text += " and " + std::to_string(texts.size() - most) + " more";
    return text;
}

// Whether a tensor that no parameter uses repeats another one under an alias. Throws if its values differ.
inline bool repeats_another(tensor_table const& file, stored_tensor const& tensor, std::span<tensor_alias const> ties) {
    for (auto const& [name, same_as] : ties) {
        bool const many = name.ends_with('.');
        if (many ? !tensor.name.starts_with(name) : tensor.name != name) continue;
        auto const original = std::string(same_as) + tensor.name.substr(name.size());
        auto const* const same = file.find(original);
        if (same == nullptr) return false;
        if (same->type != tensor.type || same->shape != tensor.shape ||
            !std::ranges::equal(same->bytes, tensor.bytes) || !std::ranges::equal(same->scales, tensor.scales))
            fail_at(tensor, file.path(),
                    "expected the same values as " + in_quotes(original) + ", because both names mean one weight");
        return true;
    }
    return false;
}

}  // namespace detail

/// Throws errc::model_file unless a file holds exactly the expected tensors, each of the expected shape and of type
/// F16, BF16, F32 or F64, or I8 with scales; aliases (`ties`) of these are allowed. One message lists all that are
/// missing, unknown, or of another shape or type.
inline void check_tensors(tensor_table const& file, std::span<tensor_alias const> ties, tensor_shapes const& expected) {
    std::set<std::string_view> known;
    std::vector<std::string> missing, unknown, unfit;
    for (auto const& [name, shape] : expected.all) {
        known.insert(name);
        auto const* const tensor = file.find(name);
        if (tensor == nullptr)
            missing.push_back(in_quotes(name));
        else if (tensor->shape != shape)
            unfit.push_back(in_quotes(name) + ": expected shape " + text_of(shape) + ", found " +
                            text_of(tensor->shape));
    }
    for (auto const& tensor : file.tensors()) {
        auto const begins = [&](auto const& prefix) { return tensor.name.starts_with(prefix); };
        if (!known.contains(tensor.name) && std::ranges::none_of(expected.unknown_from, begins) &&
            !detail::repeats_another(file, tensor, ties))
            unknown.push_back(in_quotes(tensor.name));
        else if (!detail::is_weight(tensor))
            unfit.push_back(in_quotes(tensor.name) + ": expected type F16, BF16, F32 or F64" +
                            (tensor.type == stored_type::i8
                                 ? ", or I8 with " + in_quotes(tensor.name + std::string(detail::scales_suffix))
                                 : std::string()) +
                            ", found " + std::string(name_of(tensor.type)));
    }
    std::string wrong;
    auto const describe = [&](std::vector<std::string> const& what, std::string const& before) {
        if (!what.empty()) wrong += "; " + before + detail::some_of(what);
    };
    describe(missing, std::to_string(missing.size()) + " missing: ");
    describe(unknown, "found also ");
    describe(unfit, "");
    if (!wrong.empty())
        throw error(errc::model_file, file.path(), "",
                    "expected " + std::to_string(known.size()) + " tensors" + wrong +
                        ". The file belongs to another model, has other sizes or is incomplete");
}

/// Loads every parameter from a file that must pass check_tensors(). A bf16 parameter is rounded to nearest, ties to
/// even; BF16 in the file is copied exactly. Each matrix that `int8` takes is added to it as soon as it is read, so no
/// more than one is in memory as float. Everything is checked before the first weight changes. Throws
/// errc::model_file with the file and the tensors, and errc::non_finite with the place of a value that is not finite.
template <class Space>
requires std::is_same_v<typename Space::backend, cpu>
void load_weights(tensor_table const& file, std::span<tensor_alias const> ties,
                  std::vector<any_parameter<Space>> const& parameters, int8_weights* int8 = nullptr) {
    tensor_shapes expected;
    for (auto const& p : parameters) {
        with_values(p, [&](auto const& values) {
            require(values.data() != nullptr || values.size() == 0, errc::usage,
                    "calm::load_weights: expected memory for ", p.name, "; call calm::allocate first");
        });
        expected.add(p.name, p.shape);
    }
    check_tensors(file, ties, expected);
    for (auto const& p : parameters) require_finite(file.at(p.name), file.path());
    for (auto const& p : parameters)
        with_values(p, [&]<class T, class B>(vector_view<T, dyn, B> const& values) {
            file.read_into(file.at(p.name), detail::on_this_side(values));
            if constexpr (std::is_same_v<T, float>)
                if (int8 != nullptr && int8_weights::takes(p.shape)) int8->add(values.data(), p.shape[0], p.shape[1]);
        });
}

/// Loads parameters to any device, as above; on the cpu into the context's weights in int8, if it has any.
template <class Backend, class Space>
void load_weights(context<Backend> const& ctx, tensor_table const& file, std::span<tensor_alias const> ties,
                  std::vector<any_parameter<Space>> const& parameters) {
    if constexpr (device_memory<Backend>) {
        detail::parameters_on_host<Space> const here(parameters);
        load_weights(file, ties, here.all());
        copy_parameters(ctx, parameters, here.all());
    } else if constexpr (std::is_same_v<Backend, cpu>) {
        load_weights(file, ties, parameters, ctx.int8);
    } else {
        load_weights(file, ties, parameters);
    }
}

}  // namespace calm
